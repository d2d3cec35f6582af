"""What every running topology can do, whatever its guarantees."""

from __future__ import annotations

import threading
from typing import Any

from pyspark import SparkContext

from kafka_tx.errors import TransactionError
from kafka_tx.metrics.endpoint import Endpoint, Guest, serve
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.options.topology_options import TopologySettings
from kafka_tx.running.serial_worker import is_worker
from kafka_tx.spark.topologies.loop import TopologyLoop
from kafka_tx.spark.versions.job_failures import is_stopped, spark_stopped

_END_WITHIN_S = 60.0
_POLL_EVERY_S = 2.0


class RunningTopology:
    """A topology that was started, like a ``StreamingQuery``. Safe in any thread."""

    _kept = "recorded"
    """Where a restart goes on from, in one word."""

    def __init__(
        self,
        topology_id: str,
        loop: TopologyLoop[Any],
        registry: MetricsRegistry,
        endpoint: Endpoint | Guest,
    ) -> None:
        self.id = topology_id
        """The topology's id."""
        self.metrics = registry
        """Where its measurements are."""
        self._loop = loop
        self._endpoint = endpoint

    @property
    def metrics_port(self) -> int | None:
        """Where ``/metrics`` answers; None when it was not asked for.

        Then whoever serves metrics in this process shows those of the topology too.
        """
        return self._endpoint.port

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return not self._loop.has_ended.is_set()

    def exception(self) -> BaseException | None:
        """Why it ended; None while it runs, and after ``stop``."""
        return self._loop.error

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait for the end.

        Args:
            timeout: At most so many seconds.

        Returns:
            Whether it has ended; without a time-out always true.

        Raises:
            KafkaTxError: What ended it, above all a ``ComponentError``.
        """
        ended = self._loop.has_ended.wait(timeout)
        if ended and self._loop.error is not None:
            raise self._loop.error
        return ended

    def process_all_available(self, timeout_s: float | None = None) -> bool:
        """Wait until every record there is now is processed, and that is stored.

        New partitions are looked for. While brokers do not answer, or a partition has
        no leader, nobody knows what there is: it waits.

        Returns:
            Whether that is so; without a time-out always true.

        Raises:
            KafkaTxError: as ``awaitTermination``.
        """
        idle = self._loop.wait_until_idle(timeout_s)
        if self._loop.error is not None:
            raise self._loop.error
        return idle

    def pause(self) -> None:
        """Begin nothing more; what is in flight goes on and is committed."""
        self._loop.pause()

    def activate(self) -> None:
        """Go on after ``pause``."""
        self._loop.activate()

    def _end(self, *, finish: bool, timeout_s: float | None) -> None:
        """Stop, or cut it off when that takes too long.

        From a listener it only begins: the end waits for listeners, too.

        Raises:
            TransactionError: It was cut off.
        """
        self._loop.stop(finish=finish)
        if is_worker():
            return
        if not self._loop.has_ended.wait(timeout_s):
            error = TransactionError(
                f"topology '{self.id}' was not finished within {timeout_s} s and was"
                f" cut off; a restart goes on from what is {self._kept}"
            )
            self._loop.abort(error)
            self._loop.has_ended.wait(_END_WITHIN_S)
            raise error
        self._endpoint.close()

    def __repr__(self) -> str:
        word = "active" if self.isActive else "ended"
        return f"{type(self).__name__}({self.id!r}, {word})"


def end_with_session(loop: TopologyLoop[Any], context: SparkContext) -> None:
    """Let a topology end when its session does, also while it has nothing to do."""

    def watch() -> None:
        while not loop.has_ended.wait(_POLL_EVERY_S):
            if is_stopped(context):
                loop.abort(spark_stopped())
                return

    name = "kafka-tx session watch"
    threading.Thread(target=watch, name=name, daemon=True).start()


def serve_metrics(
    registry: MetricsRegistry, settings: TopologySettings
) -> Endpoint | Guest:
    """``/metrics`` where the settings say, else on every endpoint of this process."""
    if settings.metrics_port is None:
        return Guest(registry)
    return serve(
        registry,
        settings.metrics_port,
        settings.metrics_address,
        shows_page=settings.shows_page,
    )
