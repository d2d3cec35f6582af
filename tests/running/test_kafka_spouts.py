"""Where topologies over Kafka start, by the options of the drop-in source."""

from __future__ import annotations

import json

import pytest

from kafka_tx import assembly
from kafka_tx.config import TransactionsConfig
from kafka_tx.errors import DataLossError, FetchError, OffsetsError
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.running.transactional.kafka_spouts import (
    OpaqueTransactionalKafkaSpout,
    TransactionalKafkaSpout,
)
from kafka_tx.transactions.layout.batch_records import batch_record, read_batch
from kafka_tx.transactions.layout.records import Place, decode_as

BOTH = pytest.mark.parametrize(
    "kind", [TransactionalKafkaSpout, OpaqueTransactionalKafkaSpout]
)
A = TopicPartition("t", 0)


@pytest.fixture
def logs(cluster, monkeypatch):
    """Partition 0 holds [2, 10), partition 1 holds [0, 20)."""
    cluster.set(0, 2, 10)
    cluster.set(1, 0, 20)
    monkeypatch.setattr(assembly, "cluster_view", lambda _: cluster)
    return cluster


def starts(kind, start, **more):
    """Where the first batch begins, and where a second one with a new partition."""
    spout = spout_with(kind, start, **more)
    return begins(spout.initialize_transaction(1, None))


def spout_with(kind, start, **more):
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **more}
    return kind(options | ({} if start is None else {"startingOffsets": start}))


def begins(metadata):
    return {str(p): start for p, start in metadata.starts().items()}


@BOTH
@pytest.mark.parametrize(
    ("start", "begin"),
    [
        (None, {"t-0": 2, "t-1": 0}),
        ("earliest", {"t-0": 2, "t-1": 0}),
        ("latest", {"t-0": 10, "t-1": 20}),
        ('{"t": {"0": 5, "1": -1}}', {"t-0": 5, "t-1": 20}),
        ('{"t": {"0": -2, "1": 7}}', {"t-0": 2, "t-1": 7}),
    ],
)
def test_the_first_batch_starts_where_the_option_says(logs, kind, start, begin):
    assert starts(kind, start) == begin


@BOTH
def test_start_times_count_too(logs, kind):
    assert starts(kind, None, startingTimestamp="6") == {"t-0": 6, "t-1": 6}


@BOTH
def test_a_start_time_after_the_last_record_is_refused_or_the_end(logs, kind):
    with pytest.raises(OffsetsError, match="KAFKA_TX_NO_OFFSET_FOR_TIMESTAMP"):
        starts(kind, None, startingTimestamp="15")

    found = starts(
        kind,
        None,
        startingTimestamp="15",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert found == {"t-0": 10, "t-1": 15}


@BOTH
@pytest.mark.parametrize("named", [{"0": 5}, {"0": 5, "1": 5, "2": 5}])
def test_offsets_of_other_partitions_are_refused_as_by_the_source(logs, kind, named):
    with pytest.raises(
        OffsetsError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
    ):
        starts(kind, json.dumps({"t": named}))


@BOTH
def test_an_offset_beyond_the_end_is_refused(logs, kind):
    fails = {"failOnDataLoss": "true"}
    with pytest.raises(DataLossError, match="startingOffsets that its logs hold.*11"):
        starts(kind, '{"t": {"0": 11, "1": 0}}', **fails)

    assert starts(kind, '{"t": {"0": 10, "1": 0}}', **fails) == {"t-0": 10, "t-1": 0}


@BOTH
def test_if_losses_are_allowed_a_start_beyond_the_end_is_the_end(
    logs, kind, clock, monkeypatch
):
    """As in the source, and once it is certain that the log ends there."""
    monkeypatch.setattr(assembly, "SystemClock", lambda: clock)
    spout = spout_with(kind, '{"t": {"0": 11, "1": 0}}', failOnDataLoss="false")
    with pytest.raises(FetchError, match="t-0 has no start position yet"):
        spout.initialize_transaction(1, None)
    clock.sleep_ms(10_000)

    first = spout.initialize_transaction(1, None)

    assert begins(first) == {"t-0": 10, "t-1": 0}
    assert first.skipped == {(A, "cut"): 1}


@BOTH
def test_a_partition_that_comes_later_starts_at_its_beginning(logs, kind):
    spout = spout_with(kind, '{"t": {"0": 5, "1": 6}}', maxOffsetsPerTrigger="4")
    first = spout.initialize_transaction(1, None)
    logs.set(2, 0, 3)
    spout._cached.forget()  # on a busy machine an answer counts for a while

    second = spout.initialize_transaction(2, first)

    assert begins(second)["t-2"] == 0


@BOTH
def test_a_partition_that_comes_later_and_trimmed_is_a_loss(logs, kind):
    """As in the source: what was trimmed was never read."""
    spout = spout_with(kind, "earliest", failOnDataLoss="true")
    first = spout.initialize_transaction(1, None)
    logs.set(2, 3, 8)
    spout._cached.forget()

    with pytest.raises(DataLossError, match="t-2 starts from 3 instead of 0"):
        spout.initialize_transaction(2, first)


@BOTH
def test_a_partition_that_the_first_batch_could_not_reach_has_lost_nothing(logs, kind):
    logs.down.add(A)
    spout = spout_with(kind, "earliest", failOnDataLoss="true")
    first = spout.initialize_transaction(1, None)
    assert begins(first) == {"t-1": 0}
    logs.down.remove(A)
    spout._cached.forget()

    assert begins(spout.initialize_transaction(2, first))["t-0"] == 2


@BOTH
def test_nor_has_it_if_the_topology_was_started_again_since(logs, kind):
    logs.down.add(A)
    options = {"failOnDataLoss": "true"}
    first = spout_with(kind, "earliest", **options).initialize_transaction(1, None)
    second = spout_with(kind, "earliest", **options).initialize_transaction(2, first)
    stored = decode_as("batch", batch_record(second), read_batch, Place("", "", ""))
    logs.down.remove(A)
    logs.set(2, 3, 8)

    spout = spout_with(kind, "earliest", **options)
    with pytest.raises(DataLossError, match="t-2 starts from 3 instead of 0"):
        spout.initialize_transaction(3, stored)
    logs.set(2, 0, 8)
    third = spout.initialize_transaction(3, stored)

    assert begins(third) == {"t-0": 2, "t-1": 20, "t-2": 0}
    assert (stored.awaited, third.awaited) == ((A,), ())


# --- committed ---


def _position(given):
    return given if isinstance(given, LogPosition) else LogPosition(given, None)


@pytest.fixture
def group(monkeypatch):
    """Offsets of the groups, by name."""
    offsets: dict[str, dict[TopicPartition, int | LogPosition]] = {}

    class Mirror:
        def __init__(self, name):
            self.name = name

        def check_kind(self, option):
            """It is a group of consumers."""

        def load(self, partitions):
            known = offsets.get(self.name, {})
            return {p: _position(known[p]) for p in partitions if p in known}

    monkeypatch.setattr(assembly, "_group", lambda _, name: Mirror(name))
    return offsets


@BOTH
@pytest.mark.parametrize(
    ("start", "otherwise"), [("committed:earliest", 0), ("committed:latest", 20)]
)
def test_committed_is_where_the_group_of_the_topology_is(
    logs, group, kind, start, otherwise
):
    group["mine"] = {A: 6}
    spout = spout_with(kind, start)
    spout.commits_to(TransactionsConfig(id="t", commit_group_id="mine"))

    assert begins(spout.initialize_transaction(1, None)) == {
        "t-0": 6,
        "t-1": otherwise,
    }


@BOTH
def test_committed_may_be_of_another_group_that_the_options_name(logs, group, kind):
    group["theirs"] = {A: 7, TopicPartition("t", 1): 8}

    found = starts(kind, "committed", **{"kafka.group.id": "theirs"})

    assert found == {"t-0": 7, "t-1": 8}


@BOTH
def test_the_leader_epoch_of_a_groups_offset_counts_from_the_first_batch_on(
    logs, group, kind
):
    """The ordinary consumer that the topology replaces had read what was lost."""
    group["theirs"] = {A: LogPosition(9, None, 3)}
    logs.ids, logs.epochs, logs.ended = {"t": "same"}, {A: 4}, {(A, 3): 5}
    options = {"kafka.group.id": "theirs"}

    with pytest.raises(DataLossError, match="from 9 to 5"):
        starts(kind, "committed", failOnDataLoss="true", **options)
    found = starts(kind, "committed", failOnDataLoss="false", **options)

    assert found == {"t-0": 5, "t-1": 0}


@BOTH
def test_committed_or_error_names_the_partitions_without_an_offset(logs, group, kind):
    with pytest.raises(OffsetsError, match=r"no committed offset.*t-0, t-1"):
        starts(kind, "committed:error")


@BOTH
def test_what_planned_logs_hold_can_be_asked_for_lag(logs, kind):
    spout = spout_with(kind, None)
    assert spout.bounds() == {}
    spout.initialize_transaction(1, None)
    logs.set(1, 0, 25)
    spout._cached.fresh_bounds(spout._progress.to)  # as ``is_ready`` does

    assert spout.bounds() == {
        A: LogBounds(2, 10),
        TopicPartition("t", 1): LogBounds(0, 25),
    }


def test_of_a_partition_without_a_leader_the_spout_knows_no_bounds(logs):
    spout = spout_with(OpaqueTransactionalKafkaSpout, None)
    logs.down.add(A)
    metadata = spout.initialize_transaction(1, None)

    assert "t-0" not in begins(metadata)
    assert isinstance(spout.bounds()[A], Unavailable)
    assert spout.bounds()[TopicPartition("t", 1)] == LogBounds(0, 20)
