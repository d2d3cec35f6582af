"""Notices and reports bolts of at-least-once topologies that hang with a row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.task_reports import DriverAddress, ReportListener, send_report
from kafka_tx.topology.at_least_once.tasks import AtLeastOnceTask
from kafka_tx.topology.run.messages import Roots

logger = event_log(__name__)

_CHECKS = 8
"""Number of checks within the time that a row may take."""

_MOST_ROOTS = 10_000


@dataclass(frozen=True, slots=True)
class HangWatch:
    """Watches a task from a thread of its own (executor). Pickled.

    Bolts may take ``timeout_s`` for a row, or for an Arrow batch. While a bolt hangs,
    the report to the driver's ``ReportListener`` is repeated, because the driver may
    have missed it. While bolts advance, or reset the time-out, that is reported, too:
    the driver waits for such a chunk.
    """

    address: str
    attempt: TransactionAttempt
    timeout_s: float

    @contextmanager
    def __call__(self, task: AtLeastOnceTask) -> Iterator[None]:
        """Watch the task while the body runs."""
        has_ended = threading.Event()
        given, name = (task, has_ended), f"kafka-tx watches {task.id}"
        threading.Thread(target=self._watch, args=given, name=name, daemon=True).start()
        try:
            yield
        finally:
            has_ended.set()

    def _watch(self, task: AtLeastOnceTask, has_ended: threading.Event) -> None:
        pause_s = self.timeout_s / _CHECKS
        place, since_s = task.place, time.monotonic()
        checked_s = since_s
        while not has_ended.wait(pause_s):
            now_place, now_s = task.place, time.monotonic()
            if (frozen_s := now_s - checked_s - pause_s) > pause_s:
                since_s += frozen_s  # the process was stopped: no bolt could advance
            checked_s = now_s
            if now_place is None or now_place != place:
                place, since_s = now_place, now_s
                report: dict[str, object] = {"moves": True}
            elif now_s - since_s >= self.timeout_s:
                roots = task.roots_at_work()[:_MOST_ROOTS].tolist()
                report = {"component": task.component, "roots": roots}
            else:
                continue
            if place is not None and not self._send(report):
                return

    def _send(self, report: dict[str, object]) -> bool:
        """Send a report to the driver; False if no listener answers any more."""
        try:
            send_report(self.address, {"attempt": str(self.attempt), **report})
        except ConnectionRefusedError:
            return False
        except OSError as error:
            logger.warning("the driver does not hear %s: %s", report, error)
        return True


Hangs: TypeAlias = Callable[[TransactionAttempt, str, Roots], None]
"""Takes a chunk, the component that hangs, and the records it hangs with."""

Moves: TypeAlias = Callable[[TransactionAttempt], None]
"""Takes a chunk of which a task advances."""


class HangListener:
    """Takes reports of bolts that hang with rows or Arrow batches (driver).

    Args:
        timeout_ms: How long bolts may take for a row.
        hangs: Called for each bolt that takes longer, repeatedly, on another thread.
        moves: Called on that thread from time to time for chunks that advance.

    Raises:
        ConfigError: No port can be opened.
    """

    def __init__(
        self, driver: DriverAddress, timeout_ms: int, hangs: Hangs, moves: Moves
    ) -> None:
        def take(report: dict[str, Any]) -> None:
            attempt = TransactionAttempt.parse(str(report["attempt"]))
            if report.get("moves"):
                moves(attempt)
                return
            roots = np.array([int(root) for root in report["roots"]], np.int64)
            hangs(attempt, str(report["component"]), roots)

        self._reports = ReportListener(driver, take, "kafka-tx hangs")
        self._timeout_s = timeout_ms / 1_000

    def watch(self, attempt: TransactionAttempt) -> HangWatch:
        """The watch of a task of this chunk, for any machine."""
        return HangWatch(self._reports.address, attempt, self._timeout_s)

    def close(self) -> None:
        """Stop listening."""
        self._reports.close()
