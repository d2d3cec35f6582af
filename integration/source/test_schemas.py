"""Records with a schema, on a real registry: typed columns, evolution, bad records."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID, uuid4

import fastavro
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import kafka_tx
from integration.bounded import DeadError, read_out
from integration.cluster.proxied import proxies_to
from integration.cluster.records import Record
from integration.cluster.registry import PATH, SchemaRegistry
from integration.cluster.running import running
from integration.cluster.versions import AVRO
from integration.consuming import committed_records
from integration.log_ends import log_ends
from integration.pausing import Life, kill_when_paused
from integration.reading import reader
from integration.sizes import in_all
from integration.source import evolving_job
from integration.source.evolving_job import (
    ORDERS,
    PARTITIONS,
    POINTS,
    Sinks,
    arguments,
    had_part,
    look,
    seen,
    writer,
)
from integration.topologies import tally
from kafka_tx import OpaqueMap
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.options.formats import fixed_option
from kafka_tx.options.source import parse_source
from kafka_tx.schemas.defaults import number
from kafka_tx.schemas.readers import reader_schema
from kafka_tx.schemas.registry import close_registries
from kafka_tx.spark.source.ranges import read_range
from tests.told_registry import told as told

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"], "default": None},
        {
            "name": "amount",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
NEWER = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "vip", "type": "boolean", "default": True}],
}
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def order(number: int, **more):
    return {
        "id": number,
        "user": None if number % 2 else f"u{number}",
        "amount": Decimal(number).scaleb(-2),
        "at": AT,
        "tags": ["a"] * (number % 3),
        **more,
    }


def framed(schema, schema_id, value):
    made = BytesIO()
    fastavro.schemaless_writer(
        made, fastavro.parse_schema(json.loads(json.dumps(schema))), value
    )
    return b"\0" + schema_id.to_bytes(4, "big") + made.getvalue()


@pytest.fixture(scope="module")
def registry():
    with running(SchemaRegistry()) as server:
        yield server


@pytest.fixture
def options(registry):
    return {"value__format": "avro", "schema__registry__url": registry.url}


@pytest.fixture
def rows(spark, kafka):
    """The rows of a batch read, in the order of their offsets."""

    def read(topic, *columns, **options):
        df = reader(
            spark, kafka.bootstrap_servers, streaming=False, subscribe=topic, **options
        )
        return df.load().orderBy("offset").select(*columns or ["value"]).collect()

    return read


@pytest.fixture
def with_id(spark, kafka, tmp_path):
    """A stream of a topic with the topic's name as its id."""

    def stream(topic, **options):
        given = {"tx__id": topic, "tx__store": f"sqlite:///{tmp_path}/store.db"}
        servers = kafka.bootstrap_servers
        return reader(spark, servers, subscribe=topic, **given, **options)

    return stream


def test_values_are_typed_and_older_records_are_resolved(
    rows, registry, topic, produce, options
):
    name = topic()
    old = registry.register(f"{name}-value", ORDER)
    new = registry.register(f"{name}-value", NEWER)
    produce(
        name,
        [
            framed(ORDER, old, order(1)),
            framed(NEWER, new, order(2, vip=False)),
            None,
            framed(ORDER, old, order(3)),
        ],
    )

    found = rows(name, "value.*", "value", **options)

    assert [row.id for row in found] == [1, 2, None, 3]
    assert [row.vip for row in found] == [True, False, None, True]
    assert [row.user for row in found] == [None, "u2", None, None]
    assert found[1].amount == Decimal("0.02")
    assert found[1].tags == ["a", "a"]
    assert found[0].at.astimezone(UTC) == AT
    assert [row.value is None for row in found] == [False, False, True, False]


def test_the_types_are_those_of_from_avro(spark, kafka, registry, topic, options):
    """Those of another line of Spark than 4.2 are in the same table of the docs."""
    if AVRO is None:
        pytest.skip("Spark's functions for Avro are no jar of this line")
    name = topic()
    kinds = {
        "date": "int",
        "time-millis": "int",
        "time-micros": "long",
        "timestamp-millis": "long",
        "timestamp-micros": "long",
        "timestamp-nanos": "long",
        "local-timestamp-millis": "long",
        "local-timestamp-micros": "long",
        "local-timestamp-nanos": "long",
        "uuid": "string",
    }
    fields = [
        {
            "name": logical.replace("-", "_"),
            "type": {"type": kind, "logicalType": logical},
        }
        for logical, kind in kinds.items()
    ]
    plain = ("boolean", "int", "long", "float", "double", "bytes", "string")
    fields += [{"name": f"f_{kind}", "type": kind} for kind in plain]
    fields += [
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "enum", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        {"name": "map", "type": {"type": "map", "values": ["null", "int"]}},
        {
            "name": "uuid_fixed",
            "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        },
        {
            "name": "decimal",
            "type": {
                "type": "fixed",
                "name": "D",
                "size": 8,
                "logicalType": "decimal",
                "precision": 18,
                "scale": 4,
            },
        },
        {"name": "nothing", "type": "null"},
        {"name": "empty", "type": {"type": "record", "name": "None", "fields": []}},
    ]
    schema = {"type": "record", "name": "All", "fields": [*ORDER["fields"], *fields]}
    registry.register(f"{name}-value", schema)
    from pyspark.sql.avro.functions import from_avro

    column = from_avro(F.lit(b""), json.dumps(schema)).alias("value")
    wanted = spark.range(1).select(column).schema["value"].dataType

    found = reader(
        spark, kafka.bootstrap_servers, streaming=False, subscribe=name, **options
    )

    df = found.load()
    theirs = wanted.simpleString().replace("time_micros:time(6)", "time_micros:bigint")
    assert df.schema["value"].dataType.simpleString() == theirs
    assert df.collect() == []


def read_in_task(servers, topic, options):
    """The rows of partition 0 as a task reads them, without Spark."""
    given = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    for each in parse_source(given, streaming=True).formats:
        given |= fixed_option(each.side, reader_schema(each))
    config = parse_source(given, streaming=True)
    end = log_ends(servers, topic)[0]
    wanted = OffsetRange(TopicPartition(topic, 0), 0, end)
    try:
        found = list(read_range(config, wanted))
    finally:
        close_registries()
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", ["python", "native"])
def test_both_readers_give_typed_rows(
    kafka, registry, topic, produce, options, monkeypatch, kind
):
    monkeypatch.setenv("KAFKA_TX_READER", kind)
    name = topic()
    old = registry.register(f"{name}-value", ORDER)
    new = registry.register(f"{name}-value", NEWER)
    records = [
        framed(
            *((NEWER, new, order(n, vip=False)) if n % 2 else (ORDER, old, order(n)))
        )
        for n in range(200)
    ]
    produce(name, [Record(value, headers=[("h", b"x")]) for value in records])

    found = read_in_task(kafka.bootstrap_servers, name, options)

    assert [row["value"]["id"] for row in found] == list(range(200))
    assert [row["value"]["vip"] for row in found] == [n % 2 == 0 for n in range(200)]
    assert list(found[0])[-1] == "timestampType"


def test_records_of_confluents_own_serializer_are_read(
    rows, registry, topic, produce, options
):
    """Keys, too, which are text there and no record."""
    name = topic()
    text = json.dumps(ORDER)
    values = AvroSerializer(registry.client, text)
    keys = AvroSerializer(registry.client, '"string"')
    key = keys("k", SerializationContext(name, MessageField.KEY))
    value = values(order(4), SerializationContext(name, MessageField.VALUE))
    produce(name, [Record(value, key=key)])

    (row,) = rows(name, "key", "value.id", key__format="avro", **options)

    assert row == ("k", 4)


def test_a_schema_as_text_needs_no_registry(rows, topic, produce, tmp_path):
    name = topic()
    produce(name, [number(n) for n in range(3)])
    path = tmp_path / "number.avsc"
    path.write_text('"long"')

    for schema in ('"long"', f"@{path}"):
        found = rows(name, value__format="avro", value__schema=schema)
        assert [row.value for row in found] == [0, 1, 2]


def test_fail_fast_stops_the_query_and_names_the_record(
    rows, registry, topic, produce, options
):
    name = topic()
    good = framed(ORDER, registry.register(f"{name}-value", ORDER), order(1))
    produce(name, [good, b'{"id": 1}', good])

    with pytest.raises(PySparkException) as raised:
        rows(name, **options)

    text = str(raised.value)
    assert "KAFKA_TX_RECORD_FORMAT" in text
    assert f"the value of offset 1 of {name}-0 cannot be decoded" in text
    assert "value.mode=PERMISSIVE" in text


@pytest.mark.all
def test_broken_records_are_dead_letters_with_their_bytes(
    kafka, registry, topic, produce, options, with_id, tmp_path
):
    name, letters = topic(), topic(name="letters")
    number_of = registry.register(f"{name}-value", ORDER)
    good = framed(ORDER, number_of, order(1))
    broken = [b"no schema", good[:-1], good + b"!", framed(ORDER, 4_000_000, order(1))]
    broken.append(b"\x01 as a UUID begins")
    produce(name, [Record(value, key="k") for value in (good, *broken, None, good)])
    taken: list[int] = []

    def take(df, attempt):
        taken.extend(
            row.id for row in df.where("value IS NOT NULL").select("value.id").collect()
        )
        bad = df.where("value_error IS NOT NULL")
        return bad.withColumn("reason", F.col("value_error"))

    source = with_id(name, value__mode="PERMISSIVE", **options)
    made = source.load().writeStream.foreachBatch(
        kafka_tx.with_dead_letters(take, letters)
    )
    read_out(made.option("checkpointLocation", str(tmp_path / "checkpoint")))

    found = committed_records(kafka.bootstrap_servers, letters)
    assert taken == [1, 1]
    assert [record.value for record in found] == broken
    reasons = [str(record.headers) for record in found]
    assert "names no schema" in reasons[0]
    assert "the bytes end within the value" in reasons[1]
    assert "bytes are left after the value" in reasons[2]
    assert "has no id 4000000" in reasons[3]
    assert "or no such ids at all" in reasons[4]


def test_what_is_written_is_read_by_confluents_own_deserializer(
    spark, kafka, registry, topic, rows, options
):
    """And by the source: every type comes back."""
    name = topic()
    orders = [order(n) for n in range(3)]
    kind = (
        "value struct<id:long, user:string, amount:decimal(9,2), at:timestamp,"
        " tags:array<string>>"
    )
    df = spark.createDataFrame([(each,) for each in orders], kind)
    given = {name.replace("__", "."): value for name, value in options.items()}

    (
        df.write.format("kafka_tx")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", name)
        .option("value.schema", json.dumps(ORDER))
        .option("auto.register.schemas", "true")
        .options(**given)
        .mode("append")
        .save()
    )

    read = AvroDeserializer(registry.client)
    context = SerializationContext(name, MessageField.VALUE)
    records = committed_records(kafka.bootstrap_servers, name)
    found = [read(record.value, context) for record in records]
    assert sorted(found, key=lambda each: each["id"]) == orders
    typed = rows(name, "value.*", **options)
    assert sorted(row.amount for row in typed) == [each["amount"] for each in orders]


@pytest.mark.all
def test_a_stream_writes_what_it_has_read(
    kafka, registry, topic, produce, rows, options, with_id, tmp_path
):
    """Typed in, typed out, under another subject, once for each record."""
    name, copy = topic(), topic(name="copy")
    known = registry.register(f"{name}-value", ORDER)
    registry.register(f"{copy}-value", ORDER)
    orders = [order(n) for n in range(5)]
    produce(name, [framed(ORDER, known, each) for each in orders])
    given = {name.replace("__", "."): value for name, value in options.items()}
    source = with_id(name, **options)

    written = (
        source.load()
        .select("value")
        .writeStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", copy)
        .option("tx.id", copy)
        .options(**given)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    read_out(written)

    options["kafka__isolation__level"] = "read_committed"
    assert rows(copy, "value.*", **options) == rows(name, "value.*", **options)
    assert len(rows(copy, **options)) == len(orders)


# --- what is refused when a query is made ---------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"value.format": "avor"},
            "option 'value.format' is 'avor'; legal: bytes, avro",
        ),
        ({"value.format": "avro"}, "there is no 'schema.registry.url'"),
        ({"value.schema": "latest"}, "has no effect without value.format=avro"),
        ({"schema.registry.url": "http://r"}, "no effect without value.format=avro"),
        ({"value.format": "avro", "value.schema": "last"}, "legal: latest, a version"),
        (
            {"value.format": "avro", "schema.registry.timeout": "3"},
            "needs option 'schema.registry.url'",
        ),
        (
            {"value.format": "avro", "schema.registry.url": "registry:8081"},
            "begin with http:// or https://",
        ),
        (
            {
                "value.format": "avro",
                "value.mode": "DROPMALFORMED",
                "schema.registry.url": "http://r",
            },
            "legal: failfast, permissive",
        ),
        (
            {
                "value.format": "avro",
                "value.subject.name.strategy": "RecordNameStrategy",
                "schema.registry.url": "http://r",
            },
            "needs option 'value.record.name'",
        ),
        (
            {"value.format": "avro", "value.schema": "@/no/such/file"},
            "the file of option 'value.schema' cannot be read",
        ),
        (
            {"value.format": "avro", "value.schema": '["int", "string"]'},
            "a union of int, string; legal: null and one other type",
        ),
    ],
)
def test_options_that_give_no_schema_are_refused(spark, given, said):
    options = {"kafka.bootstrap.servers": "localhost:9", "subscribe": "a", **given}

    with pytest.raises(PySparkException) as raised:
        spark.readStream.format("kafka_tx").options(**options).load()

    assert said in str(raised.value)


def test_an_empty_registry_and_subjects_of_other_kinds_are_refused(
    spark, kafka, registry, topic, options
):
    name = topic()
    source = reader(spark, kafka.bootstrap_servers, subscribe=name, **options)
    with pytest.raises(PySparkException, match=f"has no subject '{name}-value'"):
        source.load()

    kind = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
    registry.register(f"{name}-value", kind, kind="JSON")
    with pytest.raises(PySparkException, match="is of the type JSON; legal: AVRO"):
        source.load()


# --- one batch, two versions of a schema ----------------------------------------------


class OpaqueSink(Sinks):
    """Counts them in a map that undoes."""

    def __init__(self, work):
        self.work, self.behind = work, lambda: None
        self.map = OpaqueMap(f"sqlite:///{work}/opaque.db", "counts")

    def __call__(self, df, attempt):
        look(df, self.work)
        text = df.select(F.col("value.id").cast("string").alias("value"))
        kafka_tx.update_map(text, attempt, self.map, key="value", reducer="count")
        self.behind()

    def counts(self):
        counts = self.map.to_arrow().to_pylist()
        return [{row["key"]: row["value"] for row in counts}]


class Evolving:
    """A job over a topic whose schema changes between two of its starts."""

    def __init__(self, kafka, registry, topic, produce, work):
        self.name, self.out = topic(PARTITIONS), topic(PARTITIONS, name="out")
        self.work, self._servers = work, kafka.bootstrap_servers
        self._registry, self._produce = registry, produce
        work.mkdir(exist_ok=True)

    def write(self, schema, *orders):
        """Register the schema as the latest one; records of it, in all partitions."""
        known = self._registry.register(f"{self.name}-value", schema)
        records = [
            Record(framed(schema, known, each), partition=n % PARTITIONS)
            for n, each in enumerate(orders)
        ]
        self._produce(self.name, records)

    def words(self, checkpoint="one"):
        return (
            *("--servers", self._servers, "--registry", self._registry.url),
            *("--topic", self.name, "--out", self.out, "--checkpoint", checkpoint),
        )

    def sinks(self, spark):
        return Sinks(self.work, self.out, self._servers, spark)

    def run(self, spark, sinks, checkpoint="one", **more):
        given = ("--work", str(self.work), "--point", "none", *self.words(checkpoint))
        read_out(writer(spark, arguments(given), sinks, **more))

    def dies(self, spark, sinks, **more):
        """A run whose driver dies behind the sinks, before Spark's commit log."""
        sinks.behind = dead
        with pytest.raises(StreamingQueryException, match="DeadError"):
            self.run(spark, sinks, **more)
        sinks.behind = lambda: None

    def check(self, sinks, first=2):
        """Each id counts once, and the unfinished batch has the columns of its plan."""
        newer = first + 1
        older = [(n, None) for n in range(1, newer)]
        assert seen(self.work) == [older, [(newer, False)]]
        wanted = {str(n): 1 for n in range(1, newer + 1)}
        assert all(found == wanted for found in sinks.counts())


def dead():
    raise DeadError


@pytest.fixture
def evolving(kafka, registry, topic, produce, tmp_path):
    return Evolving(kafka, registry, topic, produce, tmp_path)


@pytest.mark.parametrize("checkpoint", ["one", *in_all("two")])
def test_a_replay_is_decoded_as_it_was_planned(spark, evolving, checkpoint):
    """A newer schema comes between the sinks' commits and Spark's commit log."""
    evolving.write(ORDER, order(1), order(2))
    sinks = evolving.sinks(spark)
    evolving.dies(spark, sinks)
    evolving.write(NEWER, order(3, vip=False))

    evolving.run(spark, sinks, checkpoint)

    evolving.check(sinks)


def test_an_opaque_replay_is_decoded_as_it_was_planned(spark, evolving, tmp_path):
    sinks = OpaqueSink(tmp_path)
    evolving.write(ORDER, order(1), order(2))
    evolving.dies(spark, sinks, tx__mode="opaque")
    evolving.write(NEWER, order(3, vip=False))

    evolving.run(spark, sinks, tx__mode="opaque")

    evolving.check(sinks)


KILLS = [[(point, name) for name in ("one", "two")] for point in POINTS]
"""The jobs of each driver: with the checkpoint and without."""


@pytest.mark.all
@pytest.mark.parametrize("cases", KILLS)
def test_a_killed_driver_replays_under_a_newer_schema_as_it_was_planned(
    spark, kafka, registry, topic, produce, tmp_path, python, cases
):
    """SIGKILL behind the plan and in the middle of the sinks; then the schema changes.

    The batch is finished under the newer ``latest``, in each sink once.
    """
    jobs = [
        Evolving(kafka, registry, topic, produce, tmp_path / "-".join(each))
        for each in cases
    ]
    lives = []
    for (point, _), job in zip(cases, jobs, strict=True):
        job.write(ORDER, *map(order, range(1, ORDERS + 1)))
        words = (*job.words(), "--point", point)
        lives.append(Life(evolving_job.__name__, job.work, words))
    kill_when_paused(lives, python)
    for (point, _), job in zip(cases, jobs, strict=True):
        assert "part" not in point or had_part(job.work)
        job.write(NEWER, order(ORDERS + 1, vip=False))

    for (_, checkpoint), job in zip(cases, jobs, strict=True):
        sinks = job.sinks(spark)
        job.run(spark, sinks, checkpoint)
        job.check(sinks, ORDERS)


# --- topologies -----------------------------------------------------------------------

KEPT: list[tuple[Any, ...]] = []
"""What bolts on the driver were given."""


class KeepRow(kafka_tx.BasicBolt):
    def execute(self, row, collector):
        KEPT.append((row.id, row.vip))


class KeepBatch(kafka_tx.Committer, kafka_tx.BatchBolt):
    def prepare(self, context, collector):
        self.rows = []

    def execute(self, row):
        self.rows.append((row.id, row.vip, row.value_error, row.value_bytes))

    def finish_batch(self):
        KEPT.extend(self.rows)


@pytest.fixture
def kept():
    KEPT.clear()
    yield KEPT
    KEPT.clear()


@pytest.fixture
def mixed(registry, topic, produce):
    """Two versions, a tombstone, an id in a header, and a record that is cut."""
    name = topic()
    old = registry.register(f"{name}-value", ORDER)
    new = registry.register(f"{name}-value", NEWER)
    whole = framed(NEWER, new, order(3, vip=False))
    records = [
        framed(ORDER, old, order(1)),
        None,
        framed(NEWER, new, order(2, vip=False)),
        Record(whole[5:], headers=[("__value_schema_id", whole[:5])]),
        Record(whole[:-1], key="k", headers=[("h", b"x")]),
        framed(ORDER, old, order(4)),
    ]
    produce(name, records)
    return name, records[4]


def test_a_broken_record_of_a_spout_fails_alone_and_is_buried_whole(
    spark, kafka, registry, topic, mixed, kept, tmp_path
):
    (name, broken), dead = mixed, topic()
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=name,
        scheme=kafka_tx.AvroScheme(
            subject=f"{name}-value", registry={"schema.registry.url": registry.url}
        ),
        dead_letter_topic=dead,
        retry_limit=1,
    )
    builder = kafka_tx.TopologyBuilder("typed")
    builder.set_spout("spout", kafka_tx.KafkaSpout(config))
    builder.set_bolt("keep", KeepRow()).shuffle_grouping("spout").on_driver()
    handle = builder.build().start(spark, {"tx.store": f"sqlite:///{tmp_path}/o.db"})
    with tally.ending(handle):
        assert handle.process_all_available(120)

    assert sorted(kept) == [(1, True), (2, False), (3, False), (4, True)]
    (letter,) = committed_records(kafka.bootstrap_servers, dead)
    assert (letter.key, letter.value) == (b"k", broken.value)
    headers: Any = letter.headers
    assert headers[0] == ("h", b"x")
    assert "the bytes end within the value" in str(headers)


def test_rows_of_a_transactional_spout_are_typed(
    spark, kafka, registry, mixed, kept, tmp_path
):
    name, broken = mixed
    spout = kafka_tx.TransactionalKafkaSpout(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": name,
            "startingOffsets": "earliest",
        },
        scheme=kafka_tx.AvroScheme(
            subject=f"{name}-value",
            registry={"schema.registry.url": registry.url},
            mode="PERMISSIVE",
        ),
    )
    builder = kafka_tx.TransactionalTopologyBuilder(name, "spout", spout)
    keep = builder.set_committer_bolt("keep", KeepBatch())
    keep.global_grouping("spout").on_driver()

    tally.run_out(
        builder.build().start(spark, {"tx.store": f"sqlite:///{tmp_path}/o.db"})
    )

    reason = next(row[2] for row in kept if row[3])
    assert reason.endswith("the bytes end within the value")
    whole = [(n, vip, None, None) for n, vip in ((1, True), (2, False), (3, False))]
    assert kept == [*whole, (None, None, reason, broken.value), (4, True, None, None)]


def test_records_of_newer_producers_name_their_schema_by_a_uuid(
    spark, kafka, topic, produce, told
):
    """In a header, from Confluent's own serializer. Apicurio's API has no such ids."""
    name, guid = topic(), str(uuid4())
    known = {"schema": json.dumps(ORDER), "id": 8, "guid": guid, "version": 1}
    told.answers[f"/subjects/{name}-value/versions"] = [(200, known)]
    told.answers[f"/schemas/guids/{guid}"] = [(200, known)]
    told.version(f"{name}-value", "latest", 9, json.dumps(NEWER))
    values = AvroSerializer(
        SchemaRegistryClient({"url": told.url}),
        json.dumps(ORDER),
        conf={"schema.id.serializer": header_schema_id_serializer},
    )
    headers: list[Any] = []
    context = SerializationContext(name, MessageField.VALUE, headers)
    produce(name, [Record(values(order(4), context), headers=headers)])

    source = reader(
        spark,
        kafka.bootstrap_servers,
        streaming=False,
        subscribe=name,
        value__format="avro",
        schema__registry__url=told.url,
    )

    assert headers[0][1] == b"\x01" + UUID(guid).bytes
    assert source.load().select("value.id", "value.vip").collect() == [(4, True)]
    assert f"/schemas/guids/{guid}" in told.paths()


# --- a registry with faults -----------------------------------------------------------


def test_a_registry_that_is_away_is_waited_for(
    kafka, registry, topic, produce, options
):
    """Tasks ask for the writer's schema; the reader's was found before."""
    name = topic()
    number_of = registry.register(f"{name}-value", ORDER)
    registry.register(f"{name}-value", NEWER)
    produce(name, [framed(ORDER, number_of, order(1))])
    with proxies_to(registry.port) as (proxy,):
        url = f"http://{proxy.address}{PATH}"
        given = {"value__format": "avro", "schema__registry__url": url}
        proxy.cut()
        healing = threading.Timer(1.0, proxy.heal)
        healing.start()
        try:
            found = read_in_task(kafka.bootstrap_servers, name, given)
        finally:
            healing.join()
            proxy.heal()

    assert [row["value"]["id"] for row in found] == [1]
