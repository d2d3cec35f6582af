"""A Prometheus server of this run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import requests

from integration.cluster.child import ServerProcess
from integration.cluster.debian import prometheus_program
from integration.cluster.waiting import HOST


class PrometheusServer(ServerProcess):
    """One server with a given configuration. ``start`` returns when it answers.

    Raises:
        ProgramMissingError: Prometheus is neither installed nor to be had.
    """

    def __init__(self, configuration: Path) -> None:
        self._program = prometheus_program()
        self._configuration = configuration
        super().__init__("prometheus")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        self._serve(
            [
                self._program,
                f"--config.file={self._configuration}",
                f"--storage.tsdb.path={self._work.path / 'data'}",
                f"--web.listen-address={HOST}:{self._port}",
            ],
            lambda: requests.get(f"{self.url}/-/ready", timeout=2).ok,
            directory=self._configuration.parent,
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Give the series that an expression has now."""
        answer = requests.get(
            f"{self.url}/api/v1/query", params={"query": expression}, timeout=10
        )
        answer.raise_for_status()
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result

    def targets(self) -> list[dict[str, Any]]:
        """Give what it scrapes, with health and last error."""
        answer = requests.get(f"{self.url}/api/v1/targets", timeout=60)
        active: list[dict[str, Any]] = answer.json()["data"]["activeTargets"]
        return active
