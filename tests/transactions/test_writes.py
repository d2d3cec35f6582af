"""The queue of writes: one under way, in order, the same again after a failure."""

from __future__ import annotations

from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.coordinator.actions import Purpose, WriteQueue
from kafka_tx.transactions.coordinator.uncommitted import Change, MetadataChain
from tests.transactions.drive import opened

FIRST, SECOND = TransactionAttempt(1, 1), TransactionAttempt(2, 2)


def test_only_the_first_is_made_and_the_next_follows_it():
    queue = WriteQueue(MetadataChain("opaque", *opened({})))
    (first,) = queue.add(3, Change({"a": "1"}), FIRST, Purpose.RECORD)
    assert queue.add(3, Change({"b": "2"}), SECOND, Purpose.KEEP) == []
    assert queue.holds(Purpose.KEEP)

    done, (second,) = queue.done()

    assert (done, done.attempt, done.put) == (first, FIRST, {"a": "1"})
    assert dict(second.put) == {"b": "2"}
    assert queue.is_under_way(second.write_id)
    assert not queue.is_under_way(first.write_id)
    assert queue.done()[1] == []
    assert not queue


def test_a_failed_write_is_made_again_unchanged_under_a_new_id():
    queue = WriteQueue(MetadataChain("opaque", *opened({})))
    (write,) = queue.add(3, Change({"a": "1"}, ("b",)), FIRST, Purpose.RECORD)
    queue.again_at_ms = 100
    assert not queue.is_under_way(write.write_id)
    assert queue.again(99) == []

    (again,) = queue.again(100)

    assert (again.epoch, again.put, again.delete) == (3, {"a": "1"}, ("b",))
    assert again.write_id > write.write_id
    assert queue.is_under_way(again.write_id)
    assert not queue.is_under_way(write.write_id)
    assert queue.again(10**6) == []


def test_a_cleared_queue_has_nothing_to_do():
    queue = WriteQueue(MetadataChain("opaque", *opened({})))
    queue.add(3, Change({"a": "1"}), FIRST, Purpose.KEEP)
    queue.again_at_ms = 5
    queue.clear()

    assert not queue
    assert not queue.holds(Purpose.KEEP)
    assert queue.again(10) == []
