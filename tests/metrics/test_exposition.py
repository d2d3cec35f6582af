"""What a scrape gets to see of a registry."""

import gc
import gzip
import math
import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from threading import Event, Thread

import pytest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kafka_tx.metrics import MetricsRegistry, catalogue
from kafka_tx.metrics.exposition import exposition
from kafka_tx.model import LogBounds, TopicPartition
from tests.metrics.facts import ORDERS_0, ORDERS_1, batch
from tests.metrics.families import Families, prometheus

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_openmetrics_text_is_accepted_by_a_strict_parser(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch(bytes=1, phases_ms={"planning": 1.0}))
    registry.observe(
        "kafka_tx_fetch_duration_seconds", 0.2, id="job", topic="orders", partition="0"
    )

    text = exposition([registry], OPENMETRICS)[0].decode()

    found = {
        family.name: family.type for family in text_string_to_metric_families(text)
    }
    assert found["kafka_tx_records"] == "counter"
    assert found["kafka_tx_lag_seconds"] == "gauge"
    assert found["kafka_tx_fetch_duration_seconds"] == "histogram"
    assert found["kafka_tx_build"] == "info"


def test_label_values_with_quotes_and_line_ends_survive(
    registry: MetricsRegistry,
) -> None:
    odd = 'a "job"\n\\ called ä'
    registry.record_commit(batch(id=odd))

    text = exposition([registry], OPENMETRICS)[0].decode()

    ids = {
        sample.labels.get("id")
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert ids == {odd, None}


def test_every_metric_of_the_catalogue_can_be_exposed(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch(bytes=1, newest_ms=1))
    for metric in catalogue.ALL:
        labels = {label.name: (*label.values, "0")[0] for label in metric.labels}
        for method in (registry.add, registry.set, registry.observe):
            method(metric.name, 1.0, **labels)

    assert {family.name for family in Families(registry).collect()} == {
        metric.name.removesuffix("_total").removesuffix("_info")
        for metric in catalogue.ALL
    }


def test_versions_are_told(registry: MetricsRegistry) -> None:
    build = MetricsRegistry(spark_version="4.2.0").samples()["kafka_tx_build_info"]

    ((version, python, spark),) = build
    assert version
    assert python.startswith("3.")
    assert spark == "4.2.0"


def test_several_registries_are_shown_as_one(registry: MetricsRegistry) -> None:
    other = MetricsRegistry()
    registry.record_commit(batch())
    other.record_commit(batch(id="other"))
    other.record_commit(batch(id="job", txid=9))

    text, _ = exposition([registry, other], "")

    shown = {family.name: family for family in parse_text(text.decode())}
    txids = {s.labels["id"]: s.value for s in shown["kafka_tx_committed_txid"].samples}
    assert txids == {"job": 9, "other": 7}
    assert len(shown["kafka_tx_build_info"].samples) == 1


def test_failed_measurements_of_all_registries_count(registry: MetricsRegistry) -> None:
    other = MetricsRegistry()
    for _ in range(3):
        registry.add("kafka_tx_records_total", -1, id="job")

    for order in [registry, other], [other, registry], [registry, registry]:
        text, _ = exposition(order, "")
        count = 3.0 * order.count(registry)
        assert f"\nkafka_tx_metric_failures_total {count}\n" in text.decode()


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_the_text_is_that_of_prometheus_client(
    registry: MetricsRegistry, accept: str
) -> None:
    registry.record_commit(batch(bytes=1, phases_ms={"planning": 3}))
    registry.add("kafka_tx_stops_total", id='q"u\\o\nte', reason="user")
    registry.set("kafka_tx_current_txid", math.inf, id="endless")
    registry.set("kafka_tx_current_txid", 12345678.5, id="large")
    registry.observe(
        "kafka_tx_fetch_duration_seconds", 0.02, id="job", topic="t", partition="0"
    )
    encode, content_type = choose_encoder(accept)

    text, found_type = exposition([registry], accept)

    assert found_type == content_type
    parse = text_string_to_metric_families if accept else parse_text
    theirs = encode(prometheus(registry)).decode()
    assert list(parse(text.decode())) == list(parse(theirs))


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_what_is_compressed_piece_by_piece_is_the_text(
    registry: MetricsRegistry, accept: str
) -> None:
    other = MetricsRegistry()
    for txid in range(1, 4):
        registry.record_commit(batch(txid=txid))
        other.record_commit(batch(id="other", txid=txid))
        shown = [registry, other]

        text, _ = exposition(shown, accept)

        packed, _ = exposition(shown, accept, compressed=True)
        assert gzip.decompress(packed) == text


def test_what_is_forgotten_or_changed_is_so_in_the_next_scrape(
    registry: MetricsRegistry,
) -> None:
    registry.record_commit(batch())
    before = exposition([registry], "")[0]
    assert exposition([registry], "")[0] == before

    registry.record_log("job", {ORDERS_0: LogBounds(50, 777)})
    registry.forget("job", [ORDERS_1])

    text = exposition([registry], "")[0].decode()
    ends = [line for line in text.splitlines() if "kafka_tx_end_offset{" in line]
    labels = 'id="job",partition="0",topic="orders"'
    assert ends == [f"kafka_tx_end_offset{{{labels}}} 777.0"]


def calls_of(scrape: Callable[[], object]) -> int:
    """How many functions it calls: time depends on what else the machine does."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        scrape()
    finally:
        sys.setprofile(None)
    return calls


def test_a_scrape_writes_only_what_changed_since_the_last_one(
    registry: MetricsRegistry,
) -> None:
    many = [TopicPartition("orders", number) for number in range(5_000)]

    def scraped_after(committed: int) -> int:
        ends = dict.fromkeys(many, committed)
        bounds = dict.fromkeys(many, LogBounds(committed, 2 * committed))
        starts = dict.fromkeys(many, 10)
        registry.record_commit(batch(starts=starts, committed=ends, bounds=bounds))
        return scraped()

    def scraped() -> int:
        return calls_of(lambda: exposition([registry], "", compressed=True))

    scraped_after(100)
    changed, unchanged = scraped_after(200), scraped()

    assert unchanged < changed / 20


def test_many_partitions_cost_a_fraction_of_what_the_library_takes(
    registry: MetricsRegistry,
) -> None:
    partitions = [TopicPartition("orders", number) for number in range(1_000)]
    committed = dict.fromkeys(partitions, 10)
    bounds = dict.fromkeys(partitions, LogBounds(0, 20))
    registry.record_commit(batch(starts=committed, committed=committed, bounds=bounds))
    encode, _ = choose_encoder("")

    registry.all_changed()
    ours = calls_of(lambda: exposition([registry], ""))
    theirs = calls_of(lambda: encode(prometheus(registry)))

    assert ours < theirs / 20


@pytest.mark.parametrize(
    "accept", [OPENMETRICS, "application/openmetrics-text; version=1.{}"]
)
def test_scrapes_leave_nothing_behind(registry: MetricsRegistry, accept: str) -> None:
    def scrape(number: int) -> None:
        if accept == OPENMETRICS:  # many versions: of the same metrics
            registry.record_commit(batch(txid=number))
        exposition([registry], accept.format(number))

    for number in range(100):
        scrape(number)

    tracemalloc.start()
    try:
        for number in range(100, 400):
            scrape(number)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert left < 210_000  # bytes


@pytest.fixture
def restless_threads() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("restless_threads")
def test_a_scrape_never_sees_half_a_commit(registry: MetricsRegistry) -> None:
    many = {TopicPartition("orders", number): 0 for number in range(50)}
    stop = Event()

    def commit_on_and_on() -> None:
        txid = 0
        while not stop.is_set():
            txid += 1
            committed = dict.fromkeys(many, txid)
            registry.record_commit(batch(txid=txid, starts=many, committed=committed))

    thread = Thread(target=commit_on_and_on, daemon=True)
    thread.start()
    seen: list[set[float]] = []
    while len(set().union(*seen)) < 50:
        seen.append(_positions(registry))
    stop.set()
    thread.join()

    assert all(len(positions) <= 1 for positions in seen)


def _positions(registry: MetricsRegistry) -> set[float]:
    """Every distinct value among the txid and the committed offsets of one scrape."""
    text = exposition([registry], "")[0].decode()
    found = re.findall(r"^kafka_tx_committed_(?:txid|offset){.*} (\S+)$", text, re.M)
    return {float(number) for number in found}


def test_a_commit_of_a_thousand_partitions_costs_milliseconds(
    registry: MetricsRegistry,
) -> None:
    partitions = [TopicPartition("orders", number) for number in range(1_000)]
    commit = batch(
        starts=dict.fromkeys(partitions, 0),
        committed=dict.fromkeys(partitions, 10),
        bounds=dict.fromkeys(partitions, LogBounds(0, 20)),
    )
    registry.record_commit(commit)

    times = []
    for _ in range(7):
        began = time.thread_time()
        registry.record_commit(commit)
        times.append(time.thread_time() - began)

    assert min(times) < 0.05  # of this thread's CPU; about 5 ms
