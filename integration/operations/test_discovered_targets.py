"""Alerts about processes that a Prometheus discovers: pods that come and go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from integration.cluster.waiting import HOST, wait_until
from integration.operations.observing import PrometheusApi
from integration.operations.watching import watching
from kafka_tx.errors import StateError
from kafka_tx.metrics import MetricsRegistry, serve
from kafka_tx.metrics.catalogue import LAST_POLL
from kafka_tx.metrics.events import OffsetsStored
from kafka_tx.model import LogBounds, LogPosition, TopicPartition

P0 = TopicPartition("orders", 0)
RUNS = "kafka_tx_run_since_timestamp_seconds"


class Pods:
    """Processes with a metrics port, and the file that tells Prometheus of them."""

    def __init__(self, file: Path, running: ExitStack) -> None:
        self._file = file
        self._running = running
        self._targets: dict[str, dict[str, object]] = {}

    def start(self, pod: str, namespace: str = "prod") -> MetricsRegistry:
        registry = MetricsRegistry()
        port = self._running.enter_context(serve(registry, 0, HOST)).port
        labels = {"namespace": namespace, "pod_name": pod, "pod_container_name": "main"}
        self._targets[pod] = {
            "targets": [f"{HOST}:{port}"],
            "labels": {f"__meta_kubernetes_{k}": v for k, v in labels.items()},
        }
        self._write()
        return registry

    def vanish(self, *pods: str) -> None:
        for pod in pods:
            del self._targets[pod]
        self._write()

    def _write(self) -> None:
        fresh = self._file.with_suffix(".fresh")
        fresh.write_text(json.dumps(list(self._targets.values())))
        fresh.rename(self._file)


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    file = tmp_path_factory.mktemp("discovered") / "targets.json"
    with ExitStack() as running:
        yield Pods(file, running)


@pytest.fixture(scope="module")
def prometheus(pods: Pods) -> Iterator[PrometheusApi]:
    with watching(quick=True, discovered=pods._file) as api:
        yield api


def is_shown(prometheus: PrometheusApi, id_: str, pod: str) -> None:
    series = f'{RUNS}{{id="{id_}", pod="{pod}"}}'
    wait_until(f"{id_} is scraped", lambda: prometheus.query(series))


def is_down(prometheus: PrometheusApi, *ids: str, among: set[str]) -> None:
    def exactly() -> bool:
        return prometheus.alerting("KafkaTxDown") & among == set(ids)

    wait_until(f"only {ids} are down", exactly)


def test_a_job_that_nobody_exports_is_down_wherever_it_was(
    pods: Pods, prometheus: PrometheusApi
) -> None:
    """By its id: under other addresses and labels it is there again."""
    ours = {"orders", "nightly"}
    pods.start("orders-1").record_start("orders")
    pods.start("nightly-1").record_start("nightly", is_bounded=True)
    is_shown(prometheus, "orders", "orders-1")
    is_shown(prometheus, "nightly", "nightly-1")
    ((labels, _),) = prometheus.query(f'{RUNS}{{id="orders"}}')
    assert labels["job"] == "prod/kafka-tx"

    pods.vanish("orders-1", "nightly-1")
    is_down(prometheus, "orders", among=ours)

    moved = pods.start("orders-2", namespace="other")
    moved.record_start("orders")
    is_down(prometheus, among=ours)

    moved.record_stop("orders", StateError("away"), time.time_ns() // 1_000_000)
    is_down(prometheus, "orders", among=ours)
    moved.record_start("orders")
    is_down(prometheus, among=ours)


def test_the_exporter_tells_of_jobs_without_a_port_and_is_no_owner(
    pods: Pods, prometheus: PrometheusApi
) -> None:
    """A job whose last run was a bounded one waits for its next run."""
    driver, exporter = pods.start("seen-1"), pods.start("exporter-1")
    driver.record_start("seen")
    ours = {"seen": False, "unseen": False, "hourly": True}

    def serve_them(end: int) -> None:
        for id_, is_bounded in ours.items():
            stored = OffsetsStored(
                id=id_,
                committed={P0: LogPosition(5, None)},
                committed_at_ms=1_000,
                is_bounded=is_bounded,
            )
            exporter.record_stored(stored)
            exporter.record_bounded(stored)
            exporter.record_log(id_, {P0: LogBounds(0, end)})

    serve_them(5)
    is_shown(prometheus, "seen", "seen-1")

    def only_the_unseen_one() -> bool:
        serve_them(9)
        return prometheus.alerting("KafkaTxDown") & set(ours) == {"unseen"}

    wait_until("records wait", only_the_unseen_one)
    assert not prometheus.alerted("KafkaTxTwoOwners", "id")


def test_an_exporter_without_figures_is_noticed_and_so_is_its_end(
    pods: Pods, prometheus: PrometheusApi
) -> None:
    def seen(*ids: str) -> None:
        for id_ in ids:
            exporter.set(LAST_POLL.name, time.time(), id=id_)

    def unknown() -> set[str]:
        return prometheus.alerting("KafkaTxLagUnknown")

    def only_the_blind_one() -> bool:
        seen("sighted")
        return unknown() == {"blind"}

    def none() -> bool:
        seen("sighted", "blind")
        return not unknown()

    exporter = pods.start("lag-1")
    seen("sighted", "blind")
    wait_until("one has no figures", only_the_blind_one)
    pods.vanish("lag-1")
    wait_until("nothing is known", lambda: unknown() == {"blind", "sighted"})
    exporter = pods.start("lag-2")
    wait_until("it is back", none)


@pytest.mark.all
def test_two_processes_that_run_one_id_are_two_owners(
    pods: Pods, prometheus: PrometheusApi
) -> None:
    pods.start("shared-1").record_start("shared")
    other = pods.start("shared-2")
    other.record_start("shared")

    def is_shared() -> bool:
        return "shared" in prometheus.alerting("KafkaTxTwoOwners")

    wait_until("both are seen", is_shared)
    pods.vanish("shared-1")
    wait_until("one is left", lambda: not is_shared())
