"""Drives an at-least-once topology: one thread, a queue of answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import islice
from queue import Empty

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.offsets.emitting import Emission
from kafka_tx.running.at_least_once.chunk_answers import ChunkAnswers
from kafka_tx.running.at_least_once.chunk_reads import ChunkRecords, reads_of
from kafka_tx.running.at_least_once.idle_waits import IdleWaits
from kafka_tx.running.at_least_once.manager_metrics import SpoutMetrics
from kafka_tx.running.at_least_once.poller import SpoutPoller
from kafka_tx.running.at_least_once.topology_counts import TopologyCounts
from kafka_tx.running.ends import note_stop
from kafka_tx.spark.at_least_once.chunk_jobs import (
    CANCEL_AGAIN_S,
    AtLeastOnceRunnerParts,
    ChunkJob,
)
from kafka_tx.spark.topologies.loop import TopologyLoop
from kafka_tx.topology.run.messages import BatchStopped
from kafka_tx.topology.tracked.chunk_flights import ChunkFlight
from kafka_tx.topology.tracked.chunks import Chunk, run_chunk
from kafka_tx.topology.tracked.pace import ChunkSize, Pace
from kafka_tx.transactions.root_blocks import BlockLedger, Roots

logger = logging.getLogger(__name__)

_END_WITHIN_S = 30.0
"""How long the end takes at most, where the caller gave no time."""

_LEAST_S, _HANDS_S = 0.1, 0.5
"""Of each wait at the end, and what is left of the caller's time when all is over."""


class AtLeastOnceRunner(TopologyLoop[None]):
    """Emits chunks, carries their answers to the managers, commits what is completed.

    The loop owns all managers. Brokers are asked, offsets stored and dead letters
    written on threads of their own; each chunk runs on its own.
    """

    def __init__(self, parts: AtLeastOnceRunnerParts) -> None:
        super().__init__(parts.id)
        self._parts = parts
        self._ledger = BlockLedger(buckets=2)
        self.pollers = {n: SpoutPoller(d, self._post) for n, d in parts.pollers.items()}
        metrics = {
            name: SpoutMetrics(poller.keeper.id, parts.registry)
            for name, poller in parts.pollers.items()
        }
        self._answers = ChunkAnswers(
            self.pollers, metrics, self._ledger, self._post, parts.clock
        )
        self._jobs: dict[TransactionAttempt, ChunkJob] = {}
        self._chunks = self._next_root = self._turn = 0
        limits = parts.limits
        self._size = ChunkSize(limits.chunk_records)
        self._pace = Pace.of(limits.timeout_ms, time.monotonic)
        self._rotated_ms = parts.clock.monotonic_ms()
        self._is_paused = False
        self._idle = IdleWaits(self.pollers, lambda: self._post(self._want_looks))
        self.counts = TopologyCounts(
            self.pollers, metrics, limits.metrics_ms, self._rotated_ms
        )
        self._ends_s: float | None = None
        if limits.timeout_ms is not None:
            parts.engine.listen(
                limits.timeout_ms, lambda *hang: self._post(lambda: self._hangs(*hang))
            )

    # --- called from other threads ---

    def end_within(self, timeout_s: float | None) -> None:
        """How long the end may take from now on: jobs, the last commit, connections."""
        self._ends_s = time.monotonic() + (
            _END_WITHIN_S if timeout_s is None else timeout_s
        )

    def wait_until_idle(self, timeout_s: float | None) -> bool:
        """Wait until everything that is there now is completed and stored."""
        return self._idle.wait(timeout_s)

    def _want_looks(self) -> None:
        for poller in self.pollers.values():
            poller.want_looks()

    # --- the loop ---

    def _step(self) -> None:
        self._turn_over()
        self._publish()
        if self._is_stopping and not self._jobs:
            self._is_over = True
            return
        try:
            event = self._events.get(timeout=self._wait_s())
        except Empty:
            for job in self._jobs.values():
                if job.is_cancelled:
                    job.cancel()
            return
        while True:
            event()
            try:
                event = self._events.get_nowait()
            except Empty:
                return

    def _turn_over(self) -> None:
        self._expire()
        for poller in self.pollers.values():
            if not self._is_stopping:
                poller.refresh_if_due()
                poller.look_if_due()
            poller.commit_if_due(
                at_once=self._idle.waiters.are_there and poller.is_completed
            )
        self._answers.write_again()
        while self._start_chunk():
            pass

    def _wait_s(self) -> float:
        now_ms = self._parts.clock.monotonic_ms()
        times = [poller.wakes_at_ms() for poller in self.pollers.values()]
        if len(self._jobs) >= self._parts.limits.chunks or self._is_paused:
            times = [now_ms + 100]
        times += [now_ms + 1_000, *self._answers.wakes()]
        if any(job.is_cancelled for job in self._jobs.values()):
            times.append(now_ms + int(CANCEL_AGAIN_S * 1_000))
        return max(0.001, (min(times) - now_ms) / 1_000)

    def _expire(self) -> None:
        timeout_ms = self._parts.limits.timeout_ms
        now_ms = self._parts.clock.monotonic_ms()
        if timeout_ms is None or now_ms - self._rotated_ms < timeout_ms:
            return
        self._rotated_ms = now_ms
        roots = self._ledger.rotate()
        if not len(roots):
            return
        reason = f"not completed within {timeout_ms} ms"
        for flight, mine in self._answers.flights.timed_out(roots):
            job = self._jobs.get(flight.attempt)
            if job is None:
                self._answers.timed_out(flight, mine, reason)
            elif flight.waited < self._parts.limits.patience:
                flight.waited += 1
                self._answers.wait_for(flight)
            else:
                self._size.timed_out(len(mine))
                self._answers.silent(flight, reason)
                job.cancel()

    def _hangs(self, attempt: TransactionAttempt, component: str, roots: Roots) -> None:
        """A bolt does not give these records back."""
        job = self._jobs.get(attempt)
        if job is None or job.flight not in self._answers.flights:
            return
        if len(roots) > 1:
            self._size.timed_out(len(roots))
        timeout_ms = self._parts.limits.timeout_ms
        reason = f"{component}: not given back within {timeout_ms} ms"
        self._answers.hangs(job.flight, roots, reason)
        job.cancel()

    # --- chunks ---

    def _start_chunk(self) -> bool:
        """Send one more chunk; False when there is no room or nothing to send."""
        limits = self._parts.limits
        if self._is_paused or self._is_stopping or len(self._jobs) >= limits.chunks:
            return False
        room = self._size.records
        if limits.max_pending is not None:
            room = min(room, limits.max_pending - self._answers.flights.open)
        if room < 1:
            return False
        names = list(self.pollers)
        for at in range(len(names)):
            name = names[(self._turn + at) % len(names)]
            emissions = self.pollers[name].chunk(room)
            if emissions:
                self._turn += at + 1
                self._send(name, emissions)
                return True
        return False

    def _send(self, name: str, emissions: list[Emission]) -> None:
        parts, poller = self._parts, self._parts.pollers[name]
        self._chunks += 1
        attempt = TransactionAttempt(self._chunks, 1)
        now_ms = parts.clock.monotonic_ms()
        flight = ChunkFlight(attempt, name, self._next_root, emissions, now_ms)
        self._next_root = flight.end
        self._ledger.begin(flight.first_root, flight.open)
        self._answers.flights.add(flight)
        records = ChunkRecords(reads_of(flight.numbered), poller.reader, poller.scheme)
        stage = parts.plan.stage_of[name].name
        job = ChunkJob(
            flight,
            parts.engine,
            lambda: run_chunk(
                parts.plan, attempt, {stage: records}, parts.engine, self._pace
            ),
            lambda result: self._post(lambda: self._done(flight, result)),
        )
        self._jobs[attempt] = job
        job.start()

    def _done(self, flight: ChunkFlight, result: Chunk | BaseException) -> None:
        job = self._jobs.pop(flight.attempt)
        if isinstance(result, Chunk):
            self._ended(flight, result)
        elif job.is_cancelled:
            self._answers.lost(flight, "cancelled")
        elif isinstance(result, KafkaTxError) and result.retryable:
            # Fewer at once, until the record that kills its worker is found.
            self._size.lost(len(flight.roots))
            logger.warning("chunk %s was lost: %s", flight.attempt, result)
            self._answers.lost(flight, str(result))
        else:
            raise result

    def _ended(self, flight: ChunkFlight, chunk: Chunk) -> None:
        if isinstance(chunk.failure, BatchStopped):
            raise chunk.failure.error
        if chunk.failure is not None:
            self._answers.failed(flight, str(chunk.failure))
            return
        is_in_time = flight in self._answers.flights
        tried = self._answers.finished(flight, chunk)
        if is_in_time:
            self._size.ended(len(flight.roots), tried)

    # --- what others see ---

    def _publish(self) -> None:
        now_ms = self._parts.clock.monotonic_ms()
        idle = {n: d.ended_looks() for n, d in self.pollers.items() if d.is_idle}
        is_asked = self._idle.waiters.are_there or self._is_stopping
        self.counts.measure_if_due(now_ms, len(self._jobs), at_once=is_asked)
        if not self._jobs:
            self._idle.found(idle)

    # --- the end ---

    def _pause(self, is_paused: bool, /) -> None:
        self._is_paused = is_paused
        for poller in self.pollers.values():
            poller.commit_if_due(at_once=True)

    def _stop(self, *, finish: bool) -> None:
        self._is_stopping = True
        if not finish:
            for job in self._jobs.values():
                job.cancel()

    def _abort(self, error: BaseException) -> None:
        raise error

    def _release(self) -> None:
        if self._ends_s is None:
            self.end_within(None)
        jobs = self._jobs.items()
        hanging = [str(a) for a, job in jobs if not job.end(self._rest_s())]
        for event in islice(iter(self._left, None), 10_000):
            try:
                event()
            except Exception:
                logger.exception("an answer of %s was not taken", self._id)
        self._parts.engine.close()
        closed = [poller.close(self._rest_s) for poller in self.pollers.values()]
        if hanging or not all(closed):
            logger.warning(
                "%s has ended, but something of it still runs on the driver %s",
                self._id,
                hanging,
            )
        self._note_stop()
        self.has_ended.set()
        self._idle.waiters.end()

    def _note_stop(self) -> None:
        parts = self._parts
        if self.error is not None:
            note_stop(parts.registry, parts.notes, parts.id, self.error, parts.clock)
        if parts.notes is not None:
            parts.notes.close()

    def _rest_s(self) -> float:
        """Of the time that the end may take; a moment at least."""
        ends_s = time.monotonic() if self._ends_s is None else self._ends_s
        return max(_LEAST_S, ends_s - _HANDS_S - time.monotonic())

    def _left(self) -> Callable[[], None] | None:
        try:
            return self._events.get_nowait()
        except Empty:
            return None
