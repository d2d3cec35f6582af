"""The status page of real jobs says what their store says, also after errors."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kafka_tx
from integration.cluster.waiting import wait_until
from integration.reading import reader
from integration.topologies.tally import ending
from kafka_tx import assembly
from kafka_tx.transactions.ledger import Ledger
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

        wait_until(f"the page says {texts} of {id_}", said, timeout_s=60)

    def draws(self, id_: str, what: str) -> None:
        def drawn() -> bool:
            assert self.job(id_).locator(what).count(), self.job(id_).inner_text()
            return True

        wait_until(f"the page draws {what} of {id_}", drawn, timeout_s=60)


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


def committed_txid(place: Path) -> int:
    store = assembly.open_store(f"sqlite:///{place}/query.db", QUERY)
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
    jobs.handle.process_all_available(60)

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
