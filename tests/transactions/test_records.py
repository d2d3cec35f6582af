import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.errors import ConfigError, FormatError, StateCorruptedError
from kafka_tx.transactions.layout import records

WHERE = records.Place("meta/7", "sqlite:///a.db", "orders")

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(payload=json_values, kind=st.text(min_size=1))
def test_what_is_written_is_read_back_equal(payload, kind):
    assert records.decode(records.encode(kind, payload), kind, WHERE) == payload


@given(payload=json_values, data=st.data())
def test_a_changed_character_is_never_read_as_another_value(payload, data):
    text = records.encode("batch", payload)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii"))

    try:
        read = records.decode(text[:at] + other + text[at + 1 :], "batch", WHERE)
    except (FormatError, StateCorruptedError):
        return

    assert read == payload


@given(payload=json_values, data=st.data())
def test_a_cut_record_is_corrupted(payload, data):
    text = records.encode("batch", payload)
    cut = data.draw(st.integers(0, len(text) - 1))

    with pytest.raises(StateCorruptedError):
        records.decode(text[:cut], "batch", WHERE)


def test_white_space_does_not_count():
    text = json.dumps(json.loads(records.encode("batch", {"a": [1, 2.5]})), indent=2)

    assert records.decode(text, "batch", WHERE) == {"a": [1, 2.5]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("7", "no record"),
        ('{"offset":3}', "no record"),
        (records.encode("committed", 1), "kind 'committed', expected 'batch'"),
        (records.encode("batch", 1).replace('"data":1', '"data":2'), "checksum"),
        (
            records.encode("batch", 1).replace('"data":1', '"data":NaN'),
            "JSON compliant",
        ),
        (
            records.encode("batch", 1).replace('"data":1', '"data":' + "[" * 99999),
            "recursion",
        ),
    ],
)
def test_an_unreadable_record_names_place_reason_and_repair(text, reason):
    with pytest.raises(StateCorruptedError, match=reason) as caught:
        records.decode(text, "batch", WHERE)

    assert "meta/7" in str(caught.value)
    assert "sqlite:///a.db" in str(caught.value)
    assert "kafka-tx offsets repair --store 'sqlite:///a.db' --id orders" in str(
        caught.value
    )
    assert caught.value.fields["path"] == "meta/7"


def test_a_record_under_another_kind_does_not_pass_by_renaming_it():
    text = records.encode("committed", 1).replace("committed", "batch")

    with pytest.raises(StateCorruptedError, match="checksum"):
        records.decode(text, "batch", WHERE)


@pytest.mark.parametrize(
    "payload", [{1: "a"}, (1, 2), {"a": (1,)}, {1, 2}, b"x", float("nan"), object()]
)
def test_what_json_would_change_is_refused_when_written(payload):
    with pytest.raises(ConfigError, match="record of kind 'batch' cannot be written"):
        records.encode("batch", payload)


@pytest.mark.parametrize(
    "path", ["a", "meta/17", "user/orders-3/17", "A.b_c-d=e/0", "x" * 500]
)
def test_a_legal_path_passes(path):
    assert records.check_path(path) == path


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "a b", "ä", "a/../b", ".", "a~b", "a\n", "x" * 501]
)
def test_an_illegal_path_is_refused(path):
    with pytest.raises(ConfigError, match="option 'path'"):
        records.check_path(path)


@pytest.mark.parametrize("value", ["a\x00b", "\ud800"])
def test_a_value_that_some_store_cannot_keep_is_refused(value):
    with pytest.raises(ConfigError, match="meta/7"):
        records.check_value("meta/7", value)
