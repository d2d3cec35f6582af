"""Records that are damaged on a broker's disk: named, and left out as the text says.

Each topic has two partitions. The first has four batches of ten records, one of which
is damaged; the second is healthy.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from typer.testing import CliRunner

import kafka_tx
from integration.cluster import segments
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import PATIENT_S, wait_until
from integration.log_ends import log_ends
from integration.reading import Run, reader
from integration.sinks.test_sink_markers import Sink
from integration.sizes import in_all
from integration.topologies import spout_job, tally
from integration.topologies.topology_job import Trouble, kept, recount, topology
from kafka_tx.cli.main import app
from kafka_tx.errors import DamagedRecordsError, StateCorruptedError
from kafka_tx.kafka import damaged_records
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.dead_letter_form import headers_of
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.native.reader import NativeRangeReader
from kafka_tx.offsets.retry import BackOff
from kafka_tx.planned_topic import ReaderAround
from kafka_tx.running.at_least_once import poller
from kafka_tx.transactions.coordinator import pacing

BATCHES, EACH = 4, 10
SILENT_MS = 4_000
"""After so long brokers that answer without a record are not waited for."""
ALL = BATCHES * EACH


@pytest.fixture(scope="module")
def kafka(mortal_kafka, servers):
    if servers.name != "processes":
        pytest.skip("the log is a file of this machine")
    return mortal_kafka


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine may need longer than users should wait: not of Spark's workers."""
    monkeypatch.setattr(damaged_records, "_SEARCH_S", 60.0)


@pytest.fixture
def filled(kafka):
    """Make a topic as above; ``texts`` are the values of its first partition."""

    def make(compression="none", **config):
        name = fresh_name("damaged")
        kafka.create_topic(name, 2, config=config or None)
        put(kafka, name, 0, texts(), compression)
        put(kafka, name, 1, ["healthy"] * EACH, compression)
        return name

    return make


@pytest.fixture
def damage(kafka):
    """``segments.damage``, undone after the test: no broker starts with some of it."""
    whole: dict[Path, bytes] = {}

    def make(topic, batch, how):
        log = segments.segment(kafka, topic)
        whole.setdefault(log, log.read_bytes())
        segments.damage(log, batch, how)

    yield make
    for log, content in whole.items():
        with suppress(FileNotFoundError), log.open("r+b") as file:
            file.write(content)


def texts():
    return [f"value {number:02}" for number in range(ALL)]


def put(kafka, topic, partition, values, compression="none"):
    """Ten records a batch."""
    put_batches(
        kafka, topic, partition, EACH, values, **{"compression.type": compression}
    )


def put_batches(kafka, topic, partition, size, values, headers=None, **settings):
    producer = of_batches(kafka, size, **settings)
    for start in range(0, len(values), size):  # a queue is sent whole
        for each in values[start : start + size]:
            producer.produce(topic, each.encode(), partition=partition, headers=headers)
        wait_until_written(producer)


def of_batches(kafka, size, **settings):
    """A batch leaves when it is full, for a flush could send its first record alone."""
    full = {"linger.ms": "30000", "batch.num.messages": size, **settings}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, **full})


def wait_until_written(producer):
    wait_until("all are written", lambda: producer.poll(0.1) >= 0 == len(producer))


def around(kafka, kind, *left_out):
    options = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "any"}
    settings = client_settings(options, purpose="consumer")
    return ReaderAround(
        kind(settings, timeout_ms=SILENT_MS),
        left_out,
        lambda *at: damaged_records.end_of_damage(settings, *at),
    )


def values(read, topic, start=0, end=ALL):
    found = []
    for batch in read.read(OffsetRange(TopicPartition(topic, 0), start, end)):
        found += [value.decode() for value in batch.column("value").to_pylist()]
    return found


def option_of(text):
    """What the text of an error adds to the option skipOffsets."""
    (named,) = set(re.findall(r"add '(.*?)' to the option skipOffsets", text))
    return named


# --- reading ------------------------------------------------------------------------

NATIVE, PYTHON = NativeRangeReader, KafkaRangeReader
READERS = pytest.mark.parametrize("kind", [NATIVE, PYTHON])
DAMAGE = [
    *(("flipped", "none", batch) for batch in (0, 1, 3)),
    *(("flipped", "zstd", batch) for batch in (0, 1, 3)),
    *(("scrambled", compression, 2) for compression in ("lz4", "snappy", "zstd")),
    *(("scrambled", "gzip", 1), ("cut", "none", 1), ("cut", "none", 3)),
    *(("cut later", "none", 0), ("cut later", "none", 3)),
    *(("magic", "none", 1), ("magic", "none", 3), ("length", "none", 1)),
]
IN_EACH_RUN = [
    *((NATIVE, "flipped", "zstd", 0), (NATIVE, "scrambled", "gzip", 1)),
    *((NATIVE, "magic", "none", 1), (PYTHON, "flipped", "none", 1)),
    (PYTHON, "cut later", "none", 3),
]
CASES = [
    pytest.param(*case, marks=[] if case in IN_EACH_RUN else pytest.mark.all)
    for case in ((kind, *each) for kind in (NATIVE, PYTHON) for each in DAMAGE)
]


@pytest.mark.parametrize(("kind", "how", "compression", "batch"), CASES)
def test_damaged_records_are_named_and_left_out(
    kafka, filled, kind, how, compression, batch, damage
):
    name = filled(compression)
    damage(name, batch, how)
    first = batch * EACH + (how == "cut later")
    end = ALL if how == "length" else (batch + 1) * EACH
    healthy = texts()[:first] + texts()[end:]
    read = around(kafka, kind)

    with pytest.raises(DamagedRecordsError) as raised:
        values(read, name)

    error = raised.value
    assert (error.position, error.next_offset) == (first, end)
    assert f"at offset {first}" in error.message
    left_out = OffsetRange.of_option("skipOffsets", option_of(error.message))
    assert values(around(kafka, kind, left_out), name) == healthy
    if how != "magic":  # a range that begins in the middle of the damage
        with pytest.raises(DamagedRecordsError) as raised:
            values(read, name, first + 1)
        assert raised.value.position == first + 1
        assert raised.value.next_offset == end


@READERS
def test_damage_behind_the_last_hole_of_a_range_is_no_damage_of_it(
    kafka, filled, kind, damage
):
    """The client reports it in the same answer, before anything passes the hole."""
    name = fresh_name("damaged")
    kafka.create_topic(name, 1)
    producer = of_batches(kafka, EACH, **{"transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in texts()[:EACH]:
        producer.produce(name, value.encode(), partition=0)
    wait_until_written(producer)
    producer.commit_transaction(30)
    ends = partial(log_ends, kafka.bootstrap_servers, name)
    wait_until("the marker is written", lambda: ends()[0] == EACH + 1)
    put(kafka, name, 0, texts()[EACH:])
    damage(name, 2, "flipped")  # behind the records and their marker

    assert values(around(kafka, kind), name, 0, EACH + 1) == texts()[:EACH]


@READERS
def test_whole_batches_among_damaged_ones_stay_in(kafka, filled, kind, damage):
    name = filled()
    for batch in (0, 2):
        damage(name, batch, "flipped")
    left_out: list[OffsetRange] = []
    for _ in range(2):
        with pytest.raises(DamagedRecordsError) as raised:
            values(around(kafka, kind, *left_out), name)
        option = option_of(raised.value.message)
        left_out.append(OffsetRange.of_option("skipOffsets", option))

    assert [(each.start, each.end) for each in left_out] == [(0, 10), (20, 30)]
    healthy = texts()[10:20] + texts()[30:]
    assert values(around(kafka, kind, *left_out), name) == healthy


@pytest.mark.all
def test_a_broker_that_restarts_on_damage_gives_the_rest(kafka, filled, damage):
    name = filled()
    kafka.shut_down(1)
    damage(name, 1, "flipped")
    kafka.restart(1)

    with pytest.raises(DamagedRecordsError) as raised:
        values(around(kafka, NativeRangeReader), name)

    assert (raised.value.position, raised.value.next_offset) == (10, 20)
    assert values(around(kafka, NativeRangeReader), name, 20) == texts()[20:]


# --- the doors ----------------------------------------------------------------------


def test_a_query_stops_and_goes_on_with_the_option_under_its_checkpoint(
    spark, kafka, filled, tmp_path, damage
):
    name = filled()
    damage(name, 1, "flipped")
    given = {"subscribe": name, "tx__id": name, "tx__store": f"sqlite:///{tmp_path}/s"}
    servers = kafka.bootstrap_servers
    with pytest.raises(PySparkException, match="KAFKA_TX_DAMAGED_RECORDS") as stopped:
        Run(spark, servers, **given).until_done(tmp_path / "checkpoint")

    given["skipOffsets"] = option_of(str(stopped.value))
    found = Run(spark, servers, **given).until_done(tmp_path / "checkpoint")

    left = texts()[:10] + texts()[20:]
    assert sorted(map(bytes.decode, found)) == ["healthy"] * EACH + left


@pytest.mark.all
def test_a_batch_read_names_the_damage_and_reads_the_rest(spark, kafka, filled, damage):
    name = filled()
    damage(name, 3, "flipped")
    read = reader(spark, kafka.bootstrap_servers, streaming=False, subscribe=name)
    with pytest.raises(PySparkException, match="KAFKA_TX_DAMAGED_RECORDS") as stopped:
        read.load().count()

    read = read.option("skipOffsets", option_of(str(stopped.value)))

    assert read.load().count() == ALL


QUICK = BackOff(initial_delay_ms=200, multiplier=2, max_delay_ms=800, limit=3)


@pytest.mark.all
@pytest.mark.parametrize("mode", tally.MODES)
def test_a_transactional_topology_ends_after_some_tries(
    spark, kafka, filled, tmp_path, monkeypatch, mode, damage
):
    monkeypatch.setattr(f"{pacing.__name__}.OF_BATCHES", QUICK)
    name, sink = filled(), str(tmp_path / "sink.db")
    damage(name, 1, "flipped")

    def start(**more):
        well = Trouble(str(tmp_path))
        built = topology(kafka.bootstrap_servers, name, mode, sink, well, **more)
        return built.start(spark, {"tx.store": f"sqlite:///{tmp_path}/tx.db"})

    with (
        tally.ending(start()) as handle,
        pytest.raises(DamagedRecordsError) as stopped,
    ):
        handle.awaitTermination(PATIENT_S)
    assert handle.status.replays == QUICK.limit
    assert stopped.value.position == 10

    tally.run_out(start(skipOffsets=option_of(stopped.value.message)))

    left = [*range(10), *range(20, ALL)]
    assert kept(sink)[0] == (len(left), sum(left), sum(n * n for n in left))
    assert kept(sink)[1] == recount({1: EACH})[1]


STORES = ("sqlite:///{}/offsets.db", *in_all("kafka:", "memory:"))


@pytest.mark.parametrize("store", STORES)
def test_an_at_least_once_topology_reads_the_other_partitions_and_ends(
    spark, kafka, filled, tmp_path, monkeypatch, store, damage
):
    monkeypatch.setattr(f"{poller.__name__}.OF_PARTITIONS", QUICK)
    name, store = filled(), store.format(tmp_path)
    damage(name, 1, "flipped")
    put(kafka, name, 1, ["later"] * EACH)

    def start(**more):
        config = kafka_tx.SpoutConfig(
            hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
            topic=name,
            id=name,
            scheme=kafka_tx.MetadataScheme(),
            state_update_interval_ms=200,
            **more,
        )
        built = spout_job.topology(config, spout_job.Work(str(tmp_path)))
        return built.start(spark, {"tx.store": store})

    with (
        tally.ending(start()) as handle,
        pytest.raises(DamagedRecordsError) as stopped,
    ):
        handle.awaitTermination(PATIENT_S)
    healthy = {(1, offset) for offset in range(2 * EACH)}
    assert spout_job.done(tmp_path) == {(0, n) for n in range(10)} | healthy

    if store.startswith("sqlite"):  # the text has a command
        (command,) = re.findall(r"`kafka-tx (.*?)`", stopped.value.message)
        told = CliRunner().invoke(app, shlex.split(command))
        assert told.exit_code == 0, told.output
        tally.run_out(start())
    else:
        tally.run_out(start(skip_offsets=option_of(stopped.value.message)))

    left = {(0, n) for n in (*range(10), *range(20, ALL))}
    assert spout_job.done(tmp_path) == left | healthy


@pytest.mark.all
def test_damage_in_a_record_that_fails_ends_its_dead_letter_too(
    spark, kafka, filled, tmp_path, monkeypatch, damage
):
    monkeypatch.setattr(f"{poller.__name__}.OF_PARTITIONS", QUICK)
    name, dead = filled(), fresh_name("dead")
    kafka.create_topic(dead, 1)
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        id=name,
        scheme=kafka_tx.MetadataScheme(),
        retry_limit=1,
        retry_initial_delay_ms=3_000,
        dead_letter_topic=dead,
    )
    work = spout_job.Work(str(tmp_path), poison=((0, 12),))
    handle = spout_job.topology(config, work).start(
        spark, {"tx.store": f"sqlite:///{tmp_path}/offsets.db"}
    )
    with tally.ending(handle):
        wait_until("the first try", lambda: spout_job.failures(tmp_path)[0, 12])
        damage(name, 1, "flipped")
        with pytest.raises(DamagedRecordsError, match="kafka-tx skip") as stopped:
            handle.awaitTermination(PATIENT_S)
    assert stopped.value.position == 12


def test_damaged_dead_letters_hold_up_no_other(kafka, filled, damage):
    source, dead = filled(), fresh_name("dead")
    kafka.create_topic(dead, 1)
    headers = [*headers_of(source, 1, 0, "bad", 1)]
    letters = [f"letter {number}" for number in range(6)]
    put_batches(kafka, dead, 0, 2, letters, headers)
    damage(dead, 1, "flipped")
    markers = fresh_name("markers")

    def run(command, *more, markers=markers):
        servers = ["--bootstrap-servers", kafka.bootstrap_servers]
        given = ["dead-letters", command, "--topic", dead, *servers]
        return CliRunner().invoke(app, [*given, "--marker-topic", markers, *more])

    shown = run("show")
    assert shown.exit_code == 0, shown.output
    assert f"{dead}-0@2 to 3  cannot be read" in shown.output
    assert len(shown.output.splitlines()) == 5
    sent = run("send", "--yes")
    assert sent.exit_code == 1
    assert "sent back: 4, left: 2; 2 never can" in sent.output
    assert run("send", "--yes", "--skip-unusable").exit_code == 0
    assert run("show").output == ""
    damage(markers, 0, "flipped")
    put_batches(kafka, dead, 0, 1, ["another letter"], headers)
    refused = run("send", "--yes")
    assert "give another --marker-topic" in refused.output
    sent = run("send", "--yes", markers=fresh_name("markers"))
    assert "sent back: 1" in sent.output


def test_damaged_markers_stop_a_sink_and_name_the_way_out(kafka, filled, damage):
    sink = Sink(kafka, filled())
    sink.settle(1)
    assert sink.write(1)
    damage(sink.markers, 0, "flipped")
    with pytest.raises(StateCorruptedError, match=r"at offset 0.*another tx\.id"):
        sink.settle(2)

    sink.id, sink.markers = fresh_name("sink"), fresh_name("markers")

    sink.settle(2)
    assert sink.write(2)
