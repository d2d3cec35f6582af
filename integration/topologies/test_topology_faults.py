"""Topologies on real parts: code that raises anything, leaders that come back.

Logs that lose their end are here, too.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import kafka_tx
from integration.cluster.records import Produce
from integration.cluster.segments import lose_end, segment
from integration.cluster.topics import spread_topic
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.log_ends import log_ends
from integration.reading import Run
from integration.sizes import EVERYTHING, in_all
from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import ComponentError, DataLossError, OffsetOutOfRangeError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.group_offsets import KafkaGroupOffsetStore
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import Assigned, Earliest, OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader
from kafka_tx.options.source import parse_source
from kafka_tx.spark.source.batch import KafkaTxBatchReader
from kafka_tx.spark.source.stream import KafkaTxStreamReader


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("cannot travel")
        self.lock = threading.Lock()


class Odd(kafka_tx.BasicBolt):
    """Does to a record what the record asks for."""

    fields = "n bigint"

    def execute(self, row: Any, collector: Any) -> None:
        match row.str[:4]:
            case "exit":
                sys.exit(7)
            case "word":
                raise UnspeakableError
            case "lock":
                raise UnpicklableError
            case "type":
                collector.emit(("no number",))
            case "half":
                raise kafka_tx.FailedException("half a pair: \ud800")
            case "long":
                raise kafka_tx.FailedException("x" * 3_000_000)
            case "huge":
                raise kafka_tx.FailedException("too large for its grave")
            case _:
                pass
        collector.emit((1,) * (1 + row.str.count(",")))


class Nothing(kafka_tx.BasicBolt):
    """In the task of the bolt above; rows come to it as they are."""

    def execute(self, row: Any, collector: Any) -> None:
        pass


def test_whatever_a_record_makes_a_bolt_raise_or_emit_only_that_record_fails(
    spark, kafka, topic, produce, tmp_path
):
    odd = ["exit", "word", "lock", "type", "half", "long", "many,2"]
    odd.append("huge" + "!" * 30_000)
    name, dead = topic(1), topic(1, config={"max.message.bytes": "10000"})
    produce(name, [f"v{n}" for n in range(20)] + odd + ["v"] * 5)
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.StringScheme(),
        retry_limit=0,
        dead_letter_topic=dead,
    )
    builder = kafka_tx.TopologyBuilder(f"odd-{name}")
    builder.set_spout("spout", kafka_tx.KafkaSpout(config))
    builder.set_bolt("odd", Odd).shuffle_grouping("spout")
    builder.set_bolt("end", Nothing).shuffle_grouping("odd")
    handle = builder.build().start(spark, {"tx.store": f"sqlite:///{tmp_path}/o.db"})
    try:
        assert handle.process_all_available(PATIENT_S)
        status = handle.status
        cut = handle.metrics.samples()["kafka_tx_cut_dead_letter_records_total"]
    finally:
        handle.stop()

    assert (status.completed, status.failed, status.dead_letters) == (33, 8, 8)
    found = dead_letters(kafka.bootstrap_servers, dead)
    assert set(found) == set(range(20, 28))
    assert [found[20 + n][0] for n in range(7)] == odd[:7]
    assert found[27][0] is None
    assert found[27][1]["bytes"] == "30004"
    assert sum(v[-1] for v in cut.values()) == 1
    errors = [found[offset][1]["error"] for offset in sorted(found)]
    assert all(error.startswith("odd: ") for error in errors), errors
    assert all(len(error.encode()) <= 4_096 for error in errors)
    for text, error in zip(
        ("SystemExit", "Unspeakable", "travel"), errors, strict=False
    ):
        assert text in error, error


def dead_letters(
    servers: str, topic: str
) -> dict[int, tuple[str | None, dict[str, str]]]:
    """Value and our headers of every dead letter, by the offset of its record."""
    partition = TopicPartition(topic, 0)
    config = SourceConfig(
        subscription=Assigned((partition,)),
        kafka={"bootstrap.servers": servers},
        start=Earliest(),
    )
    wanted = OffsetRange(partition, 0, log_ends(servers, topic)[0])
    found = {}
    reader = assembly.range_reader(replace(config, include_headers=True))
    for batch in reader.read(wanted):
        for row in batch.to_pylist():
            about = {
                h["key"].removeprefix("kafka_tx."): h["value"].decode()
                for h in row["headers"]
            }
            value = row["value"]
            text = None if value is None else value.decode()
            found[int(about["offset"])] = text, about
    return found


class Raise(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Ends as it was told to."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def prepare(self, context: Any, collector: Any) -> None:
        pass

    def execute(self, row: Any) -> None:
        pass

    def finish_batch(self) -> None:
        raise self.kind


@pytest.mark.parametrize("kind", [SystemExit, *in_all(asyncio.CancelledError)])
def test_a_driver_committer_that_raises_more_than_exceptions_is_named(spark, kind):
    spout = kafka_tx.MemoryTransactionalSpout([[(1,)]], "n bigint", 1)
    builder = kafka_tx.TransactionalTopologyBuilder("exits", "spout", spout)
    builder.set_bolt("sum", Raise(kind)).global_grouping("spout")
    handle = builder.build().start(spark, {"tx.store": "memory:"})

    with pytest.raises(ComponentError, match="sum") as caught:
        handle.awaitTermination(PATIENT_S)
    assert (caught.value.component, caught.value.txid) == ("sum", 1)
    assert kind.__name__ in str(caught.value)


class Late(kafka_tx.BasicBolt):
    """Is late with the first try at the first batch."""

    fields = "n bigint"

    def __init__(self, place: str) -> None:
        self.mark = Path(place) / "was-late"

    def prepare(self, context: Any) -> None:
        self.is_first = context.attempt.txid == 1

    def execute(self, row: Any, collector: Any) -> None:
        if self.is_first and not self.mark.exists():
            self.mark.touch()
            time.sleep(60)
        collector.emit((row.n,))


@pytest.mark.all
def test_batches_that_time_out_and_those_after_them_are_told_apart(spark, tmp_path):
    spout = kafka_tx.MemoryTransactionalSpout([[(n,) for n in range(4)]], "n bigint", 1)
    builder = kafka_tx.TransactionalTopologyBuilder("late", "spout", spout)
    builder.set_bolt("late", Late(str(tmp_path))).shuffle_grouping("spout")
    settings = {"tx.store": "memory:", "tx.timeoutMs": 4_000, "tx.maxPending": 2}
    handle = builder.build().start(spark, settings)
    try:
        assert handle.process_all_available(PATIENT_S)
        samples = handle.metrics.samples()["kafka_tx_batches_total"]
    finally:
        handle.stop()

    counts = {key[-1]: value[-1] for key, value in samples.items()}
    assert counts["timed_out"] >= 1
    assert counts["cancelled"] >= 1
    assert counts["committed"] == 4


# --- partitions ---


class Note(kafka_tx.BasicBolt):
    """Writes down each record; a file can make it fail the ones named ``wait``."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def prepare(self, context: Any) -> None:
        self.txid = context.attempt.txid

    def execute(self, row: Any, collector: Any) -> None:
        place = Path(self.place)
        if row.str == "wait" and not (place / "waited").exists():
            (place / "waits").touch()
            while not (place / "go").exists():
                time.sleep(0.05)
            (place / "waited").touch()
            raise kafka_tx.FailedException("once more")
        with (place / "notes").open("a") as notes:
            notes.write(f"{self.txid} {row.str}\n")


def notes(place: Path, since: int = 1) -> list[str]:
    """The records of batches from a txid on."""
    lines = (line.split() for line in (place / "notes").read_text().splitlines())
    return sorted(text for txid, text in lines if int(txid) >= since)


def at_least_once(cluster: Any, name: str, place: Path) -> Any:
    place.mkdir(exist_ok=True)
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(cluster.bootstrap_servers, refresh_freq_secs=1),
        topic=name,
        id=f"{name}-records",
        scheme=kafka_tx.StringScheme(),
        state_update_interval_ms=100,
    )
    builder = kafka_tx.TopologyBuilder(f"{name}-records")
    builder.set_spout("spout", kafka_tx.KafkaSpout(config))
    builder.set_bolt("note", Note(place)).shuffle_grouping("spout")
    return builder.build()


def opaque(cluster: Any, name: str, place: Path) -> Any:
    place.mkdir(exist_ok=True)
    spout = kafka_tx.OpaqueTransactionalKafkaSpout(
        {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": name,
            "pollTimeoutMs": "3000",
        },
        refresh_ms=1_000,
    )
    builder = kafka_tx.TransactionalTopologyBuilder(name, "spout", spout, 2)
    builder.set_bolt("note", Note(place)).shuffle_grouping("spout")
    return builder.build()


@pytest.mark.all
def test_what_a_replay_left_out_is_read_when_its_leader_is_back(
    kafka_pair, spark, tmp_path
):
    name = spread_topic(kafka_pair)
    lost = 0 if kafka_pair.leader(name, 0) == 2 else 1
    send = Produce(kafka_pair.bootstrap_servers)
    send(name, ["wait"], partition=1 - lost)
    send(name, [f"v{n}" for n in range(10)], partition=lost)
    settings = {"tx.store": f"sqlite:///{tmp_path}/s.db", "tx.timeoutMs": 60_000}
    handle = opaque(kafka_pair, name, tmp_path).start(spark, settings)
    try:
        wait_until("the first try", (tmp_path / "waits").exists, timeout_s=PATIENT_S)
        kafka_pair.kill(2)
        try:
            (tmp_path / "go").touch()
            wait_until(
                "a batch without the partition",
                lambda: handle.status.committed_txid == 1,
                timeout_s=PATIENT_S,
                complain=handle.exception,
            )
        finally:
            kafka_pair.restart(2)
        assert handle.process_all_available(PATIENT_S)
    finally:
        handle.stop()

    assert notes(tmp_path, since=2) == [f"v{n}" for n in range(10)]


def elected(cluster: Any, name: str) -> int | None:
    """Who leads the only partition, after an unclean election if nobody did."""
    if cluster.leader(name, 0) is None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        wanted = [ClientPartition(name, 0)]
        admin.elect_leaders(ElectionType.UNCLEAN, wanted).result(60)
    leader: int | None = cluster.leader(name, 0)
    return leader


LosesEnd = Callable[[Any, str, Callable[[], None]], AbstractContextManager[None]]
"""A fault that takes from a topic of a cluster what the function writes there."""


@contextmanager
def power_cut(cluster: Any, name: str, before_it: Callable[[], None]) -> Iterator[None]:
    """The only broker had not yet written the end of the log to its disk.

    Brokers answer as after an unclean election: the leader has a new epoch.
    """
    (end,) = log_ends(cluster.bootstrap_servers, name).values()
    before_it()
    cluster.shut_down(1)
    lose_end(segment(cluster, name), end)
    cluster.restart(1)
    wait_until("it leads", lambda: cluster.leader(name, 0) == 1)
    yield


@contextmanager
def unclean_election(
    cluster: Any, name: str, before_it: Callable[[], None]
) -> Iterator[None]:
    """A follower leads that lacks what ``before_it`` writes.

    Brokers are shut down, not killed, so that nobody waits for their sessions' ends.
    The former leader comes back as a follower beside what is done in the context.
    """
    leader = cluster.leader(name, 0)
    (follower,) = set(cluster.brokers) - {leader}
    wait_until("both have all", lambda: len(cluster.in_sync(name, 0)) == 2)
    cluster.shut_down(follower)
    before_it()
    cluster.shut_down(leader)
    cluster.restart(follower)
    wait_until("it leads", lambda: elected(cluster, name) == follower)
    with ThreadPoolExecutor(1) as beside:
        healed = beside.submit(cluster.heal)
        yield
        healed.result()


class Queries:
    """Queries over one topic, a checkpoint for each mode.

    Only the opaque one runs in each run: ``tests/source`` has the others.
    """

    _modes = frozenset({"opaque", "transactional", ""} if EVERYTHING else {"opaque"})

    def __init__(self, spark: Any, servers: str, name: str, place: Path) -> None:
        self._spark, self._servers = spark, servers
        self._name, self._place = name, place

    def read(self, mode: str, **options: str) -> list[str]:
        """What the query of a mode reads from its checkpoint on."""
        if mode:
            store = f"sqlite:///{self._place}/queries.db"
            options |= {"tx__id": mode, "tx__store": store, "tx__mode": mode}
        run = Run(self._spark, self._servers, subscribe=self._name, **options)
        return sorted(map(bytes.decode, run.until_done(self._place / f"query{mode}")))

    def read_before(self, wanted: list[str]) -> None:
        for mode in self._modes:
            assert self.read(mode) == sorted(wanted)

    def go_on(self, wanted: list[str]) -> None:
        """They stop by name first, except in opaque batches."""
        for mode in self._modes - {"opaque"}:
            with pytest.raises(StreamingQueryException, match="30 to 20: its log"):
                self.read(mode)
        for mode in self._modes - {"transactional"}:
            assert self.read(mode, failOnDataLoss="false") == sorted(wanted)


def check_readers(servers: str, name: str) -> None:
    """What was planned of the log that was lost is read to its end, by both readers."""
    settings = client_settings({"bootstrap.servers": servers}, purpose="consumer")
    for kind in (NativeRangeReader, KafkaRangeReader):
        wanted = OffsetRange(TopicPartition(name, 0), 15, 30, None, 0)
        with pytest.raises(OffsetOutOfRangeError, match="from offset 20 on") as error:
            list(kind(settings).read(wanted))
        assert error.value.fields["log_end"] == 20
        (left,) = kind(settings).read(wanted.between(15, 20))
        (others,) = kind(settings).read(replace(wanted, leader_epoch=None))
        assert (left.num_rows, others.num_rows) == (5, 15)


def commit_to_group(servers: str, name: str, offset: int) -> None:
    """As an ordinary consumer that has read so far, with its leader epoch."""
    settings = {"bootstrap.servers": servers, "group.id": name}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([ClientPartition(name, 0, offset - 1)])
        (record,) = consumer.consume(1, PATIENT_S)
        consumer.commit(message=record, asynchronous=False)


def check_starts_from_group(servers: str, name: str) -> None:
    """What the group's consumer had read is gone; others have its offsets now."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": name,
        "kafka.group.id": name,
        "startingOffsets": "committed",
    }
    planner = KafkaTxStreamReader(options)
    spout = kafka_tx.OpaqueTransactionalKafkaSpout(options | {"failOnDataLoss": "true"})
    for start in (
        lambda: planner.latestOffset(planner.initialOffset(), ReadAllAvailable()),
        lambda: spout.initialize_transaction(1, None),
        lambda: KafkaTxBatchReader(parse_source(options, streaming=False)).partitions(),
    ):
        with pytest.raises(DataLossError, match="from 30 to 20"):
            start()
    store = KafkaGroupOffsetStore(
        client_settings({"bootstrap.servers": servers}, purpose="admin"), name
    )
    with closing(store):
        (found,) = store.load([TopicPartition(name, 0)]).values()
    assert (found.offset, found.leader_epoch) == (30, 0)


def skipped(handle: Any) -> float:
    samples = handle.metrics.samples()["kafka_tx_skipped_offsets_total"]
    return float(sum(value[-1] for value in samples.values()))


def test_records_that_take_the_offsets_of_lost_ones_are_read_and_nothing_twice(
    mortal_kafka, spark, tmp_path
):
    check_lost_end(mortal_kafka, spark, tmp_path, power_cut)


@pytest.mark.all
def test_the_same_where_another_broker_leads(kafka_pair, spark, tmp_path):
    check_lost_end(kafka_pair, spark, tmp_path, unclean_election)


def check_lost_end(
    cluster: Any, spark: Any, tmp_path: Path, loses_end: LosesEnd
) -> None:
    """The log is longer than the one before when the jobs look again."""
    name = f"cut-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 1, replication=len(cluster.brokers))
    numbered, records = tmp_path / "numbered", tmp_path / "records"
    words = list[str]()
    settings = {"tx.store": f"sqlite:///{tmp_path}/s.db"}
    queries = Queries(spark, cluster.bootstrap_servers, name, tmp_path)
    handles = [
        opaque(cluster, name, numbered).start(spark, settings),
        at_least_once(cluster, name, records).start(spark, settings),
    ]

    def write_and_process(*more: str) -> None:
        send = Produce(cluster.bootstrap_servers)  # one that wrote what is lost fails
        send(name, more, partition=0)
        words.extend(more)
        for handle in handles:
            assert handle.process_all_available(PATIENT_S), handle.status
        assert notes(numbered) == notes(records) == sorted(words)

    def write_what_is_lost() -> None:
        write_and_process(*(f"b{n}" for n in range(10)))
        queries.read_before(words)
        commit_to_group(cluster.bootstrap_servers, name, 30)

    try:
        write_and_process(*(f"a{n}" for n in range(20)))
        with loses_end(cluster, name, write_what_is_lost):
            others = [f"c{n}" for n in range(15)]
            write_and_process(*others)
            assert [skipped(handle) for handle in handles] == [10, 10]
            queries.go_on(others)
            check_readers(cluster.bootstrap_servers, name)
            check_starts_from_group(cluster.bootstrap_servers, name)
    finally:
        for handle in handles:
            handle.stop(finish=False)
