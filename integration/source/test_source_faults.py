"""What brokers and topics do to a running source."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from pyspark.errors import StreamingQueryException

from integration.capabilities import LIMITED_BOUNDED_RUNS, need
from integration.cluster.records import Produce, Record
from integration.cluster.topics import spread_topic
from integration.cluster.waiting import PATIENT_S
from integration.reading import Run, reader
from integration.sizes import in_all
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import LogPosition, OffsetRange, TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Ledger


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def run(spark, kafka, tmp_path):
    """Read a topic to its end; ``again`` keeps checkpoint ``name``."""

    def read(topic, name="checkpoint", done=lambda: True, **options):
        made = Run(spark, kafka.bootstrap_servers, subscribe=topic, **options)
        return made.until_done(tmp_path / name, done)

    return read


@pytest.fixture
def run_until(run):
    """As ``run``, and again until the group has it: a run waits five seconds for it."""

    def read(topic, has_it, **options):
        found = run(topic, done=has_it, **options)
        while not has_it():
            assert run(topic, done=has_it, **options) == []
        return found

    return read


def texts(prefix, numbers):
    return sorted(f"{prefix}{n}".encode() for n in numbers)


def test_partitions_added_while_running_are_read_from_their_beginning(
    run, topic, produce, kafka
):
    name = topic(1)
    produce(name, [f"a{n}" for n in range(10)])
    run(name)
    kafka.add_partitions(name, 3)
    fresh = Produce(kafka.bootstrap_servers)  # knows the partitions there are now
    fresh(name, [f"b{n}" for n in range(10)], partition=2)

    assert sorted(run(name)) == texts("b", range(10))


def test_a_deleted_topic_stops_the_query_by_name(run, topic, produce, kafka):
    name, other = topic(1), topic(1)
    produce(name, ["a"])
    both = f"{name},{other}"
    run(both)
    kafka.delete_topic(name)

    with pytest.raises(StreamingQueryException, match=f"PARTITIONS_DELETED.*{name}-0"):
        run(both)


def test_a_deleted_topic_is_left_out_if_losses_are_allowed(run, topic, produce, kafka):
    name, other = topic(1), topic(1)
    produce(name, ["a"])
    both = f"{name},{other}"
    run(both, failOnDataLoss="false")
    kafka.delete_topic(name)
    produce(other, ["b"])

    assert run(both, failOnDataLoss="false") == [b"b"]


def test_a_topic_made_anew_stops_the_query_even_if_it_is_longer(
    run, topic, produce, kafka, store
):
    name = topic(1)
    produce(name, ["a"] * 5)
    run(name, tx__id="anew", tx__store=store)
    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    produce(name, ["b"] * 9)

    with pytest.raises(StreamingQueryException, match="PARTITION_OFFSET_CHANGED"):
        run(name, tx__id="anew", tx__store=store)


def make_anew(kafka, produce, name, values):
    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    produce(name, values)


@pytest.mark.parametrize("count", [*in_all(3, 9), 5])
def test_a_topic_made_anew_while_a_query_without_tx_id_is_down_stops_it(
    run, topic, produce, kafka, count
):
    """With fewer, as many, or more records; if losses are allowed all are read."""
    name = topic(1)
    produce(name, ["a"] * 5)
    run(name)
    fresh = [f"b{n}" for n in range(count)]
    make_anew(kafka, produce, name, fresh)

    with pytest.raises(StreamingQueryException, match="PARTITION_OFFSET_CHANGED"):
        run(name)
    assert sorted(run(name, failOnDataLoss="false")) == texts("b", range(count))
    assert run(name) == []


def test_a_living_query_reads_a_topic_made_anew_with_as_many_records(
    spark, topic, produce, kafka, tmp_path
):
    """The end of its batch is that of the batch before, to the letter."""
    name = topic(1)
    options = {"subscribe": name, "failOnDataLoss": "false"}
    made = Run(spark, kafka.bootstrap_servers, **options)
    query = made.start(tmp_path / "checkpoint")
    try:
        produce(name, ["a"] * 5)
        wait_for(lambda: len(made.values) == 5)
        make_anew(kafka, produce, name, ["b"] * 5)
        wait_for(lambda: len(made.values) == 10)
    finally:
        query.stop()

    assert made.values == [b"a"] * 5 + [b"b"] * 5


@pytest.mark.all
@pytest.mark.parametrize("durable", [True, False])
def test_a_bounded_run_does_not_end_without_a_partition_that_has_no_leader(
    spark, kafka_pair, store, tmp_path, durable
):
    need(LIMITED_BOUNDED_RUNS)
    name = spread_topic(kafka_pair)
    lost = 0 if kafka_pair.leader(name, 0) == 2 else 1
    send = Produce(kafka_pair.bootstrap_servers)

    def run():
        options = {"tx__id": name, "tx__store": store} if durable else {}
        made = Run(spark, kafka_pair.bootstrap_servers, subscribe=name, **options)
        try:
            made.until_done(tmp_path / "checkpoint")
        finally:
            taken.append(sorted(made.values))

    taken: list[list[bytes]] = []
    send(name, ["first"], partition=lost)
    run()
    send(name, ["lost"] * 3, partition=lost)
    send(name, ["there"] * 3, partition=1 - lost)
    kafka_pair.kill(2)
    try:
        with pytest.raises(StreamingQueryException, match=f"where {name}-{lost} ends"):
            run()
    finally:
        kafka_pair.restart(2)
    run()

    assert taken == [[b"first"], [b"there"] * 3, [b"lost"] * 3]


def test_records_trimmed_before_they_were_read_stop_the_query(
    run, topic, produce, kafka
):
    name = topic(1)
    produce(name, ["a"] * 5)
    run(name)
    produce(name, ["b"] * 10)
    kafka.delete_records(name, {0: 12})

    with pytest.raises(
        StreamingQueryException, match=r"START_OFFSET_RESET.*was 5.*to 12"
    ):
        run(name)


def test_trimmed_records_are_skipped_if_losses_are_allowed(run, topic, produce, kafka):
    name = topic(1)
    produce(name, ["a"] * 5)
    run(name, failOnDataLoss="false")
    produce(name, [f"b{n}" for n in range(10)])
    kafka.delete_records(name, {0: 12})

    assert sorted(run(name, failOnDataLoss="false")) == texts("b", range(7, 10))


def test_a_new_checkpoint_goes_on_where_the_store_says(run, topic, produce, store):
    name = topic(2)
    produce(name, [f"a{n}" for n in range(20)])
    run(name, "first", tx__id="resume", tx__store=store)
    produce(name, [f"b{n}" for n in range(20)])

    found = run(name, "second", tx__id="resume", tx__store=store)

    assert sorted(found) == texts("b", range(20))


def test_committed_starts_another_job_where_the_group_stands(
    run, run_until, kafka, topic, produce, store, tmp_path
):
    name = topic(2)
    produce(name, [f"a{n}" for n in range(20)])

    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    settings = client_settings(servers, purpose="admin")

    def group_has_all() -> bool:
        with closing(GroupMirror(settings, f"{name}-g")) as group:
            wanted = [TopicPartition(name, 0), TopicPartition(name, 1)]
            return sum(at.offset for at in group.load(wanted).values()) == 20

    options = {"tx__store": store, "tx__commitGroupId": f"{name}-g"}
    run_until(name, group_has_all, name="first", tx__id="one", **options)
    produce(name, [f"b{n}" for n in range(20)])

    found = run(
        name,
        "other",
        tx__id="two",
        tx__store=f"sqlite:///{tmp_path}/other.db",
        tx__commitGroupId=f"{name}-g",
        startingOffsets="committed:error",
    )

    assert sorted(found) == texts("b", range(20))


def test_a_group_that_was_reset_is_never_read_and_is_written_again(
    run_until, kafka, topic, produce, store
):
    name = topic(1)
    partition = TopicPartition(name, 0)
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    settings = client_settings(servers, purpose="admin")
    with closing(GroupMirror(settings, f"{name}-g")) as group:

        def read_to(end):
            there = [partition]

            def is_at_the_end():
                return [at.offset for at in group.load(there).values()] == [end]

            options = {"tx__store": store, "tx__commitGroupId": f"{name}-g"}
            return run_until(name, is_at_the_end, tx__id=name, **options)

        produce(name, ["a"] * 5)
        assert read_to(5) == [b"a"] * 5
        # as kafka-consumer-groups --reset-offsets does
        group.store({partition: LogPosition(1, None)})
        produce(name, ["b"] * 3)

        assert read_to(8) == [b"b"] * 3


def test_a_batch_read_from_committed_sees_what_a_stream_has_not_done(
    run, spark, kafka, topic, produce, store
):
    name = topic(1)
    produce(name, ["a"] * 5)
    run(name, tx__id="job", tx__store=store)
    produce(name, ["b"] * 3)

    rest = reader(
        spark,
        kafka.bootstrap_servers,
        streaming=False,
        subscribe=name,
        tx__id="job",
        tx__store=store,
        startingOffsets="committed",
    ).load()

    assert [bytes(row.value) for row in rest.collect()] == [b"b"] * 3


@pytest.mark.all
def test_the_newest_entry_of_the_commit_log_may_be_lost(
    run, topic, produce, store, tmp_path
):
    name = topic(1)
    produce(name, [f"a{n}" for n in range(6)])
    options = {"tx__id": "paimon", "tx__store": store, "maxOffsetsPerTrigger": "3"}
    first = run(name, **options)
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink()

    again = run(name, **options)

    ledger = Ledger(SqlStore(store, "paimon"))
    assert sorted(first) == texts("a", range(6))
    assert sorted(again) == texts("a", range(3, 6))  # the same batch, the same txid
    assert ledger.load().txid == 2
    ledger.close()


@pytest.mark.all
def test_an_older_checkpoint_is_refused_and_the_store_may_decide(
    run, topic, produce, store
):
    name = topic(1)
    for age in "abc":
        produce(name, [age] * 4)
        run(name, "old" if age == "a" else "new", tx__id="older", tx__store=store)

    with pytest.raises(StreamingQueryException, match="KAFKA_TX_CHECKPOINT_DISAGREES"):
        run(name, "old", tx__id="older", tx__store=store)
    produce(name, ["d"] * 4)
    found = run(
        name, "old", tx__id="older", tx__store=store, tx__onDisagreement="store"
    )

    assert found == [b"d"] * 4


def test_a_replay_whose_records_are_gone_stops_in_transactional_mode(
    run, topic, produce, kafka, store
):
    name = topic(1)
    produce(name, ["a"] * 8)
    plan_only(store, name, kafka)
    kafka.delete_records(name, {0: 3})

    with pytest.raises(
        StreamingQueryException, match=r"KAFKA_TX_REPLAY_IMPOSSIBLE.*\[0, 8\)"
    ):
        run(name, tx__id="gone", tx__store=store)


def test_a_replay_in_opaque_mode_reads_what_is_left(run, topic, produce, kafka, store):
    name = topic(1)
    produce(name, [f"a{n}" for n in range(8)])
    plan_only(store, name, kafka, "opaque")
    kafka.delete_records(name, {0: 3})

    found = run(name, tx__id="gone", tx__store=store, tx__mode="opaque")

    assert sorted(found) == texts("a", range(3, 8))


def test_a_replay_of_a_topic_that_was_compacted_holds_what_is_left(
    run, topic, produce, kafka, store
):
    """Holes are no loss: what is gone was replaced by newer records of its keys."""
    name = topic(1)
    produce(name, [Record(f"a{n}", key=f"k{n % 3}") for n in range(9)])
    plan_only(store, name, kafka)
    kafka.alter_topic(
        name,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "100",
            "delete.retention.ms": "0",
        },
    )
    newest = [Record(f"b{n}", key=f"k{n}") for n in range(3)]
    produce(name, newest)

    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    planned = KafkaRangeReader(client_settings(servers, purpose="consumer"))

    def is_compacted():
        produce(name, [Record("c", key="c")])  # the newest segment is never compacted
        return not list(planned.read(OffsetRange(TopicPartition(name, 0), 0, 9)))

    wait_for(is_compacted)
    found = run(name, tx__id="gone", tx__store=store)

    ledger = Ledger(SqlStore(store, "gone"))
    assert ledger.load().txid == 2
    ledger.close()
    assert [value for value in found if value != b"c"] == [b"b0", b"b1", b"b2"]


def plan_only(store, name, kafka, mode="transactional"):
    """Leave transaction 1 planned and unfinished, as a crash would."""
    from kafka_tx import assembly
    from kafka_tx.options.source import parse_source
    from kafka_tx.source.transactional import TransactionalMicroBatches

    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "tx.id": "gone",
        "tx.mode": mode,
        "tx.store": store,
    }
    config = parse_source(options, streaming=True)
    assert config.transactions is not None
    batches = TransactionalMicroBatches(
        config,
        config.transactions,
        assembly.cluster_view(config),
        assembly.SystemClock(),
        assembly.ledger(config.transactions),
    )
    batches.latest(batches.initial(), everything=True)
    batches.let_go()  # else bounded runs listen for it
    batches.close()


def test_a_second_query_with_the_same_id_takes_over(
    spark, kafka, topic, produce, store, tmp_path
):
    name = topic(1)
    options = {"subscribe": name, "tx__id": "twice", "tx__store": store}
    queries = []
    try:
        for n in range(2):
            made = Run(spark, kafka.bootstrap_servers, **options)
            writer = made._writer.option("checkpointLocation", str(tmp_path / str(n)))
            queries.append(writer.start())
            wait_for(lambda owner=n + 1: epoch(store) == owner)
            produce(name, [f"v{n}"])
            wait_for(lambda m=made, want=n: f"v{want}".encode() in m.values)
        produce(name, ["last"])

        with pytest.raises(StreamingQueryException, match="KAFKA_TX_FENCED"):
            queries[0].awaitTermination(PATIENT_S)
        assert queries[1].isActive
    finally:
        for query in queries:
            query.stop()


def epoch(store):
    opened = SqlStore(store, "twice")
    try:
        return opened.epoch()
    finally:
        opened.close()


def wait_for(claim, within_s=PATIENT_S):
    deadline = time.monotonic() + within_s
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.1)
