"""A job goes back to Spark's own source, and to a consumer, as docs/leaving.md says.

Each job leaves something unfinished, and partitions that it has never read. The places
of records (topic, partition, offset) tell what is lost and what comes again.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from confluent_kafka import Consumer, KafkaError
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

import kafka_tx
from integration.bounded import DeadError, read_out
from integration.cluster.jars import class_path
from integration.cluster.java import java
from integration.cluster.topics import fresh_name
from integration.cluster.versions import KAFKA_JARS, KAFKA_TOOLS_JARS
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.operations.handover_bolts import Places, places
from integration.sizes import in_all
from integration.topologies.spout_job import Work, done, failures, topology
from kafka_tx.cli.main import app
from kafka_tx.errors import ComponentError
from kafka_tx.testing import QUICK_JAVA

GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
FIRST, LATER = 30, 20
"""Records of each partition: those of the first run, and of the one that is left."""


class Handover:
    """A job's topics, where it was stopped, and the readers that take them over."""

    def __init__(self, spark, kafka, produce, work, topics):
        self.spark, self.kafka, self.work = spark, kafka, work
        self._produce, self.topics = produce, topics

    def fill(self, count):
        """So many more records in partitions 0 and 1 of each topic."""
        for name in self.topics:
            for partition in (0, 1):
                self._produce(name, ["v"] * count, partition=partition)

    def add_partition(self):
        """One that the job never reads, with records."""
        self.kafka.add_partitions(self.topics[0], 3)
        self._produce(self.topics[0], ["v"] * 5, partition=2)

    @property
    def options(self):
        """Of a source that reads the topics."""
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "subscribe": ",".join(self.topics),
        }

    def shown(self, form, store, name):
        """Offsets of an id, and the notes about them."""
        place = ["offsets", "show", "--store", store, "--id", name, "--format", form]
        brokers = ["--bootstrap-servers", self.kafka.bootstrap_servers]
        topics = [word for topic in self.topics for word in ("--topic", topic)]
        shown = CliRunner().invoke(app, [*place, *brokers, *topics])
        assert shown.exit_code == 0, shown.output
        return shown.stdout, shown.stderr

    def by_spark(self, offsets):
        """What Spark's own source reads from these ``startingOffsets``."""
        found: list[tuple[str, int, int]] = []

        def take(df, batch_id):
            rows = df.select("topic", "partition", "offset").collect()
            found.extend(map(tuple, rows))

        source = self.spark.readStream.format("kafka").options(**self.options)
        writer = source.option("startingOffsets", offsets).load().writeStream
        writer = writer.option("checkpointLocation", f"{self.work}/{fresh_name('cp')}")
        read_out(writer.foreachBatch(take))
        return found

    def by_consumer(self, offsets):
        """What a consumer reads whose group got these offsets by Kafka's tool."""
        group, file = fresh_name("plain"), self.work / "offsets.csv"
        file.write_text(offsets)
        self._set_group(group, file)
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        consumer.subscribe(self.topics)
        found, unread = [], set(map(tuple, self._partitions()))
        try:
            while unread:
                message = consumer.poll(30)
                assert message is not None, unread
                at = message.topic(), message.partition()
                error = message.error()
                if error is None:
                    found.append((*at, message.offset()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(at)
        finally:
            consumer.close()
        return found

    def _partitions(self):
        return [(name, number) for name in self.topics for number in (0, 1)] + [
            (self.topics[0], 2)
        ]

    def _set_group(self, group, file):
        jars = f"{class_path(KAFKA_TOOLS_JARS)}:{class_path(KAFKA_JARS)}"
        servers = self.kafka.bootstrap_servers
        address = ["--bootstrap-server", servers, "--group", group]
        what = ["--reset-offsets", "--from-file", str(file), "--execute"]
        ran = subprocess.run(
            [java(), *QUICK_JAVA, "-cp", jars, GROUP_TOOL, *address, *what],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.work,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "Error" not in ran.stdout, ran.stdout

    def check(self, store, name, processed, again, knows_runs=True):
        """No record is lost, and those that come again are named, as far as known."""
        everything = {
            *((t, p, o) for t in self.topics for p in (0, 1) for o in self._offsets()),
            *((self.topics[0], 2, o) for o in range(5)),
        }
        assert processed < everything
        for form, read in (("spark", self.by_spark), ("group", self.by_consumer)):
            offsets, notes = self.shown(form, store, name)
            found = read(offsets)
            assert len(found) == len(set(found))
            assert processed | set(found) == everything, "lost"
            assert processed & set(found) == again
            assert again <= named(notes) or not knows_runs, notes

    def _offsets(self):
        return range(FIRST + LATER)


def named(notes):
    """The places that notes say come again."""
    found, partition = set(), ("", 0)
    for at in re.finditer(r"(\S+)-(\d+)(?=:| \[)|\[(\d+), (\d+)\)", notes):
        if at[1]:
            partition = at[1], int(at[2])
        else:
            found |= {(*partition, n) for n in range(int(at[3]), int(at[4]))}
    return found


@pytest.fixture
def handover(spark, kafka, topic, produce, tmp_path, sparks_own):
    made = Handover(spark, kafka, produce, tmp_path, [topic(2), topic(2)])
    made.fill(FIRST)
    return made


def tail_of(job):
    """The places of the records that came before the end of the last run."""
    return {
        (name, partition, offset)
        for name in job.topics
        for partition in (0, 1)
        for offset in range(FIRST, FIRST + LATER)
    }


@pytest.mark.all
@pytest.mark.parametrize(
    "where", ["sqlite", pytest.param("postgresql", marks=pytest.mark.all)]
)
@pytest.mark.parametrize(
    "mode", ["transactional", pytest.param("opaque", marks=pytest.mark.all)]
)
def test_a_query_goes_back_with_a_batch_that_its_sink_holds(
    handover, request, tmp_path, where, mode
):
    store = f"sqlite:///{tmp_path}/store.db"
    if where == "postgresql":
        store = request.getfixturevalue("postgresql")
    processed: set[tuple[str, int, int]] = set()
    options = {**handover.options, "startingOffsets": "earliest"}
    options |= {"tx.id": "leaves", "tx.store": store, "tx.mode": mode}

    def run(*, dies):
        def save(df, attempt):
            processed.update(map(tuple, df.collect()))
            if dies:
                raise DeadError

        source = handover.spark.readStream.format("kafka_tx").options(**options).load()
        places = source.select("topic", "partition", "offset").writeStream
        read_out(
            places.foreachBatch(kafka_tx.for_each_transaction(save)).option(
                "checkpointLocation", f"{tmp_path}/checkpoint"
            )
        )

    run(dies=False)
    handover.fill(LATER)
    with pytest.raises(StreamingQueryException, match="DeadError"):
        run(dies=True)
    handover.add_partition()

    handover.check(store, "leaves", processed, again=tail_of(handover))


@pytest.mark.all
def test_a_transactional_topology_goes_back_from_zookeeper(
    handover, zookeeper, tmp_path
):
    store = f"zookeeper://{zookeeper.hosts}/{fresh_name('leaves')}"
    spout = kafka_tx.TransactionalKafkaSpout(
        {**handover.options, "startingOffsets": "earliest"},
        scheme=kafka_tx.MetadataScheme(),
    )
    builder = kafka_tx.TransactionalTopologyBuilder("leaves", "orders", spout)
    builder.set_committer_bolt("places", Places(str(tmp_path))).global_grouping(
        "orders"
    )
    built = builder.build()

    handle = built.start(handover.spark, {"tx.store": store})
    assert handle.process_all_available(180)
    handle.stop()
    (tmp_path / "dies").touch()
    handover.fill(LATER)
    handle = built.start(handover.spark, {"tx.store": store})
    with pytest.raises(ComponentError, match="died here"):
        handle.awaitTermination(PATIENT_S)
    handover.add_partition()

    held = places(tmp_path)
    handover.check(store, "leaves", held, again=tail_of(handover) & held)


@pytest.mark.all
@pytest.mark.parametrize(
    "kind",
    ["sqlite", *in_all("kafka:", "zookeeper")],
)
def test_an_at_least_once_topology_goes_back_with_a_record_that_fails(
    handover, request, tmp_path, kind
):
    """Records above the one that waits for its retry are completed already."""
    handover.fill(LATER)
    handover.topics = handover.topics[:1]
    (name,) = handover.topics
    group, poison = fresh_name("leaves"), (0, 5)
    store = {"sqlite": f"sqlite:///{tmp_path}/offsets.db", "kafka:": kind}.get(kind)
    if store is None:
        hosts = request.getfixturevalue("zookeeper").hosts
        store = f"zookeeper://{hosts}/{fresh_name('leaves')}"
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(handover.kafka.bootstrap_servers),
        topic=name,
        id=group,
        store=store,
        scheme=kafka_tx.MetadataScheme(),
        retry_initial_delay_ms=600_000,
    )
    built = topology(config, Work(str(tmp_path), poison=(poison,)))

    handle = built.start(handover.spark, {"tx.chunkRecords": 100})
    everything = {(p, o) for p in (0, 1) for o in range(FIRST + LATER)}
    try:
        wait_until("the others", lambda: done(tmp_path) == everything - {poison})
        wait_until("the failure", lambda: failures(tmp_path)[poison])
        wait_until("the answers", lambda: handle.status.pending == 1)
    finally:
        handle.stop(finish=False)
    handover.add_partition()

    processed = {(name, *at) for at in done(tmp_path)}
    above = {(name, 0, offset) for offset in range(6, FIRST + LATER)}
    knows_runs = kind != "zookeeper"
    handover.check(store, group, processed, again=above, knows_runs=knows_runs)


@pytest.mark.all
def test_spark_refuses_offsets_that_miss_a_partition(handover, tmp_path):
    """So nobody loses the records of a partition by leaving it out."""
    name = handover.topics[0]
    offsets = json.dumps({name: {"0": 3}, handover.topics[1]: {"0": 0, "1": 0}})

    with pytest.raises(StreamingQueryException, match="must specify all TopicPart"):
        handover.by_spark(offsets)
