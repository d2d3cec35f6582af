"""What is remembered of a part that was written."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from kafka_tx.errors import FencedError, OutOfOrderError, ReplayDiffersError
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.marker_rules import (
    begun_elsewhere,
    check_lives,
    check_others,
    is_done,
)
from kafka_tx.sinks.sink_parts import Digest, Marker, Part

ROWS = [(b"a", b"1"), (b"b", None), (None, b"3")]


def digest(*rows):
    made = Digest()
    records = [OutRecord("t", key, value) for key, value in rows]
    assert list(made.of(records)) == records
    return made


def attempt(txid, epoch=0, **names):
    return replace(TransactionAttempt.of(txid, epoch=epoch, number=0), **names)


def test_the_order_of_rows_does_not_matter():
    assert digest(*ROWS) == digest(*reversed(ROWS))


@pytest.mark.parametrize(
    "others",
    [ROWS[:2], [*ROWS, ROWS[0]], [(b"a", b"2"), *ROWS[1:]], [(b"c", b"1"), *ROWS[1:]]],
    ids=["fewer", "more", "other value", "other key"],
)
def test_other_rows_have_another_digest(others):
    assert digest(*ROWS) != digest(*others)


SEEN = OutRecord("t", b"user1", b"23", [("v", b"1")], 0, 5)


@pytest.mark.parametrize(
    "other",
    [
        replace(SEEN, topic="u"),
        replace(SEEN, key=b"user12", value=b"3"),
        replace(SEEN, headers=[("v", b"2")]),
        replace(SEEN, headers=[("v", None)]),
        replace(SEEN, headers=None),
        replace(SEEN, partition=3),
        replace(SEEN, timestamp_ms=9),
        replace(SEEN, key=None),
        replace(SEEN, key=b""),
    ],
)
def test_a_digest_sees_all_that_a_reader_sees(other):
    made = Digest(), Digest(), Digest()
    for one, record in zip(made, (SEEN, other, SEEN), strict=True):
        list(one.of([record]))

    assert made[0] == made[2] != made[1]


def test_null_and_empty_are_not_the_same():
    assert digest((None, b"")) != digest((b"", None))


def test_a_digest_counts_rows():
    assert digest(*ROWS).rows == len(ROWS)


def test_a_marker_is_read_as_it_was_written():
    wanted = attempt(7, epoch=2, source="orders", plan="plan", numbering="numbering")
    written = Marker(3, wanted, 4, digest(*ROWS), "run", "life")

    found = Marker.of_metadata(3, 7, written.metadata, "life")
    assert found == written
    assert asdict(found.attempt) == asdict(wanted)


def test_a_marker_has_the_form_that_other_versions_read():
    text = (
        '{"v":3,"txid":7,"parts":4,"digest":"2 1f","run":"run","epoch":2,'
        '"source":"orders","plan":"plan","numbering":"numbering"}'
    )
    names = {"source": "orders", "plan": "plan", "numbering": "numbering"}

    found = Marker.of_metadata(3, 7, text)

    assert asdict(found.attempt) == asdict(attempt(7, epoch=2, **names))
    later = replace(found.attempt, attempt_id=found.attempt.attempt_id + 9)
    assert replace(found, attempt=later).metadata == text
    with pytest.raises(FencedError, match="epochs 1 and 2"):
        check_others(Part("sink", attempt(8, epoch=1, **names), 3, 4), [found])


def test_a_marker_without_names_is_read_as_it_was_written():
    written = Marker(3, attempt(7), 4, digest(*ROWS))

    assert Marker.of_metadata(3, 7, written.metadata) == written


def test_a_new_life_counts_anew_and_still_fences_the_old_one():
    old, new = (
        Part("sink", attempt(7), 0, 1, "query-1"),
        Part("sink", attempt(1), 0, 1, "query-2"),
    )

    assert old.name == new.name
    assert old.group != new.group


def test_a_txid_with_other_records_is_refused():
    part = Part("sink", attempt(7, epoch=3, plan="one"), 0, 1)
    same = Marker(0, attempt(7, epoch=2, plan="one"), 1)
    other = Marker(0, attempt(7, epoch=2, plan="other"), 1)

    assert is_done(part, same)
    assert not is_done(part, Marker(0, attempt(6, epoch=2, plan="other"), 1))
    with pytest.raises(ReplayDiffersError, match="txid 7 already.*ended elsewhere"):
        is_done(part, other)


def test_a_life_that_another_took_over_from_is_fenced():
    former, newer = Marker(0, attempt(7), life="one"), Marker(0, attempt(1), life="two")

    with pytest.raises(FencedError, match="taken over by the query with id two"):
        check_lives(Part("sink", attempt(8), 0, 1, "one"), [former, newer])
    check_lives(Part("sink", attempt(2), 0, 1, "two"), [former, newer])
    check_lives(Part("sink", attempt(1), 0, 1, "three"), [former, newer])


def test_what_others_wrote_later_in_this_life_refuses_a_part_without_a_marker():
    part = Part("sink", attempt(7, epoch=3), 0, 2, "one")

    check_others(
        part,
        [Marker(1, attempt(8), life="two"), Marker(1, attempt(7, epoch=3), life="one")],
    )
    with pytest.raises(OutOfOrderError):
        check_others(part, [Marker(1, attempt(8, epoch=3), life="one")])
    with pytest.raises(FencedError, match="epochs 3 and 4"):
        check_others(part, [Marker(1, attempt(7, epoch=4), life="one")])


def test_a_batch_that_another_run_began_in_other_parts_is_refused():
    part = Part("sink", attempt(7), 0, 2, run="now")
    begun = Marker(1, attempt(7), 2, run="before")
    own, older = (
        Marker(1, attempt(7), 2, run="now"),
        Marker(1, attempt(6), 2, run="before"),
    )

    assert begun_elsewhere(part, [own, older, begun]) == [begun]
    with pytest.raises(OutOfOrderError):
        begun_elsewhere(part, [Marker(1, attempt(7), 3, run="before")])
