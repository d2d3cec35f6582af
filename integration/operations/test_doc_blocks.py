"""Every Python block of README and ``docs/`` runs as it stands, on a real broker.

Stand-ins are given for addresses, paths and names of topics only, and ``spark`` is the
reader's session.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sqlite3
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

import kafka_tx
from integration.attachments import closed_attachments
from integration.capabilities import LAKE, need
from integration.cluster.records import Record
from integration.cluster.spark_local import delta_session
from integration.cluster.waiting import PATIENT_S, wait_until
from kafka_tx.cli.main import app
from kafka_tx.kafka.tokens import token_of
from kafka_tx.logs import event_log
from kafka_tx.schemas.defaults import number
from tests.doc_pages import DOCS, PAGES, blocks
from tests.told_registry import told as told

BLOCKS = [block for page in PAGES for block in blocks(page)]
KEYS = ["a", "b", "a", "c"] * 5
COUNTS = dict(Counter(KEYS))
KAFKA_COUNTS = {key.encode(): count for key, count in COUNTS.items()}
ODD_KEYS = [b"\xff", b"a\0b", b"x" * 9_600]
"""That no text could hold; README counts keys as Kafka has them."""


ORDER = json.dumps(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
        ],
    }
)


COUNT = json.dumps(
    {"type": "record", "name": "Count", "fields": [{"name": "n", "type": "long"}]}
)


class Shop(BaseHTTPRequestHandler):
    """Takes deliveries, but those that it refuses."""

    taken: Counter[bytes]
    refuses: set[bytes]

    def do_POST(self):
        order = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken[order] += order not in self.refuses
        self.send_response(500 if order in self.refuses else 204)
        self.end_headers()

    def log_message(self, *args):
        """Nothing."""


@pytest.fixture
def shop():
    """An address that takes deliveries, and what it took."""
    taken: Counter[bytes] = Counter()
    refuses: set[bytes] = set()
    handler = type("OurShop", (Shop,), {"taken": taken, "refuses": refuses})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", taken, refuses
    server.shutdown()
    thread.join()
    server.server_close()


class Reader:
    """Runs blocks, one after the other, as somebody does who tries them."""

    def __init__(self, spark, kafka, orders, shop, work, registry=""):
        self.spark = spark
        self.names = {"__name__": "__main__", "spark": spark}
        self.orders, self.work, self._kafka = orders, work, kafka
        self._stand_ins = {
            "broker:9092": kafka.bootstrap_servers,
            "shop:8080": shop,
            '"orders"': f'"{orders}"',
            "orders-": f"{orders}-",
            "postgresql+psycopg://host/jobs": f"sqlite:///{work}/jobs.db",
            "sqlite:////var/lib/jobs/": f"sqlite:///{work}/",
            "sqlite:///": f"sqlite:///{work}/",
            "postgresql+psycopg://jobs@database/jobs": f"sqlite:///{work}/jobs.db",
            "/checkpoints/": f"{work}/checkpoints/",
            "/shared/": f"{work}/shared/",
            "/var/lib/jobs/": f"{work}/jobs/",
            "http://registry:8081": registry,
        }

    def run(self, beginning):
        """The block in which this stands."""
        (block,) = (b for b in BLOCKS if beginning in b)
        pattern = "|".join(map(re.escape, self._stand_ins))
        text = re.sub(pattern, lambda found: self._stand_ins[found[0]], block)
        exec(compile(text, beginning, "exec"), self.names)

    def start(self, beginning):
        """The same, for one that waits at its end."""
        thread = threading.Thread(target=self.run, args=[beginning], daemon=True)
        thread.start()
        return thread

    def handle(self, name="handle"):
        """What a block that waits has started."""
        wait_until(f"there is a {name}", lambda: name in self.names)
        return self.names[name]

    def stop(self, thread, name="handle"):
        """Stop it: the block then ends."""
        self.handle(name).stop()
        del self.names[name]
        thread.join(180)
        assert not thread.is_alive()

    def end(self, thread, first=lambda query: None):
        """Do this, and stop a block's query."""
        first(self.handle("query"))
        self.stop(thread, "query")

    def stream(self, function, name):
        """All there is, through a function of a page."""
        query = (
            self.names["spark"]
            .readStream.format("kafka_tx")
            .option("kafka.bootstrap.servers", self._kafka.bootstrap_servers)
            .option("subscribe", self.orders)
            .option("startingOffsets", "earliest")
            .option("tx.id", name)
            .option("tx.store", f"sqlite:///{self.work}/{name}.db")
            .load()
            .writeStream.foreachBatch(kafka_tx.for_each_transaction(function))
            .option("checkpointLocation", f"{self.work}/{name}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def rows(self, table):
        """All rows of a table, without what kafka_tx keeps beside them."""
        with sqlite3.connect(self.work / "jobs.db") as database:
            return database.execute(f'SELECT * FROM "{table}"').fetchall()

    def written(self, topic, count):
        """Keys and values of committed records."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                "group.id": f"{topic}-looks",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        try:
            found = consumer.consume(count, timeout=PATIENT_S)
            pairs = ((m.key() or b"", m.value() or b"") for m in found)
            return Counter((key.decode(), value.decode()) for key, value in pairs)
        finally:
            consumer.close()


def all_of(query):
    query.processAllAvailable()


@pytest.fixture
def orders(kafka, topic, produce):
    """A topic with orders, and those that the blocks write to."""
    name = topic(2)
    for more in ("upper", "copy", "dead"):
        kafka.create_topic(f"{name}-{more}", 1)
    produce(name, [Record(str(n), key=key) for n, key in enumerate(KEYS)])
    return name


@pytest.fixture
def reader(spark, kafka, orders, shop, tmp_path):
    with closed_attachments(metrics_port=0):
        yield Reader(spark, kafka, orders, shop[0], tmp_path)


def test_orders_are_written_to_files(reader):
    thread = reader.start("# before: format")
    reader.end(thread, all_of)

    files = reader.spark.read.parquet(f"{reader.work}/shared/orders")
    assert files.count() == len(KEYS)


def test_orders_are_counted_once_by_the_script_with_tx_id(reader, produce, orders):
    produce(orders, [Record("x", key=key) for key in ODD_KEYS])
    thread = reader.start("def count(orders, attempt)")
    reader.end(thread, all_of)

    counted = reader.names["counts"].get([*KAFKA_COUNTS, *ODD_KEYS])
    assert counted == KAFKA_COUNTS | dict.fromkeys(ODD_KEYS, 1)


@pytest.mark.all
def test_both_topologies_go_on_with_the_names_of_that_script(reader, shop):
    reader.end(reader.start("def count(orders, attempt)"))
    thread = reader.start("class Sum(kafka_tx.Committer")
    reader.handle("topology")
    wait_until("all are counted", lambda: reader.names["total"].get() == len(KEYS))
    reader.stop(thread, "topology")
    thread = reader.start("class Deliver(kafka_tx.BasicBolt)")
    wait_until("all are delivered", lambda: len(shop[1]) == len(KEYS))
    reader.stop(thread, "topology")

    assert reader.names["total"].get() == len(KEYS)
    assert set(shop[1]) == {str(n).encode() for n in range(len(KEYS))}


def test_orders_are_counted_once(reader, produce, orders):
    reader.end(
        reader.start("def save(df, attempt)"), all_of
    )  # begins with what comes now
    produce(orders, [Record("x", key=key) for key in KEYS])
    reader.end(reader.start("def save(df, attempt)"), all_of)

    counts = reader.names["counts"]
    assert counts.get(list(KAFKA_COUNTS)) == KAFKA_COUNTS
    assert counts.last_attempt().txid == 2  # Spark began with an empty batch


def test_orders_go_on_with_sparks_source_and_with_a_consumer(
    reader, kafka, produce, sparks_own
):
    reader.end(reader.start("def count(orders, attempt)"), all_of)
    store = ["--store", f"sqlite:///{reader.work}/jobs.db", "--id", "order-counts"]
    brokers = ["--bootstrap-servers", kafka.bootstrap_servers]
    (reader.work / "shared").mkdir(exist_ok=True)
    for form, suffix in (("spark", "json"), ("group", "csv")):
        command = ["offsets", "show", *store, *brokers, "--format", form]
        shown = CliRunner().invoke(app, command)
        file = reader.work / f"shared/{reader.orders}-offsets.{suffix}"
        file.write_text(shown.stdout)
    produce(reader.orders, [Record("later")])
    reader.end(reader.start("def save_again(batch, batch_id)"), all_of)
    reader.run("csv.reader(file)")

    files = reader.spark.read.parquet(f"{reader.work}/shared/{reader.orders}-after")
    assert [bytes(row.value) for row in files.collect()] == [b"later"]
    group = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"{reader.orders}-plain",
        }
    )
    at = group.committed([TopicPartition(reader.orders, n) for n in (0, 1)])
    group.close()
    assert sum(each.offset for each in at) == len(KEYS)


def test_orders_become_files_once(reader):
    reader.run("def keep_files(df, attempt)")
    reader.run("kafka_tx.read_files(")
    reader.run("clean_files(")

    assert reader.names["orders"].count() == len(KEYS)
    assert reader.names["earlier"].count() <= len(KEYS)


def test_orders_become_lines_once(reader):
    reader.run("class JsonLines")
    reader.run("for_each_transaction(sink)")
    reader.run("class TestJsonLines")  # which tests/test_sink_suite.py runs

    files = (reader.work / "jobs").glob("*-as-lines/*.jsonl")
    lines = [line for file in files for line in file.read_text().splitlines()]
    found = [json.loads(line) for line in lines if '"attempt"' not in line]
    assert sorted(int(row["value"]) for row in found) == [*range(len(KEYS))]


def test_orders_are_copied_once(reader, topic):
    reader.run("def copy(df, attempt)")
    reader.stream(reader.names["copy"], "copy")

    found = reader.written(f"{reader.orders}-upper", len(KEYS))
    assert found == Counter((key, str(n)) for n, key in enumerate(KEYS))


def test_rejected_orders_become_letters_once(reader):
    thread = reader.start("def check(df, attempt)")
    try:
        found = reader.written(f"{reader.orders}-dead", 10)
    finally:
        reader.stop(thread, "query")

    assert found == Counter((key, str(n)) for n, key in enumerate(KEYS[:10]))


def test_a_bolt_writes_to_kafka(reader):
    thread = reader.start("KafkaBolt(brokers")
    try:
        found = reader.written(f"{reader.orders}-copy", len(KEYS))
    finally:
        reader.stop(thread)

    assert found == Counter((key, str(n)) for n, key in enumerate(KEYS))


def test_a_topology_counts_all(reader):
    thread = reader.start("class Sum(Committer, BatchBolt)")
    reader.handle()
    wait_until("all are counted", lambda: reader.names["total"].get() == len(KEYS))
    reader.stop(thread)

    assert reader.names["total"].get() == len(KEYS)


def test_each_order_is_delivered(reader, shop):
    thread = reader.start("class Deliver(BasicBolt)")
    try:
        wait_until("all are delivered", lambda: len(shop[1]) == len(KEYS))
    finally:
        reader.stop(thread)

    assert set(shop[1]) == {str(n).encode() for n in range(len(KEYS))}


@pytest.mark.all
def test_the_walk_with_dead_letters_delivers_them_after_the_repair(reader, shop, kafka):
    _, taken, refuses = shop
    refuses.add(b"7")
    thread = reader.start("class Deliver(BasicBolt)")
    try:
        dead = f"{reader.orders}-dead"
        assert len(reader.written(dead, 1)) == 1
        refuses.clear()
        command = ["dead-letters", "send", "--topic", dead, "--yes"]
        brokers = ["--bootstrap-servers", kafka.bootstrap_servers]
        assert CliRunner().invoke(app, [*command, *brokers]).exit_code == 0
        wait_until("the letter is delivered", lambda: taken[b"7"] == 1)
        wait_until("and all others", lambda: sum(taken.values()) == len(KEYS))
    finally:
        reader.stop(thread)

    assert set(taken.values()) == {1}


def test_amounts_add_up(reader):
    reader.run("def add(df, attempt)")
    reader.stream(reader.names["add"], "add")

    sums: Counter[str] = Counter()
    for n, key in enumerate(KEYS):
        sums[key] += n
    assert reader.names["totals"].get(COUNTS) == sums
    reader.names["totals"].close()


def test_json_is_decoded_and_bad_records_do_not_stop_the_query(reader, produce):
    values = ['{"customer": "ann", "amount": 2.5}', '{"customer": "bob"}', "no JSON"]
    produce(reader.orders, [Record(value) for value in values])
    reader.run("def keep(df, attempt)")
    reader.stream(reader.names["keep"], "keep")

    assert reader.rows("invoices") == [("ann", 2.5)]


def test_json_and_protobuf_of_a_registry_are_cut_as_the_page_says(spark):
    page = (DOCS / "schemas.md").read_text()
    cuts = re.findall(r'expr\("([^"]*substring[^"]*)"\)', page)
    record = spark.createDataFrame([(b"\0\0\0\0\7\0{}",)], "value binary")

    assert [tuple(record.selectExpr(*cuts).first())] == [("\0{}", b"{}")]


@pytest.fixture
def typed(spark, kafka, topic, produce, shop, tmp_path, told):
    """A reader of the page on schemas: the orders are Avro, and have a registry."""
    name = topic()
    for more in ("numbers", "copy", "dead"):
        kafka.create_topic(f"{name}-{more}", 1)
    told.schema(1, ORDER)
    told.version(f"{name}-value", "latest", 1, ORDER)
    told.version(f"{name}-copy-value", "latest", 2, COUNT)
    produce(name, [b"\0\0\0\0\1" + number(n) + b"\6ann" for n in range(3)])
    produce(f"{name}-numbers", [number(7)])
    return Reader(spark, kafka, name, shop[0], tmp_path, told.url)


@pytest.mark.all
def test_typed_orders_are_kept_and_numbers_copied(typed):
    reader = typed
    reader.end(reader.start("def keep_orders(df, attempt)"), all_of)
    reader.run("orders-numbers")
    reader.run("    numbers.select(")
    reader.run("def reject_broken(df, attempt)")
    reader.run("scheme=kafka_tx.AvroScheme(")

    assert sorted(reader.rows("typed_orders")) == [(n, "ann") for n in range(3)]
    copied = reader.written(f"{reader.orders}-copy", 1)
    assert list(copied) == [("", "\0\0\0\0\2\x0e")]
    assert [row.value.n for row in reader.names["numbers"].collect()] == [7]
    assert reader.names["config"].scheme.fields.names == ("id", "customer")


@pytest.mark.all
def test_each_window_is_reported_once(reader, produce):
    hour, now = 3_600_000, int(time.time() * 1000)
    earlier = (now - hour) // 60_000 * 60_000  # a window begins
    produce(reader.orders, [Record("then", timestamp_ms=earlier + n) for n in (0, 1)])
    thread = reader.start("def report(df, attempt)")
    all_of(reader.handle("query"))
    produce(reader.orders, [Record("next", timestamp_ms=now + hour)])
    reader.end(thread, all_of)

    counts = [count for _, count in sorted(reader.rows("orders_a_minute"))]
    assert sum(counts) == 2 + len(KEYS)
    assert counts[0] == 2


def test_a_token_comes_from_the_function_that_is_named(reader, monkeypatch):
    expires_ms = (time.time() + 900) * 1000
    signer = ModuleType("aws_msk_iam_sasl_signer")
    signer.__dict__["MSKAuthTokenProvider"] = SimpleNamespace(
        generate_auth_token=lambda region: (f"token for {region}", expires_ms)
    )
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    reader.run("def token():")
    jobs = ModuleType("jobs.msk")
    jobs.__dict__["token"] = reader.names["token"]
    monkeypatch.setitem(sys.modules, "jobs.msk", jobs)

    assert token_of("jobs.msk:token") == ("token for eu-west-1", expires_ms / 1000)


@pytest.mark.all
def test_orders_come_into_delta_tables_once(reader, spark, tmp_path):
    need(LAKE)
    lake = reader.names["spark"] = delta_session(spark)
    lake.sql(f"CREATE DATABASE sales LOCATION '{tmp_path}/sales'")
    lake.sql("CREATE TABLE sales.newest (key STRING, value STRING) USING delta")
    reader.run("def append(df, attempt)")
    try:
        for name in ("append", "upsert"):
            reader.stream(reader.names[name], name)
            shutil.rmtree(tmp_path / name)
            reader.stream(reader.names[name], name)

        orders = lake.table("sales.orders").collect()
        assert Counter(row.key for row in orders) == COUNTS
        newest = [row.key for row in lake.table("sales.newest").collect()]
        assert sorted(newest) == sorted(set(KEYS))
    finally:
        lake.sql("DROP DATABASE sales CASCADE")


@pytest.mark.all
def test_the_walk_with_a_delta_table_survives_its_checkpoint(reader, spark, produce):
    need(LAKE)
    reader.names["spark"] = delta_session(spark)
    reader.end(reader.start("def append_orders(df, attempt)"), all_of)
    (checkpoint,) = (reader.work / "shared/checkpoints").iterdir()
    shutil.rmtree(checkpoint)
    produce(reader.orders, [Record("more", key="d")])
    reader.end(reader.start("def append_orders(df, attempt)"), all_of)

    table = f"delta.`{reader.work}/shared/tables/sales`"
    keys = reader.names["spark"].sql(f"SELECT key FROM {table}").collect()
    assert Counter(row.key for row in keys) == COUNTS | {"d": 1}


def test_logs_become_json(reader, capfd):
    ours = logging.getLogger("kafka_tx")
    before = ours.handlers[:], ours.level
    try:
        reader.run("disable_existing_loggers")
        event_log("kafka_tx.pages").info("%s began", "it", id="orders", txid=7)
    finally:
        ours.handlers[:], ours.level = before

    (line,) = (x for x in capfd.readouterr().err.splitlines() if "it began" in x)
    said = json.loads(line)
    assert (said["id"], said["txid"], said["level"]) == ("orders", 7, "INFO")


def test_every_block_has_a_test():
    source = Path(__file__).read_text()
    ran = re.findall(r'reader\.(?:run|start)\((["\'].*?["\'])\)', source)
    assert all(any(eval(b) in block for b in ran) for block in BLOCKS)
