"""Rows that bolts do not give back: noticed beside the task, reported to the driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_tx.model import TransactionAttempt
from kafka_tx.running.task_reports import send_report
from kafka_tx.topology.at_least_once.tasks import RecordTask

logger = logging.getLogger(__name__)

_LOOKS = 8
"""So often it is looked, within the time that a row may take."""

_MOST_ROOTS = 10_000


@dataclass(frozen=True, slots=True)
class HangWatch:
    """Watches a task from a thread of its own (executor). Pickled.

    A report is sent for as long as the row is not given back: the driver may not have
    heard it. While bolts get on, or reset the time-out, that is told too: the driver
    waits for such a chunk.

    Attributes:
        address: Of the driver's ``ReportListener``.
        attempt: The chunk.
        timeout_s: How long bolts may take for a row, or for an Arrow batch.
    """

    address: str
    attempt: TransactionAttempt
    timeout_s: float

    @contextmanager
    def __call__(self, task: RecordTask) -> Iterator[None]:
        """Watch it meanwhile."""
        has_ended = threading.Event()
        name = f"kafka-tx watches {task.id}"
        threading.Thread(
            target=self._watch, args=(task, has_ended), name=name, daemon=True
        ).start()
        try:
            yield
        finally:
            has_ended.set()

    def _watch(self, task: RecordTask, has_ended: threading.Event) -> None:
        place, since_s = task.place, time.monotonic()
        while not has_ended.wait(self.timeout_s / _LOOKS):
            now_place, now_s = task.place, time.monotonic()
            if now_place is None or now_place != place:
                place, since_s = now_place, now_s
                report: dict[str, object] = {"moves": True}
            elif now_s - since_s >= self.timeout_s:
                roots = task.in_hands()[:_MOST_ROOTS].tolist()
                report = {"component": task.running, "roots": roots}
            else:
                continue
            if place is not None and not self._hears(report):
                return

    def _hears(self, report: dict[str, object]) -> bool:
        """Tell the driver; False when nobody listens any more."""
        try:
            send_report(self.address, {"attempt": str(self.attempt), **report})
        except ConnectionRefusedError:
            return False
        except OSError as error:
            logger.warning("the driver does not hear %s: %s", report, error)
        return True
