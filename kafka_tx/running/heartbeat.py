"""Signs of life of a planner, while its query works for long or has nothing to do."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

from kafka_tx.errors import KafkaTxError
from kafka_tx.source.kept_batches import SILENT_MS

logger = logging.getLogger(__name__)

_EVERY_S = SILENT_MS / 3 / 1000
_ENDS_WITHIN_S = 2.0


class Heartbeat:
    """Calls ``beat`` three times in ``SILENT_MS``, on a thread of its own.

    A call that fails is forgotten: a planner that was fenced learns of it by itself.

    Args:
        beat: Leaves a sign of life.
        let_go: Takes it away; called once, at the end.
    """

    def __init__(
        self,
        beat: Callable[[], None],
        let_go: Callable[[], None],
        every_s: float = _EVERY_S,
    ) -> None:
        self._beat = beat
        self._let_go = let_go
        self._every_s = every_s
        self._stops = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="kafka-tx heartbeat", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Let go, and beat no more. Takes two seconds at most."""
        self._stops.set()
        self._thread.join(_ENDS_WITHIN_S)

    def ends_with_process(self) -> None:
        """Let go where Spark terminates this process, as it does with planners."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, _: object) -> None:
        self.stop()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _run(self) -> None:
        while not self._stops.wait(self._every_s):
            self._try(self._beat)
        self._try(self._let_go)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except KafkaTxError as error:
            logger.debug("no sign of life was left or taken away: %s", error)
