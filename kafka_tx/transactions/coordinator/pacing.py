"""Number of batches in flight, intervals and time-outs."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.offsets.damaged_reads import OF_BATCHES, DamagedReads
from kafka_tx.offsets.retry import BackOff
from kafka_tx.option_rows import option, whole
from kafka_tx.planning import log_bounds

_LEAST = {
    "max_pending": 1,
    "timeout_ms": 1,
    "emit_interval_ms": 0,
    "idle_pause_ms": 1,
    "retry_ms": 1,
    "end_timeout_ms": 1,
}

_SOON_MS = 5
_LONGEST_PAUSE_MS = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Pacing:
    """Number of batches in flight, intervals and time-outs.

    Attributes:
        max_pending: Batches in flight (``topology.max.spout.pending``).
        timeout_ms: Longest processing phase, and longest commit phase, before the
            attempt fails (``topology.message.timeout.secs``); None: no limit. Doubles
            after each time-out of a txid, up to eight times the value.
        emit_interval_ms: Least time between two new txids
            (``topology.trident.batch.emit.interval.millis``).
        idle_pause_ms: Least time between an empty batch and the next new txid. It
            doubles with each empty batch in a row, up to 5 s. Also the longest pause
            until a spout that was not ready is asked again: first 5 ms, then doubled.
        retry_ms: Pause before a failed write, or failed planning, is tried again.
        end_timeout_ms: How long a dropped commit phase may take to end. Until its end
            nothing else commits; after this time everything stops.

    Raises:
        ConfigError: A value is below its minimum.
    """

    max_pending: int = option(1, "tx.maxPending", "Most batches in flight.", whole())
    timeout_ms: int | None = option(
        30_000,
        "tx.timeoutMs",
        "Longest processing or commit phase, ms. Doubles after each time-out of the"
        " batch, up to eight times this value.",
        whole(),
    )
    emit_interval_ms: int = option(
        0, "tx.emitIntervalMs", "Least time between two batches, ms.", whole(0)
    )
    idle_pause_ms: int = option(
        100,
        "tx.idlePauseMs",
        "Longest pause while there are no new records, ms. The first is 5 ms.",
        whole(),
    )
    retry_ms: int = option(
        1_000, "tx.retryMs", "Pause after a write or plan that failed, ms.", whole()
    )
    end_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError.illegal(name, value, f"a whole number >= {least}")


_REPLAYS = BackOff(initial_delay_ms=100, multiplier=2, max_delay_ms=5_000)


class ReplayPauses:
    """When a failed txid begins again: at once, then after longer and longer pauses.

    Damaged records wait from the first failure on, and have a number of tries.
    """

    def __init__(self) -> None:
        self._damaged = DamagedReads[int](OF_BATCHES)
        self._again = DamagedReads[int](_REPLAYS)
        self._failed: set[int] = set()

    def failed(self, txid: int, now_ms: int, *, is_damaged: bool) -> bool:
        """Count a failure of this txid; False if that was the last try."""
        if is_damaged:
            return self._damaged.failed(txid, now_ms)
        if txid in self._failed:
            self._again.failed(txid, now_ms)
        self._failed.add(txid)
        return True

    def opens_at_ms(self, txid: int) -> int:
        """When the txid may begin; 0: it does not wait."""
        return max(self._damaged.opens_at_ms(txid), self._again.opens_at_ms(txid))

    def started(self, txid: int) -> None:
        """Its replay begins."""
        self._damaged.started(txid)
        self._again.started(txid)

    def landed(self, txid: int) -> None:
        """It is committed."""
        self._damaged.landed(txid)
        self._again.landed(txid)
        self._failed.discard(txid)

    def wakes_after(self, now_ms: int) -> int | None:
        """The time of the first replay after ``now_ms``; None: there is none."""
        times = (self._damaged.wakes_after(now_ms), self._again.wakes_after(now_ms))
        return min((at_ms for at_ms in times if at_ms is not None), default=None)


class PlanningGate:
    """Decides when a batch may be planned: one at a time, new txids at intervals.

    A txid that had metadata before is a replay: it needs no interval, pause or ready
    spout. Nor does a txid whose plan has failed: the spout may take its rows for
    planned, so that it is not ready.
    """

    def __init__(self, pacing: Pacing, newest: int) -> None:
        self._pacing = pacing
        self._newest = newest  # the greatest txid that had metadata or a failed plan
        self._new_at_ms = 0
        self._ask_at_ms = 0  # when to ask the spout again
        self._any_at_ms = 0
        self._unready = 0  # consecutive answers "not ready"
        self._empty = 0  # consecutive new txids without rows
        self.planning: TransactionAttempt | None = None
        """The attempt whose plan is awaited."""

    def is_new(self, txid: int) -> bool:
        """Whether the txid never had metadata, nor a plan that failed."""
        return txid > self._newest

    def opens_at_ms(self, txid: int) -> int:
        """The earliest time to plan this txid."""
        if not self.is_new(txid):
            return self._any_at_ms
        return max(self._any_at_ms, self._new_at_ms, self._ask_at_ms)

    def lets_pass(self, txid: int, now_ms: int, *, is_ready: bool) -> bool:
        """Whether to plan now; if the spout is not ready, sets when to ask again."""
        if self.planning is not None or now_ms < self.opens_at_ms(txid):
            return False
        if not self.is_new(txid):
            return True
        if is_ready:
            self._unready = 0
            self._new_at_ms = now_ms + self._pacing.emit_interval_ms
        else:
            self._empty = 0
            self._unready += 1
            longest_ms = self._pacing.idle_pause_ms
            first_ms = min(_SOON_MS, longest_ms)
            pause_ms = log_bounds.pause_ms(self._unready, first_ms, longest_ms)
            self._ask_at_ms = now_ms + pause_ms
        return is_ready

    def committed(self) -> None:
        """A batch is committed: ask the spout at once, it may be ready now."""
        self._unready = self._ask_at_ms = 0

    def planned(self, now_ms: int, *, is_empty: bool) -> None:
        """The awaited plan has arrived; pauses grow with each empty plan in a row.

        An empty batch costs as many writes as any other.
        """
        if self.planning is not None:
            self._newest = max(self._newest, self.planning.txid)
        self.planning = None
        self._empty = self._empty + 1 if is_empty else 0
        if is_empty:
            first_ms = self._pacing.idle_pause_ms
            pause_ms = log_bounds.pause_ms(self._empty, first_ms, _LONGEST_PAUSE_MS)
            self._new_at_ms = max(self._new_at_ms, now_ms + pause_ms)

    def failed(self, now_ms: int) -> None:
        """The awaited plan has failed."""
        if self.planning is not None:
            self._newest = max(self._newest, self.planning.txid)
        self.planning = None
        self._any_at_ms = now_ms + self._pacing.retry_ms
