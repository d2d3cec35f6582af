"""Exact and opaque emitters: what a batch takes from each partition."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_tx.errors import ConfigError, FailedException, OutOfOrderError
from kafka_tx.model import TransactionAttempt, Unavailable
from kafka_tx.transactions.emitters import ExactEmitter, OpaqueEmitter, owned
from kafka_tx.transactions.rotating import Change, RecordCodec

CODEC = RecordCodec[Any](
    "user",
    "memory:",
    "jobs",
    to_json=lambda batch: {str(p): list(r) for p, r in batch.items()},
    from_json=lambda payload: {int(p): tuple(r) for p, r in payload.items()},
)
LOST = Unavailable("no leader")
Range = tuple[int, int]


def empty_after(last: Range) -> Range:
    return (last[1], last[1])


def exact() -> ExactEmitter[int, Range]:
    return ExactEmitter(CODEC, empty_after)


def opaque() -> OpaqueEmitter[int, Range]:
    return OpaqueEmitter(CODEC, empty_after)


def attempt(txid: int, number: int = 1) -> TransactionAttempt:
    return TransactionAttempt(txid, number)


def planned(emitter, txid, offers, partitions=(), number=1):
    """Plan, and store what an exact emitter stores."""
    plan = emitter.plan(attempt(txid, number), partitions or list(offers), offers)
    emitter.apply(plan.change)
    return dict(plan.batch)


def committed(emitter, txid, number=1):
    change = emitter.commit(attempt(txid, number))
    emitter.apply(change)
    return change


BOTH = pytest.mark.parametrize("make", [exact, opaque])


# --- both ---


@BOTH
def test_the_first_batch_goes_on_from_nothing(make):
    emitter = make()

    assert emitter.lasts(1, [0, 1]) == {0: None, 1: None}
    assert planned(emitter, 1, {0: (0, 5), 1: (3, 4)}) == {0: (0, 5), 1: (3, 4)}


@BOTH
def test_the_next_batch_goes_on_from_the_one_before(make):
    emitter = make()
    planned(emitter, 1, {0: (0, 5), 1: (0, 2)})

    assert emitter.lasts(2, [0, 1]) == {0: (0, 5), 1: (0, 2)}


@BOTH
def test_a_partition_that_cannot_be_read_keeps_its_position(make):
    emitter = make()
    planned(emitter, 1, {0: (0, 5), 1: (0, 2)})

    assert planned(emitter, 2, {0: LOST, 1: (2, 9)}) == {0: (5, 5), 1: (2, 9)}
    assert planned(emitter, 3, {0: (5, 8), 1: LOST}) == {0: (5, 8), 1: (9, 9)}


@BOTH
def test_a_partition_that_is_not_listed_keeps_its_position_over_cleanups(make):
    emitter = make()
    planned(emitter, 1, {0: (0, 5), 1: (0, 2)})
    committed(emitter, 1)
    for txid in (2, 3, 4):
        assert planned(emitter, txid, {0: (5, 5)})[1] == (2, 2)
        committed(emitter, txid)

    assert emitter.lasts(5, [0]) == {0: (5, 5), 1: (2, 2)}


@BOTH
def test_a_partition_without_position_that_cannot_be_read_is_new_next_time(make):
    emitter = make()

    assert planned(emitter, 1, {0: (0, 5), 1: LOST}) == {0: (0, 5)}
    assert emitter.lasts(2, [0, 1]) == {0: (0, 5), 1: None}


@BOTH
def test_a_new_partition_comes_after_the_known_ones(make):
    emitter = make()
    planned(emitter, 1, {5: (0, 1), 7: (0, 1)})

    assert list(emitter.lasts(2, [3, 7, 5])) == [5, 7, 3]


@BOTH
@pytest.mark.parametrize("txid", [2, 7])
def test_without_its_predecessor_a_batch_is_refused(make, txid):
    with pytest.raises(OutOfOrderError, match=f"{txid - 1} is needed"):
        make().lasts(txid, [0])


@BOTH
def test_cleanup_is_strictly_below_the_commit(make):
    emitter = make()
    planned(emitter, 1, {0: (0, 0)})
    assert committed(emitter, 1).delete == ()
    planned(emitter, 2, {0: (0, 0)})

    assert committed(emitter, 2).delete == ("user/1",)
    assert emitter.lasts(3, [0]) == {0: (0, 0)}


@BOTH
def test_a_restart_goes_on_from_what_is_stored(make):
    before = make()
    plan = before.plan(attempt(1), [0, 1], {0: (0, 5), 1: (0, 2)})
    stored = plan.change | before.commit(attempt(1))

    after = make()
    after.load(stored.put)

    assert after.lasts(2, []) == {0: (0, 5), 1: (0, 2)}


# --- exact ---


def test_an_exact_batch_is_the_same_for_every_attempt():
    emitter = exact()
    planned(emitter, 1, {0: (0, 5)})

    assert emitter.lasts(1, [0, 1]) == {}
    assert planned(emitter, 1, {0: (0, 99), 1: (0, 9)}, number=2) == {0: (0, 5)}
    assert emitter.batch(attempt(1, 2)) == emitter.batch(attempt(1, 3)) == {0: (0, 5)}
    assert emitter.plan(attempt(1, 4), [0], {}).change == Change()


def test_an_exact_replay_never_reads_a_partition_added_later():
    emitter = exact()
    planned(emitter, 1, {0: (0, 5)})
    planned(emitter, 2, {0: (5, 6), 1: (0, 4)})

    assert emitter.batch(attempt(1)) == {0: (0, 5)}
    assert emitter.batch(attempt(2)) == {0: (5, 6), 1: (0, 4)}


def test_an_exact_batch_is_in_memory_only_after_its_write():
    emitter = exact()

    plan = emitter.plan(attempt(1), [0], {0: (0, 5)})

    assert list(plan.change.put) == ["user/1"]
    with pytest.raises(OutOfOrderError):
        emitter.batch(attempt(1))
    emitter.apply(plan.change)
    assert emitter.batch(attempt(1)) == {0: (0, 5)}


def test_below_a_later_txid_an_exact_batch_holds_nothing_now_and_on_replay():
    emitter = exact()
    emitter.load({"user/4": CODEC.encode({0: (5, 9)})})

    assert emitter.lasts(3, [0]) == {}
    assert planned(emitter, 3, {0: (0, 99)}) == {}
    assert emitter.batch(attempt(3, 2)) == {}
    assert planned(emitter, 3, {0: (0, 99)}, number=3) == {}
    assert emitter.lasts(5, [0]) == {0: (5, 9)}


def test_an_exact_batch_that_was_cleaned_up_is_refused():
    emitter = exact()
    planned(emitter, 1, {0: (0, 5)})
    planned(emitter, 2, {0: (5, 6)})
    committed(emitter, 2)

    with pytest.raises(OutOfOrderError, match="'user/1' does not exist"):
        emitter.batch(attempt(1))


# --- opaque ---


def test_an_opaque_batch_leaves_no_trace_before_its_commit():
    emitter = opaque()

    assert emitter.plan(attempt(1), [0], {0: (0, 5)}).change == Change()

    change = emitter.commit(attempt(1))
    assert change.put == {"user/1": CODEC.encode({0: (0, 5)})}


def test_an_opaque_replay_holds_what_is_readable_then():
    emitter = opaque()
    planned(emitter, 1, {0: (0, 5), 1: (0, 2)})

    assert planned(emitter, 1, {0: LOST, 1: (0, 7)}, number=2) == {1: (0, 7)}

    assert emitter.lasts(2, [0, 1]) == {1: (0, 7), 0: None}


def test_replanning_an_opaque_batch_forgets_the_later_ones():
    emitter = opaque()
    for txid, start in ((1, 0), (2, 5), (3, 10)):
        planned(emitter, txid, {0: (start, start + 5)})

    planned(emitter, 2, {0: (5, 6)}, number=2)

    assert emitter.lasts(3, [0]) == {0: (5, 6)}
    with pytest.raises(OutOfOrderError):
        emitter.lasts(4, [0])
    with pytest.raises(FailedException, match=r"attempt 3:1 .* \(None\)"):
        emitter.batch(attempt(3))


def test_an_opaque_batch_goes_on_from_the_cached_one_not_from_the_stored_one():
    emitter = opaque()
    planned(emitter, 1, {0: (0, 5)})
    committed(emitter, 1)
    planned(emitter, 2, {0: (5, 6)})

    assert emitter.lasts(3, [0]) == {0: (5, 6)}
    assert emitter.lasts(2, [0]) == {0: (0, 5)}


def test_the_commit_of_another_attempt_is_refused():
    emitter = opaque()
    planned(emitter, 1, {0: (0, 5)}, number=1)
    planned(emitter, 1, {0: (0, 3)}, number=2)

    with pytest.raises(FailedException, match="1:1 is not the one"):
        emitter.commit(attempt(1, 1))

    assert emitter.commit(attempt(1, 2)).put == {"user/1": CODEC.encode({0: (0, 3)})}


def test_after_a_restart_no_opaque_commit_is_believed():
    emitter = opaque()
    planned(emitter, 1, {0: (0, 5)})
    emitter.load({})

    with pytest.raises(FailedException):
        emitter.commit(attempt(1))


def test_what_is_stored_for_an_uncommitted_txid_is_no_position():
    transactional = exact()
    for txid, start in ((1, 0), (2, 5), (3, 10)):
        planned(transactional, txid, {0: (start, start + 5), txid: (0, 1)})
    stored = {
        f"user/{txid}": CODEC.encode(dict(transactional.batch(attempt(txid))))
        for txid in (1, 2, 3)
    }

    emitter = opaque()
    emitter.load(stored)

    assert emitter.lasts(2, []) == {0: (0, 5), 1: (0, 1)}
    planned(emitter, 2, {0: (5, 7)}, partitions=[0])
    assert emitter.lasts(3, []) == {0: (5, 7), 1: (1, 1)}


# --- ownership ---


def test_every_partition_is_owned_by_exactly_one_task():
    partitions = ["a", "b", "c", "d", "e"]

    shares = [owned(partitions, index, 3) for index in range(3)]

    assert shares == [["a", "d"], ["b", "e"], ["c"]]
    assert owned(["a"], 1, 2) == []


@pytest.mark.parametrize("index", [-1, 2, 5])
def test_a_task_index_outside_is_refused(index):
    with pytest.raises(ConfigError, match="legal: 0 to 1"):
        owned(["a"], index, 2)
