"""The group mirror beside the work: nothing waits for it, and nothing fails by it."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping

from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import TopicPartition

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
LAST_WITHIN_S = 5.0
"""How long the end waits for the last offsets to be sent."""

_Offsets = Mapping[TopicPartition, int]


class MirrorThread:
    """Copies committed offsets into a group, on a thread of its own; the newest win.

    What cannot be sent now is sent again, unless newer offsets came, on new connections
    and with growing pauses. Made, and its thread started, by the first offsets.

    Args:
        mirror: Used by this thread only.
        on_failure: Called for every failed try, on this thread.
    """

    def __init__(
        self, mirror: GroupMirror, on_failure: Callable[[], None] = lambda: None
    ) -> None:
        self._mirror = mirror
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._next: _Offsets | None = None
        self._is_sending = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def __call__(self, offsets: _Offsets) -> None:
        """Send them soon. Returns at once, never raises."""
        with self._changed:
            if self._is_closing:
                return
            self._next = dict(offsets)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="kafka_tx-mirror", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)

    def flush(self, timeout_s: float = LAST_WITHIN_S) -> bool:
        """Wait until all is sent, no longer than this; whether it is.

        For the end of a bounded run, after which Spark ends the process.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._is_sending and self._next is None, timeout_s
            )

    def close(self, timeout_s: float = LAST_WITHIN_S) -> None:
        """Send what waits, no longer than this. Harmless when repeated."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            atexit.unregister(self.close)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while (offsets := self._taken()) is not None:
            is_sent = self._sent(offsets)
            with self._changed:
                self._is_sending = False
                if not is_sent and self._next is None:
                    self._next = offsets
                self._changed.notify_all()
                if is_sent:
                    pause_s = _FIRST_PAUSE_S
                    continue
                if self._is_closing:
                    break
                self._changed.wait_for(lambda: self._is_closing, pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._mirror.close()

    def _taken(self) -> _Offsets | None:
        """The newest offsets, awaited; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._is_closing)
            offsets, self._next = self._next, None
            self._is_sending = offsets is not None
            return offsets

    def _sent(self, offsets: _Offsets) -> bool:
        try:
            self._mirror.store(offsets)
        except KafkaTxError as error:
            logger.warning("group mirror failed: %s", error)
            self._on_failure()
            return False
        return True
