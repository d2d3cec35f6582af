import pickle

import numpy as np
import pytest

from kafka_tx.errors import AuthenticationError, FetchError
from kafka_tx.model import OffsetRange, TopicPartition, Topics
from kafka_tx.running.at_least_once.reading import KafkaRecords, NumberedRange
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.fields import DeclarationError
from kafka_tx.topology.rows.schemes import (
    FunctionScheme,
    MetadataScheme,
    RecordScheme,
    StringScheme,
)
from tests.local_engine import GivenRecords
from tests.topology.conftest import Cluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster():
    return Cluster()


def source(cluster, *ranges, scheme=None):
    """Ranges ``(partition, start, end, first root)`` of the cluster."""
    numbered = tuple(
        NumberedRange(OffsetRange(partition, start, end), root)
        for partition, start, end, root in ranges
    )
    return KafkaRecords(numbered, cluster, scheme or StringScheme())


def read(given, task=0, tasks=1):
    facts: dict = {}
    found = list(given.read(task, tasks, facts))
    for read in facts.values():
        read.pop("fetch_ms", None)
    rows = {
        int(root): row[0]
        for records in found
        for root, row in zip(records.roots, to_rows(records.block), strict=True)
    }
    done = {int(r) for records in found if not records.error for r in records.read}
    failed = {
        int(r): records.error
        for records in found
        if records.error
        for r in records.read
    }
    return rows, done, failed, facts


def test_offsets_are_numbered_from_the_first_root_on(cluster):
    cluster.fill("t", 9, 9)

    rows, done, failed, facts = read(
        pickle.loads(pickle.dumps(source(cluster, (A, 2, 4, 100), (B, 0, 1, 102))))
    )

    assert rows == {100: "t-0@2", 101: "t-0@3", 102: "t-1@0"}
    assert done == {100, 101, 102}
    assert failed == {}
    assert facts == {
        "t-0": {"records": 2, "errors": []},
        "t-1": {"records": 1, "errors": []},
    }


def test_holes_and_tombstones_are_done_without_a_row(cluster):
    cluster.fill("t", 3)
    cluster.append_hole(A, 2)
    cluster.append(A, None, b"x")
    cluster.append_hole(A, 1)
    cluster.compact(A, [0])

    rows, done, _, facts = read(source(cluster, (A, 0, 8, 0)))

    assert rows == {1: "t-0@1", 2: "t-0@2", 6: "x"}
    assert done == set(range(8))
    assert facts["t-0"]["records"] == 4
    assert facts["t-0"]["holes"] == [(0, 1), (3, 5), (7, 8)]


def test_every_task_does_every_nth_fetch(cluster):
    cluster.fill("t", *[9] * 5)
    ranges = [(TopicPartition("t", n), 1, 2, n) for n in range(5)]

    shares = [read(source(cluster, *ranges), task, 2)[1] for task in range(2)]

    assert shares == [{0, 2, 4}, {1, 3}]


def test_a_range_that_is_gone_fails_and_the_others_go_on(cluster):
    cluster.fill("t", 9, 9)
    cluster.trim(A, 5)

    rows, done, failed, facts = read(source(cluster, (A, 3, 6, 0), (B, 0, 2, 10)))

    assert set(failed) == {0, 1, 2}
    assert done == {10, 11}
    assert facts["t-0"]["errors"] == ["KAFKA_TX_OFFSET_OUT_OF_RANGE"]
    assert rows == {10: "t-1@0", 11: "t-1@1"}


def test_what_was_read_before_an_error_is_kept(cluster, monkeypatch):
    cluster.fill("t", 9)
    whole = list(cluster.read(OffsetRange(A, 0, 2)))

    def breaks(wanted):
        yield from whole
        raise FetchError("no progress")

    monkeypatch.setattr(cluster, "read", breaks)

    rows, done, failed, _ = read(source(cluster, (A, 0, 5, 0)))

    assert set(rows) == done == {0, 1}
    assert set(failed) == {2, 3, 4}


def test_a_topic_that_was_deleted_fails_the_fetch_and_the_others_go_on(cluster):
    """Brokers decide later whether it is gone; until then it is fetched again."""
    cluster.fill("t", 9)
    gone = TopicPartition("gone", 0)

    _, done, failed, facts = read(source(cluster, (gone, 0, 2, 10), (A, 0, 2, 0)))

    assert set(failed) == {10, 11}
    assert done == {0, 1}
    assert facts["gone-0"]["errors"] == ["KAFKA_TX_UNKNOWN_TOPIC"]


def test_a_refused_password_is_not_a_failed_record(cluster, monkeypatch):
    def refuse(wanted):
        yield from ()
        raise AuthenticationError("wrong password")

    monkeypatch.setattr(cluster, "read", refuse)

    with pytest.raises(AuthenticationError):
        read(source(cluster, (A, 0, 5, 0)))


def parse(record):
    return [(int(record.value),)]


def test_a_record_the_scheme_cannot_decode_fails_alone(cluster):
    cluster.create("t", 1)
    cluster.append(A, b"1", b"2")
    cluster.append_hole(A, 1)
    cluster.append(A, b"poison", b"5", b"6", b"more", b"8")

    scheme = RecordScheme(parse, ("n",))
    rows, done, failed, _ = read(source(cluster, (A, 0, 8, 0), scheme=scheme))

    assert rows == {0: 1, 1: 2, 4: 5, 5: 6, 7: 8}
    assert done == {0, 1, 2, 4, 5, 7}
    assert set(failed) == {3, 6}
    assert failed[3].startswith("ValueError: invalid literal")


def test_a_scheme_that_is_declared_wrongly_is_no_failed_record(cluster):
    cluster.fill("t", 3)
    scheme = FunctionScheme(lambda batch: batch.select(["value"]), "n binary")

    with pytest.raises(DeclarationError, match="the columns value; legal"):
        read(source(cluster, (A, 0, 3, 0), scheme=scheme))


@pytest.mark.parametrize(
    "scheme",
    [
        RecordScheme(lambda record: [("text",)], "n int"),
        RecordScheme(lambda record: [(1, 2)], "n int"),
        MetadataScheme(RecordScheme(lambda record: [("text",)], "n int")),
        FunctionScheme(lambda b: b.select(["value"]).rename_columns(["n"]), "n int"),
    ],
)
def test_records_that_a_scheme_gives_other_values_than_declared_fail(cluster, scheme):
    cluster.fill("t", 2)

    rows, done, failed, _ = read(source(cluster, (A, 0, 2, 0), scheme=scheme))

    assert (rows, done, set(failed)) == ({}, set(), {0, 1})


def test_given_records_are_numbered_through_all_blocks():
    given = GivenRecords(([("a",), ("b",)], [("c",)], [("d",)]), first_root=7)

    assert read(given)[0] == {7: "a", 8: "b", 9: "c", 10: "d"}
    assert read(given, 1, 2)[0] == {9: "c"}
    assert np.array_equal(next(iter(given.read(0, 1, {}))).read, [7, 8])


def test_records_of_another_topic_than_was_planned_fail(cluster):
    cluster.fill("t", 9)
    (former,) = (topic.topic_id for topic in cluster.topics(Topics(("t",))).values())
    cluster.create("t", 1)
    cluster.append(A, *[b"new"] * 9)
    planned = NumberedRange(OffsetRange(A, 2, 4, former), 100)

    rows, done, failed, facts = read(KafkaRecords((planned,), cluster, StringScheme()))

    assert (rows, done, set(failed)) == ({}, set(), {100, 101})
    assert facts["t-0"] == {"records": 0, "errors": ["KAFKA_TX_OTHER_TOPIC"]}
