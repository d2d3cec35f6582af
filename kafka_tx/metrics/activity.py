"""The recent activity of each id in this process: for the status page, not scrapes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_tx.metrics.events import InFlight
from kafka_tx.transactions.layout.commit_stats import TableWrite

KEPT_BATCHES, KEPT_ERRORS, KEPT_LAGS = 60, 5, 240
LAG_EVERY_MS = 2_000
"""Least time between two recorded lags: 240 lags span at least 8 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnded:
    """An attempt at a batch, or a chunk, that ended.

    Attributes:
        number: Its txid, or the number of the chunk.
        ended_ms: Unix time.
        duration_ms: Of this attempt, as far as known.
        outcome: ``committed``, ``completed`` (a chunk), or a failure of
            ``catalogue.OUTCOME``.
        tries: Attempts until this one.
        records: Records in it; None if a task did not report them.
        phases_ms: How long it spent in each phase, as far as known.
    """

    number: int
    ended_ms: int
    duration_ms: float
    outcome: str
    tries: int = 1
    records: int | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that ended a query or topology, in this process or an earlier one."""

    at_ms: int
    reason: str
    text: str


@dataclass(slots=True, kw_only=True)
class Activity:
    """The last batches, errors and lags of one id. The registry locks it.

    Attributes:
        door: The kind of job, in words.
        options: Without secrets.
        waits_ms: How long its records may wait until there are enough for a batch.
        task: Which one of several jobs that share the partitions; empty: it is alone.
        started_ms: Unix time of its last start; 0: it never started here.
        ended_ms: Unix time of its end; 0: it runs.
        has_failed: Whether an error ended its last run in this process.
        moved_to: The store to which a tool had copied the id when it ended.
        in_flight: In the order of their numbers.
        batches, errors: The last ones, oldest first.
        lags: Unix time, records, seconds.
        tables: Of a lakehouse: the last write, by table and sink.
    """

    door: str = ""
    options: dict[str, str] = field(default_factory=dict)
    waits_ms: int = 0
    task: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    has_failed: bool = False
    moved_to: str = ""
    in_flight: tuple[InFlight, ...] = ()
    batches: deque[BatchEnded] = field(
        default_factory=lambda: deque(maxlen=KEPT_BATCHES)
    )
    errors: deque[Failure] = field(default_factory=lambda: deque(maxlen=KEPT_ERRORS))
    lags: deque[tuple[int, int, float]] = field(
        default_factory=lambda: deque(maxlen=KEPT_LAGS)
    )
    tables: dict[tuple[str, str], TableWrite] = field(default_factory=dict)

    @property
    def has_ended_well(self) -> bool:
        """Whether its last run in this process ended without an error."""
        return bool(self.started_ms and self.ended_ms) and not self.has_failed

    def failed(self, failure: Failure) -> None:
        """Record an error once, in the order of time."""
        if failure not in self.errors:
            found = sorted([*self.errors, failure], key=lambda each: each.at_ms)
            self.errors.clear()
            self.errors.extend(found)

    def wants_lag(self, now_ms: int) -> bool:
        """Whether to record a lag at this time."""
        return not self.lags or now_ms - self.lags[-1][0] >= LAG_EVERY_MS
