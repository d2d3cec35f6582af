import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.topology.kafka.spout import Fingerprint

RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=4), st.none() | st.binary(max_size=4)),
    max_size=12,
)


def batch(records, first=0):
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "offset": pa.array(range(first, first + len(records)), pa.int64()),
        }
    )


def facts(*batches):
    fingerprint = Fingerprint()
    for each in batches:
        fingerprint.add(each)
    return fingerprint.facts()


@given(RECORDS, st.integers(0, 12), st.integers(0, 12))
def test_a_fingerprint_does_not_depend_on_how_records_are_cut(records, one, other):
    whole = batch(records)
    first, second = sorted((min(one, len(records)), min(other, len(records))))

    cut = [
        whole.slice(0, first),
        whole.slice(first, second - first),
        whole.slice(second),
    ]
    remade = [batch(records[:first]), batch(records[first:], first)]

    assert facts(*cut) == facts(whole) == facts(*remade)


@given(RECORDS, RECORDS)
def test_different_records_have_different_fingerprints(some, others):
    assert (facts(batch(some)) == facts(batch(others))) == (some == others)


@pytest.mark.parametrize(
    ("some", "others"),
    [
        ([(b"", b"a")], [(None, b"a")]),
        ([(b"ab", b"")], [(b"", b"ab")]),
        ([(b"a", b"bc")], [(b"ab", b"c")]),
        ([(None, b"ab"), (None, b"c")], [(None, b"a"), (None, b"bc")]),
    ],
)
def test_nulls_and_borders_count(some, others):
    assert facts(batch(some)) != facts(batch(others))


def test_offsets_count():
    assert facts(batch([(None, b"a")], 5)) != facts(batch([(None, b"a")], 6))


def test_records_and_bytes_are_counted():
    counted = facts(batch([(b"key", b"value"), (None, None), (None, b"x")]))

    assert (counted["records"], counted["bytes"]) == (3, 9)
    assert len(counted["checksum"]) == 40


def test_nothing_read_is_told_as_nothing():
    assert facts() == facts(batch([]))
    assert facts()["records"] == 0
