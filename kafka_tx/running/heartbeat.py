"""The life of a process that plans: its answers to calls in the store, and its end."""

from __future__ import annotations

import atexit
import os
import select
import signal
import threading
from collections.abc import Callable

from kafka_tx.errors import KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.source.stored_batches import READ_EVERY_MS

logger = event_log(__name__)

_EVERY_S = READ_EVERY_MS / 1000
_ENDS_WITHIN_S = 2.0
_PARENT_POLL_S = 1.0
_EXIT_WITHIN_S = 5
_TERMINATED = 128 + signal.SIGTERM


class Heartbeat:
    """Calls ``answer`` at intervals, on a thread of its own.

    So a planner answers whoever asks whether it lives, also while a batch takes hours.
    A failure is ignored: a fenced planner notices that by other means. ``let_go``
    removes the sign of life, once, at the end.
    """

    def __init__(
        self,
        answer: Callable[[], None],
        let_go: Callable[[], None],
        every_s: float = _EVERY_S,
    ) -> None:
        self._answer = answer
        self._let_go = let_go
        self._every_s = every_s
        self._stops = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="kafka-tx heartbeat", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and call ``let_go``; waits two seconds at most."""
        self._stops.set()
        self._thread.join(_ENDS_WITHIN_S)

    def _run(self) -> None:
        while not self._stops.wait(self._every_s):
            self._try(self._answer)
        self._try(self._let_go)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except KafkaTxError as error:
            logger.debug("no answer to calls, or no end of the sign of life: %s", error)
        except Exception:  # a silent owner would be taken for a dead one
            logger.exception("a sign of life failed by a defect")


def end_with_session(
    is_over: Callable[[], bool], last: Callable[[], None] = lambda: None
) -> None:
    """End this process on SIGTERM, and with its parent or session, at any time.

    For a process of Spark: its main thread may wait minutes for a store or a broker,
    and notices nothing until the wait ends. So a thread waits for these events, calls
    ``last``, and ends the process whatever other threads do. The interpreter's own end,
    in which no thread runs, gets 5 s.

    The handler of the signal does nothing: Python runs handlers on the main thread,
    between any two of its steps, also inside another run of the same handler. One that
    takes a lock may wait for itself for ever. Before, C code has written to the pipe.

    Call it on the main thread. If somebody else has set a handler, it stays, and this
    function does not end the process.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    heard, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    atexit.register(_end_soon)
    parent, name = os.getppid(), "kafka-tx end"
    watched = heard, lambda: os.getppid() != parent or is_over(), last
    threading.Thread(target=_watch, args=watched, name=name, daemon=True).start()


def _watch(heard: int, is_over: Callable[[], bool], last: Callable[[], None]) -> None:
    try:
        while not is_over():
            readable, _, _ = select.select([heard], [], [], _PARENT_POLL_S)
            if readable and signal.SIGTERM in os.read(heard, 64):
                break
        last()
    finally:
        os._exit(_TERMINATED)


def _end_soon() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(_EXIT_WITHIN_S)
