"""A Spark Connect server from the pip package, as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from integration.cluster.child import ServerProcess
from integration.cluster.jars import REPOSITORY
from integration.cluster.java import java
from integration.cluster.spark_home import environment, home, left_out
from integration.cluster.spark_local import SETTINGS, quick_settings, quick_start
from integration.cluster.waiting import HOST, is_listening

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

MASTER = "local[2,4]"
"""Tasks are tried again as on a cluster: Spark 4.0 may forget a worker that it keeps
idle, and fails the next task with a NoSuchElementException."""


class ConnectServer(ServerProcess):
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
        super().__init__("connect")

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
        self._serve(
            [
                self._home / "bin" / "spark-submit",
                *("--class", SERVER, "--master", MASTER),
                *(w for pair in settings.items() for w in ("--conf", "=".join(pair))),
                "spark-internal",
            ],
            lambda: is_listening(self._port),
            environment={
                "SPARK_LOCAL_IP": HOST,
                **environment(),
                **left_out(),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(REPOSITORY),
                **self._environment,
            },
        )
