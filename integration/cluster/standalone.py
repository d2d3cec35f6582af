"""A Spark standalone cluster from the pip package, and drivers that run on it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import requests

from integration.cluster.bare_python import bare_python
from integration.cluster.child import Child, WorkDirectory
from integration.cluster.jars import REPOSITORY, jar_paths
from integration.cluster.java import java
from integration.cluster.spark_home import home
from integration.cluster.spark_local import SETTINGS, quick_settings, quick_start
from integration.cluster.versions import SPARK, SPARK_CONNECTOR_JARS
from integration.cluster.waiting import HOST, free_port, wait_until
from integration.sizes import EVERYTHING
from kafka_tx.testing import spark_directory

DEPLOY = "org.apache.spark.deploy"
PACKAGES = ("kafka_tx", "pyspark_kafka_tx")


class StandaloneSpark:
    """A master and some workers of one core each, as processes of their own.

    A driver is a process too, started as a user starts one: by ``spark-submit``, with
    the package as a zip file that Spark takes to the executors: no Python of the
    cluster has it installed.

    Without workers nothing is started. A driver then has its executor in itself, which
    takes half as much; the package is shipped to its Python workers, too, and a task
    that fails is tried again as often as on a cluster.
    """

    def __init__(self, workers: int = 2) -> None:
        java()
        self._home = spark_directory() if EVERYTHING else home()
        self._work = WorkDirectory("spark")
        self._python = bare_python(self._work.path / "python")
        self._workers = workers
        self._port, self._page = free_port(), free_port()
        self._children: list[Child] = []

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}" if self._workers else "local[2,4]"

    def start(self) -> None:
        """Return when all workers have registered."""
        if not self._workers:
            return
        at = ("--host", HOST, "--port")
        self._begin("master", *at, str(self._port), "--webui-port", str(self._page))
        for number in range(1, self._workers + 1):
            self._begin(
                f"worker{number}",
                *(*at, "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(self._work.path / f"worker{number}"), self.url),
            )
        wait_until(
            f"{self._workers} workers are registered",
            lambda: self.alive_workers() == self._workers,
            complain=self._complaint,
        )

    def stop(self) -> None:
        """End workers, their executors and the master. Harmless when repeated."""
        for child in reversed(self._children):
            child.kill()
        self._children.clear()
        self._work.delete()

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker (numbered from 1) and the executors it has started."""
        self._children[number].kill()

    def alive_workers(self) -> int:
        state = requests.get(f"http://{HOST}:{self._page}/json/", timeout=5).json()
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def begin_driver(
        self,
        script: Path,
        *arguments: str,
        settings: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Child:
        """Submit a Python script, which makes its session by ``getOrCreate()``."""
        place = self._work.path
        return Child(
            [
                self._home / "bin" / "spark-submit",
                *("--master", self.url),
                *("--py-files", str(shipped_package(place / "kafka_tx.zip"))),
                *_as_options(self._settings() | dict(settings or {})),
                script,
                *arguments,
            ],
            log or place / f"driver{free_port()}.log",
            directory=place,
            environment=self._environment(),
        )

    def run_driver(
        self,
        script: Path,
        *arguments: str,
        settings: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> str:
        """Submit a script, let it end, and give what it printed.

        Raises:
            NotReadyError: It failed or ran too long; its last lines are in the text.
        """
        driver = self.begin_driver(script, *arguments, settings=settings)
        driver.wait(timeout_s)
        return driver.log.read_text(errors="replace")

    def _begin(self, name: str, *arguments: str) -> None:
        main = (
            f"{DEPLOY}.master.Master" if name == "master" else f"{DEPLOY}.worker.Worker"
        )
        child = Child(
            [self._home / "bin" / "spark-class", main, *arguments],
            self._work.path / f"{name}.log",
            directory=self._work.path,
            environment=self._environment(),
        )
        self._children.append(child)

    def _environment(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick_start(),
            "PYSPARK_PYTHON": str(self._python),
            "PYTHONPATH": "",
        }

    def _settings(self) -> dict[str, str]:
        jars = jar_paths(SPARK_CONNECTOR_JARS) if SPARK else []
        return {
            **SETTINGS,
            **({} if EVERYTHING else quick_settings()),
            "spark.jars": ",".join(map(str, jars)),
            "spark.driver.extraJavaOptions": quick_start(),
            "spark.executor.extraJavaOptions": quick_start(),
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(self._workers or 2),
            "spark.sql.warehouse.dir": str(self._work.path / "warehouse"),
        }

    def _complaint(self) -> str | None:
        ended = [child for child in self._children if not child.is_running]
        return ended[0].tail() if ended else None


def shipped_package(place: Path) -> Path:
    """Write the packages of this repository into a zip file, as a wheel has them."""
    if not place.exists():
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for package in PACKAGES:
                for file in sorted((REPOSITORY / package).rglob("*.*")):
                    if file.suffix in (".py", ".so"):
                        archive.write(file, file.relative_to(REPOSITORY))
    return place


def _as_options(settings: Mapping[str, str]) -> Sequence[str]:
    pairs = (f"{name}={value}" for name, value in settings.items())
    return [word for pair in pairs for word in ("--conf", pair)]
