"""A real Prometheus that watches endpoints with the files of ``grafana/``."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from integration.cluster.child import WorkDirectory
from integration.cluster.debian import prometheus_program
from integration.cluster.prometheus import PrometheusServer
from integration.operations.observing import GRAFANA, SCRAPE_INTERVAL_S, PrometheusApi


@contextmanager
def watching(
    *targets: str, quick: bool = False, discovered: Path | None = None
) -> Iterator[PrometheusApi]:
    """Run a Prometheus that scrapes each ``host:port`` every ``SCRAPE_INTERVAL_S``.

    It runs on ``grafana/prometheus.yml`` and ``grafana/alerts.yml``; only the targets
    and the intervals are other ones. It ends with the block. With ``quick``, the rules
    count seconds where they count minutes. ``discovered`` is a file of ``file_sd``;
    labels are then made as the operator makes them of a ``PodMonitor``.

    Raises:
        ProgramMissingError: Prometheus is neither installed nor to be had.
        NotReadyError: It does not come up.
    """
    work = WorkDirectory("watching")
    written = _configure(work.path, targets, quick=quick, discovered=discovered)
    server = PrometheusServer(written)
    try:
        server.start()
        yield PrometheusApi(server.url)
    finally:
        server.stop()
        work.delete()


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run Prometheus' own checker inside ``grafana/``."""
    return subprocess.run(
        [prometheus_program("promtool"), *arguments],
        input=given,
        cwd=GRAFANA,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


_QUICK = (
    (r"for: \d+m", "for: 0s"),
    (r"\b(300|600)\b", "2"),
    (r"\b900\b", "8"),
    (r"\[1d:1m\]", "[60s:1s]"),
    (r"\[1d\]", "[60s]"),
    (r"\[30m:1m\]", "[20s:1s]"),
    (r"\[2m\] offset 1m", "[2s] offset 1s"),
    (r"\b(10m|15m|30m|1h)\b", "8s"),
)
"""What the rules wait for, and what they wait for in tests."""

_OF_A_POD_MONITOR: tuple[tuple[list[str], str, str], ...] = (
    (["__meta_kubernetes_namespace"], "namespace", "$1"),
    (["__meta_kubernetes_pod_name"], "pod", "$1"),
    (["__meta_kubernetes_pod_container_name"], "container", "$1"),
    (["__meta_kubernetes_namespace"], "job", "$1/kafka-tx"),
    ([], "endpoint", "metrics"),
)
"""The relabelling of the operator: source labels, the new label, its value."""


def _configure(
    place: Path, targets: tuple[str, ...], *, quick: bool, discovered: Path | None
) -> Path:
    rules = (GRAFANA / "alerts.yml").read_text()
    for pattern, instead in _QUICK if quick else ():
        rules, found = re.subn(pattern, instead, rules)
        assert found, pattern
    (place / "alerts.yml").write_text(rules)
    scrape_file = yaml.safe_load((GRAFANA / "prometheus.yml").read_text())
    interval = f"{SCRAPE_INTERVAL_S}s"
    scrape_file["global"] = {
        "scrape_interval": interval,
        "evaluation_interval": interval,
    }
    (scrape,) = scrape_file["scrape_configs"]
    scrape["static_configs"] = [{"targets": list(targets)}]
    if discovered is not None:
        scrape["file_sd_configs"] = [
            {"files": [str(discovered)], "refresh_interval": "1s"}
        ]
        scrape["relabel_configs"] = [
            {"source_labels": sources, "target_label": label, "replacement": value}
            for sources, label, value in _OF_A_POD_MONITOR
        ]
    written = place / "prometheus.yml"
    written.write_text(yaml.safe_dump(scrape_file))
    return written
