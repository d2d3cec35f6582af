"""A real Prometheus scrapes a job; every panel and every alert rule gets its data."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from threading import Event, Thread

import pytest
import requests

from integration.cluster.waiting import HOST, NotReadyError, wait_until
from integration.operations.observing import (
    SCRAPE_INTERVAL_S,
    Observed,
    PrometheusApi,
    panel_questions,
    rule_series,
)
from integration.operations.watching import promtool, watching
from integration.sizes import in_all
from kafka_tx.errors import StateError
from kafka_tx.metrics import BatchCommitted, Endpoint, MetricsRegistry, catalogue, serve
from kafka_tx.metrics.events import InFlight
from kafka_tx.metrics.metric import Fed, MetricKind
from kafka_tx.model import LogBounds, LogPosition, TopicPartition
from kafka_tx.transactions.layout.commit_stats import TableWrite, TaskSums

TX_ID = "scripted.job"
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
EVERYTHING = frozenset(Fed) - {Fed.RUN, Fed.STORE}
"""Runs and stores have a test of their own: ``test_discovered_targets``."""


class ScriptedJob:
    """Feeds a registry as a busy job does: ten commits a second, until stopped."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for txid in count(1):
            self._registry.record_commit(_batch(txid))
            self._topology()
            self._spout()
            if self._stop.wait(0.1):
                return

    def _topology(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        times = {"since_ms": now_ms, "phase_since_ms": now_ms}
        in_flight = [
            InFlight(number=number, phase=phase, **times)
            for number, phase in enumerate(catalogue.PHASE.values, 1)
        ]
        self._registry.record_in_flight(TX_ID, in_flight)

    def _spout(self) -> None:
        measure: dict[MetricKind, Callable[..., None]] = {
            MetricKind.COUNTER: self._registry.add,
            MetricKind.GAUGE: self._registry.set,
            MetricKind.HISTOGRAM: self._registry.observe,
        }
        for metric in catalogue.ALL:
            if metric.fed is Fed.RECORD:
                labels = {label.name: label.values[0] for label in metric.labels[3:]}
                for topic, number in PARTITIONS:
                    where = {"id": TX_ID, "topic": topic, "partition": str(number)}
                    measure[metric.kind](metric.name, 0.05, **where, **labels)


def _table_write(txid: int) -> TableWrite:
    return TableWrite(
        txid=txid, table="sales", sink=TX_ID, files=1, rows=300, seconds=0.4
    )


def _batch(txid: int) -> BatchCommitted:
    end = 100 * txid
    now_ms = time.time_ns() // 1_000_000
    return BatchCommitted(
        id=TX_ID,
        txid=txid,
        starts=dict.fromkeys(PARTITIONS, end - 100),
        committed=dict.fromkeys(PARTITIONS, LogPosition(end, None)),
        bounds=dict.fromkeys(PARTITIONS, LogBounds(0, end + 50, edge=0)),
        committed_at_ms=now_ms,
        commit_ms=3.0,
        duration_ms=80.0,
        from_tasks=TaskSums(
            records=300,
            bytes=30_000,
            newest_ms=now_ms,
            phases_ms=dict.fromkeys(catalogue.PHASE.values, 20.0),
            tables=(_table_write(txid),),
        ),
    )


@pytest.fixture(scope="module")
def registry() -> MetricsRegistry:
    return MetricsRegistry()


@pytest.fixture(scope="module")
def endpoint(registry: MetricsRegistry) -> Iterator[Endpoint]:
    with serve(registry, port=0, address=HOST) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def job(registry: MetricsRegistry) -> Iterator[ScriptedJob]:
    job = ScriptedJob(registry)
    job.start()
    yield job
    job.stop()


@pytest.fixture(scope="module")
def prometheus(endpoint: Endpoint) -> Iterator[PrometheusApi]:
    with watching(f"{HOST}:{endpoint.port}") as api:
        yield api


@pytest.fixture
def observed(job: ScriptedJob, prometheus: PrometheusApi) -> Observed:
    return Observed(prometheus, TX_ID, EVERYTHING)


def test_the_job_is_scraped_without_a_complaint(
    job: ScriptedJob, prometheus: PrometheusApi
) -> None:
    wait_until("the target is up", lambda: prometheus.target_healths() == ["up"])

    wait_until(
        "a scrape is noted",
        lambda: prometheus.query('up{job="kafka_tx"}')[0][1] == 1,
    )


def test_every_panel_shows_data(observed: Observed) -> None:
    observed.assert_every_panel_shows_data()


def test_every_rule_is_evaluated(observed: Observed) -> None:
    observed.assert_every_rule_is_evaluated()


@pytest.mark.all
def test_a_panel_without_data_would_be_named(prometheus: PrometheusApi) -> None:
    nobody = Observed(prometheus, "nobody", EVERYTHING)

    with pytest.raises(NotReadyError, match=r"Lag in records: sum by .*nobody"):
        nobody.assert_every_panel_shows_data(timeout_s=1)
    with pytest.raises(NotReadyError, match=r"KafkaTxDataLoss: .*nobody"):
        nobody.assert_every_rule_is_evaluated(timeout_s=1)


def test_every_panel_and_every_rule_is_asked_about(observed: Observed) -> None:
    questions = [*panel_questions(TX_ID), *rule_series(TX_ID)]

    asked = {metric.name for question in questions for metric in question.metrics}

    assert asked == set(catalogue.BY_NAME) - {
        catalogue.START_OFFSET.name,
        catalogue.BEHIND_LATEST.name,
    }


def test_prometheus_has_the_jobs_own_numbers(prometheus: PrometheusApi) -> None:
    def rate_is_right() -> bool:
        ((_, per_second),) = prometheus.query("sum(rate(kafka_tx_offsets_total[5s]))")
        return 1_500 < per_second < 3_300  # 300 records, at most ten times a second

    wait_until("the rate of offsets is right", rate_is_right)
    lag = f'sum by (id, topic) (kafka_tx_lag_records{{id="{TX_ID}"}})'
    expected = [({"id": TX_ID, "topic": "orders"}, 150)]
    wait_until("the lag is right", lambda: prometheus.query(lag) == expected)


def test_a_healthy_job_sets_off_no_alarm(observed: Observed) -> None:
    spout_only = {"KafkaTxDeadLetters", "KafkaTxRecordsLost"}  # scripted ones

    wait_until("no other alarm is on", lambda: observed.firing() <= spout_only)


def test_an_alarm_goes_off_when_an_error_ends_the_job(
    observed: Observed, registry: MetricsRegistry
) -> None:
    registry.record_stop(TX_ID, StateError("away"), time.time_ns() // 1_000_000)

    wait_until("the alert", lambda: "KafkaTxStopped" in observed.firing())


def test_the_endpoint_answers_when_the_job_has_stopped(
    job: ScriptedJob, endpoint: Endpoint, prometheus: PrometheusApi
) -> None:
    job.stop()

    first = requests.get(endpoint.url, timeout=60).text
    time.sleep(2 * SCRAPE_INTERVAL_S)

    assert requests.get(endpoint.url, timeout=60).text == first
    wait_until("the target is up", lambda: prometheus.target_healths() == ["up"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml", "alerts_later_test.yml"),
        *in_all(("test", "rules", "recorded_test.yml")),
    ],
    ids=" ".join,
)
def test_promtool_accepts(arguments: tuple[str, ...]) -> None:
    found = promtool(*arguments)

    assert found.returncode == 0, found.stdout + found.stderr


def test_promtool_finds_no_fault_with_the_names(endpoint: Endpoint) -> None:
    text = requests.get(endpoint.url, timeout=60).text

    found = promtool("check", "metrics", given=text)

    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
