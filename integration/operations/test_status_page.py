"""The status page of real jobs says what their store says, also after errors."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

import kafka_tx
from integration.cluster.child import Child
from integration.cluster.jars import REPOSITORY
from integration.cluster.waiting import free_port, is_listening, wait_until
from integration.operations.hanging_job import hanging_query
from integration.operations.watching import watching
from integration.reading import reader
from integration.topologies.tally import ending
from kafka_tx import assembly
from kafka_tx.cli.main import app
from kafka_tx.transactions.ledger.ledger import Ledger
from tests.chromium import chromium

QUERY, TOPOLOGY = "order-counts", "invoice-totals"
WORKS_S = 0.15


class Flaky(kafka_tx.BasicBolt):
    """Fails each poisoned row once, as a sink that is away for a moment does."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def execute(self, row: Any, collector: Any) -> None:
        value = row.str
        mark = self.place / value
        if value.startswith("poison") and not mark.exists():
            mark.touch()
            raise kafka_tx.FailedException("the sink is away")


class Feed:
    """Writes into both topics until it is ended."""

    def __init__(self, produce: Any, orders: str, invoices: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(produce,))
        self._topics = orders, invoices

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self, produce: Any) -> None:
        orders, invoices = self._topics
        for round_ in count():
            produce(orders, ["v"] * 400)
            first = "v" if round_ % 10 else f"poison-{uuid.uuid4().hex[:8]}"
            produce(invoices, [first] + ["v"] * 99)
            if self._over.wait(0.25):
                return


class Page:
    """The status page in a browser."""

    def __init__(self, tab: Any) -> None:
        self.tab = tab

    def job(self, id_: str) -> Any:
        named = self.tab.locator(".name", has_text=id_)
        return self.tab.locator(".job").filter(has=named)

    def says(self, id_: str, *texts: str) -> None:
        def said() -> bool:
            shown = self.job(id_).inner_text()
            missing = [text for text in texts if text not in shown]
            assert not missing, f"{missing} not in {shown}"
            return True

        wait_until(f"the page says {texts} of {id_}", said)

    def draws(self, id_: str, what: str) -> None:
        def drawn() -> bool:
            assert self.job(id_).locator(what).count(), self.job(id_).inner_text()
            return True

        wait_until(f"the page draws {what} of {id_}", drawn)


@pytest.fixture(scope="module")
def attached(spark: Any) -> Iterator[Any]:
    found = kafka_tx.attach(spark, metrics_port=0)
    yield found
    found.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Any, attached: Any) -> Iterator[Page]:
    tab = browser.new_page()
    tab.goto(f"http://127.0.0.1:{attached.port}/")
    yield Page(tab)
    tab.close()


def query(
    spark: Any, kafka: Any, topic: str, place: Path, work: Callable[..., None]
) -> Any:
    made = reader(
        spark,
        kafka.bootstrap_servers,
        subscribe=topic,
        tx__id=QUERY,
        tx__store=f"sqlite:///{place}/query.db",
        maxOffsetsPerTrigger="500",
    )
    writer = made.load().writeStream.foreachBatch(work)
    return writer.option("checkpointLocation", f"{place}/checkpoint").start()


def topology(spark: Any, kafka: Any, topic: str, place: Path) -> Any:
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "maxOffsetsPerTrigger": 100,
    }
    spout = kafka_tx.TransactionalKafkaSpout(options, scheme=kafka_tx.MetadataScheme())
    builder = kafka_tx.TransactionalTopologyBuilder(TOPOLOGY, "spout", spout)
    builder.set_bolt("bolt", Flaky(place)).shuffle_grouping("spout")
    settings = {
        "tx.store": f"sqlite:///{place}/topology.db",
        "tx.retryMs": 50,
        "topology.max.spout.pending": 2,
        "user.apiKey": "s3cret",
    }
    return builder.build().start(spark, settings)


def committed_txid(place: Path, id_: str = QUERY) -> int:
    store = assembly.open_store(f"sqlite:///{place}/query.db", id_)
    try:
        return Ledger(store).load().txid
    finally:
        store.close()


class Work:
    """What the query does with a batch; it can be told to fail."""

    def __init__(self) -> None:
        self.fails = threading.Event()

    def __call__(self, batch: Any, _: int) -> None:
        if self.fails.is_set():
            raise ValueError("the table is locked")
        batch.count()
        time.sleep(WORKS_S)


@pytest.fixture
def jobs(spark, kafka, topic, tmp_path, attached) -> Iterator[Any]:
    """A query and a topology that run, and how to start the query again."""
    orders, invoices, work = topic(12), topic(4), Work()
    with ExitStack() as running:

        def start() -> Any:
            started = query(spark, kafka, orders, tmp_path, work)
            running.callback(started.stop)
            return started

        handle = topology(spark, kafka, invoices, tmp_path)
        running.enter_context(ending(handle))
        yield SimpleNamespace(
            topics=(orders, invoices), work=work, start=start, handle=handle
        )


@pytest.mark.all
def test_the_page_says_what_the_store_says_while_jobs_run_replay_and_fail(
    jobs, produce, tmp_path, page
):
    started = jobs.start()
    with Feed(produce, *jobs.topics):
        page.says(QUERY, "running", "source", "12 partitions of 1 topic")
        page.says(TOPOLOGY, "running", "transactional topology")
        page.draws(QUERY, "rect.open.processing")
        for mark in (".lost", ".again"):  # it failed, and was replayed
            page.draws(TOPOLOGY, mark)
    started.processAllAvailable()
    jobs.handle.process_all_available(180)

    txid = committed_txid(tmp_path)
    page.says(QUERY, f"txid {txid:,}", "idle", "Nothing in flight.")
    page.says(TOPOLOGY, f"txid {jobs.handle.status.committed_txid:,}", "idle")

    jobs.work.fails.set()
    produce(jobs.topics[0], ["v"])
    page.says(QUERY, "failed", "user", "ValueError: the table is locked")
    assert page.tab.locator(".name").first.inner_text() == QUERY
    shown = page.tab.content()
    assert "user.apiKey" in shown
    assert "s3cret" not in shown
    jobs.handle.stop()
    gone = page.job(TOPOLOGY)  # who stops it takes it off the page
    wait_until("the topology is shown no more", lambda: not gone.count())
    jobs.work.fails.clear()
    again = jobs.start()
    again.processAllAvailable()
    page.says(QUERY, f"txid {txid + 1:,}", "idle", "ValueError: the table is locked")
    again.stop()
    page.says(QUERY, "ended")


@pytest.mark.all
def test_the_page_says_to_which_store_an_id_has_moved(
    spark, kafka, topic, produce, tmp_path, page
):
    name = topic(1)
    produce(name, ["v"])
    start = partial(query, spark, kafka, name, tmp_path, Work())
    started = start()
    started.processAllAvailable()
    started.stop()
    here, there = f"sqlite:///{tmp_path}/query.db", f"sqlite:///{tmp_path}/there.db"
    copy = ["store", "copy", "--from", here, "--to", there, "--yes"]
    copied = CliRunner().invoke(app, copy)
    assert copied.exit_code == 0, copied.output

    with pytest.raises(StreamingQueryException, match="goes on there"):
        start().awaitTermination()

    page.says(QUERY, "failed", f"moved to {there}")


@contextmanager
def driver(place: Path, kafka: Any, topic: str, port: int) -> Iterator[None]:
    """A process of its own with ``hanging_job``; it is killed at the end."""
    job = [sys.executable, "-m", "integration.operations.hanging_job", str(place)]
    child = Child(
        [*job, kafka.bootstrap_servers, topic, str(port)],
        place / "log",
        directory=REPOSITORY,
        environment={"PYSPARK_PYTHON": sys.executable},
    )
    try:
        wait_until("the page is served", lambda: is_listening(port))
        yield
    finally:
        child.kill()


@pytest.mark.all
def test_page_and_alerts_tell_of_a_killed_process_its_replay_and_a_second_one(
    spark, kafka, topic, produce, tmp_path, browser, attached
):
    name, port, hangs = topic(1), free_port(), tmp_path / "hangs"
    produce(name, ["v"] * 30)
    hangs.touch()
    tab = browser.new_page()
    page, connection = Page(tab), tab.locator("#fresh")
    second = hanging_query(spark, kafka.bootstrap_servers, tmp_path, name)
    targets = f"127.0.0.1:{port}", f"127.0.0.1:{attached.port}"
    with closing(tab), watching(*targets, quick=True) as prometheus:

        def is_down() -> bool:
            return name in prometheus.alerting("KafkaTxDown")

        def two_owners() -> bool:
            return name in prometheus.alerting("KafkaTxTwoOwners")

        with driver(tmp_path, kafka, name, port):
            tab.goto(f"http://{targets[0]}/")
            page.says(name, "txid 1")
            page.draws(name, "rect.open.processing")
            wait_until("it is up", lambda: not is_down())
        gone = "The process does not answer."
        wait_until("the page says so", lambda: gone in connection.inner_text())
        assert "txid 1" in page.job(name).inner_text()  # the last state stays
        wait_until("the alert fires", is_down)

        hangs.unlink()
        with driver(tmp_path, kafka, name, port):
            page.says(name, "txid 3", "idle")
            assert gone not in connection.inner_text()
            wait_until("the alert has ended", lambda: not is_down())
            assert committed_txid(tmp_path, name) == 3
            started = second.start()
            wait_until("the second alert fires", two_owners)
        started.processAllAvailable()
        wait_until("the second alert has ended", lambda: not two_owners())
        started.stop()
