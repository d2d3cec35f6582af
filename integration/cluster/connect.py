"""A Spark Connect server from the pip package, as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from integration.cluster.child import Child, WorkDirectory
from integration.cluster.jars import REPOSITORY
from integration.cluster.java import java
from integration.cluster.spark_home import environment, home, left_out
from integration.cluster.spark_local import SETTINGS, quick_settings, quick_start
from integration.cluster.waiting import HOST, free_port, is_listening, wait_until

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

MASTER = "local[2,4]"
"""Tasks are tried again as on a cluster: Spark 4.0 may forget a worker that it keeps
idle, and fails the next task with a NoSuchElementException."""


class ConnectServer:
    """Two cores in local mode; its Python has the package, as on the path here.

    Args:
        settings: Of the server's sessions.
        environment: Variables of the server's process.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, **environment: str
    ) -> None:
        java()
        self._settings = settings or {}
        self._environment = environment
        self._home = home()
        self._work = WorkDirectory("connect")
        self._port = free_port()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"sc://{HOST}:{self._port}"

    def start(self) -> None:
        """Return when it listens; again after ``kill``, on the same port.

        Nothing where it runs already.
        """
        if self._child is not None:
            return
        settings = {
            **SETTINGS,
            **quick_settings(),
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.extraJavaOptions": quick_start(),
            "spark.sql.warehouse.dir": str(self._work.path / "warehouse"),
            "spark.local.dir": str(self._work.path / "local"),
            **self._settings,
        }
        child = self._child = Child(
            [
                self._home / "bin" / "spark-submit",
                *("--class", SERVER, "--master", MASTER),
                *(w for pair in settings.items() for w in ("--conf", "=".join(pair))),
                "spark-internal",
            ],
            self._work.path / "server.log",
            directory=self._work.path,
            environment={
                "SPARK_LOCAL_IP": HOST,
                **environment(),
                **left_out(),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(REPOSITORY),
                **self._environment,
            },
        )
        wait_until(
            "the Connect server listens",
            lambda: is_listening(self._port),
            complain=lambda: None if child.is_running else child.tail(),
        )

    def kill(self) -> None:
        """SIGKILL, with everything that it has started."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def stop(self) -> None:
        """End it. Harmless when repeated."""
        self.kill()
        self._work.delete()
