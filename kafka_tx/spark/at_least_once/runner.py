"""Drives an at-least-once topology: one thread with a queue of answers."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import islice
from queue import Empty

from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TransactionAttempt
from kafka_tx.offsets.emitting import Emission
from kafka_tx.offsets.retry import BackOff
from kafka_tx.options.topology import RunnerLimits
from kafka_tx.protocols import Clock, Store
from kafka_tx.running.at_least_once.hangs import HangListener, Hangs, Moves
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk
from kafka_tx.running.at_least_once.poller import PollerParts, Polls, SpoutPoller
from kafka_tx.running.at_least_once.reading import KafkaRecords
from kafka_tx.running.at_least_once.record_outcomes import RecordOutcomes
from kafka_tx.spark.topologies.running import (
    CANCEL_AGAIN_S,
    END_WITHIN_S,
    MOST_HANGING,
    AttemptEngine,
    JobThread,
    TopologyLoop,
    too_many_hang,
)
from kafka_tx.topology.at_least_once.chunks import Chunk, run_chunk
from kafka_tx.topology.at_least_once.pace import (
    FIRST_RECORDS,
    MOST_RECORDS,
    ChunkSize,
    Pace,
)
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.plan.physical import PhysicalPlan
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped, Roots

logger = event_log(__name__)

_ENDS_WITHIN_MS = 5_000
"""How long a cancelled job keeps its place."""

_PREPARES = BackOff(initial_delay_ms=200, multiplier=2, limit=5)
"""How often in a row bolts may fail to prepare, and the pauses before the next try."""

_LEAST_S, _HANDS_S = 0.1, 0.5
"""Least seconds of each wait at shutdown, and the reserve of the caller's time-out."""

_COMMIT_S = 5.0
"""Seconds of the shutdown that dead letters leave to the last commit."""

_MOST_LEFT = 1_000_000
"""Most answers that are taken at shutdown."""


class ChunkJob(JobThread):
    """A chunk's job on a thread of its own."""

    def __init__(
        self,
        started: InFlightChunk,
        engine: AttemptEngine,
        run: Callable[[], Chunk],
        answer: Callable[[Chunk | BaseException], None],
    ) -> None:
        super().__init__(started.attempt, engine)
        self.started = started
        self._run_chunk = run
        self._answer = answer
        self.given_up_ms: int | None = None
        """Monotonic time since which its answer does not count; None: it counts."""

    def give_up(self, now_ms: int) -> None:
        """Let the job fail soon; may be repeated."""
        if self.given_up_ms is None:
            self.given_up_ms = now_ms
        self.cancel()

    def _run(self) -> None:
        try:
            self._engine.enter(self.attempt)
            result: Chunk | BaseException = self._run_chunk()
        except BaseException as error:  # noqa: BLE001 - every error has its answer
            result = error
        self._answer(result)

    def _crashed(self, error: BaseException) -> None:
        self._answer(error)


class AtLeastOnceRunner(TopologyLoop[None]):
    """Emits chunks, passes their answers to the managers, commits completed records.

    The loop owns all managers. Other threads poll brokers, store offsets and write dead
    letters. Each chunk has a thread of its own.

    Args:
        plan: Of the topology.
        engine: Runs the jobs.
        pollers: The parts of each spout's poller.
        limits: Limits for chunks, records and times.
        registry: Takes the metrics.
        clock: The machine's.
        stop_store: The store for the reason of a stop; closed at the end. None: the
            reason is not stored.
        listen: Starts a listener, to which tasks report bolts that hang.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        engine: AttemptEngine,
        pollers: Mapping[str, PollerParts],
        limits: RunnerLimits,
        registry: MetricsRegistry,
        clock: Clock,
        stop_store: Store | None,
        *,
        listen: Callable[[int, Hangs, Moves], HangListener],
    ) -> None:
        super().__init__(plan.graph.id, registry, clock, stop_store)
        self._plan = plan
        self._engine = engine
        self._limits = limits
        self.pollers = {n: SpoutPoller(d, self._post) for n, d in pollers.items()}
        self._outcomes = RecordOutcomes(self.pollers, self._post, clock)
        self._jobs: dict[TransactionAttempt, ChunkJob] = {}
        self._chunks = self._next_root = self._turn = 0
        on_driver = any(w.placement is Placement.DRIVER for w in plan.processing)
        most = FIRST_RECORDS if on_driver else MOST_RECORDS
        self._size = ChunkSize(limits.chunk_records or most)
        self._unprepared = 0
        self._begins_at_ms = 0
        self._hanging: list[ChunkJob] = []
        self._rotated_ms = clock.monotonic_ms()
        self._is_paused = False
        self._idle_since: dict[str, Polls] = {}
        self._measured_ms = clock.monotonic_ms()
        self.view: Mapping[str, int] = {"chunks": 0, "pending": 0, "waiting": 0}
        """The in-flight counts; replaced as a whole."""
        self.totals: Mapping[str, int] = {}
        """The counts since the start; replaced as a whole."""
        self.recent: deque[tuple[Mapping[str, int], Mapping[str, int]]]
        """The last pairs of both that differ from the pair before."""
        self.recent = deque(maxlen=100)
        self._ends_s: float | None = None
        self._finishes = True
        self._listener = self._listening(listen, limits.timeout_ms)

    def _listening(
        self,
        listen: Callable[[int, Hangs, Moves], HangListener],
        timeout_ms: int | None,
    ) -> HangListener | None:
        if timeout_ms is None:
            return None
        try:
            return listen(
                timeout_ms,
                lambda *hang: self._post(lambda: self._hangs(*hang)),
                lambda attempt: self._post(lambda: self._moves(attempt)),
            )
        except ConfigError as error:
            logger.warning("tasks cannot tell that a bolt hangs: %s", error)
            return None

    # --- called from other threads ---

    def end_within(self, timeout_s: float | None) -> None:
        """Limit the time for shutdown from now on: jobs, last commit, connections.

        None: no limit for jobs; the rest has ``END_WITHIN_S`` after them.
        """
        if timeout_s is not None:
            self._ends_s = time.monotonic() + timeout_s

    def _ask_idle(self) -> Callable[[], bool]:
        wanted = {name: p.next_polls() for name, p in self.pollers.items()}
        self._post(self._want_polls)
        return lambda: all(
            name in self._idle_since and self._idle_since[name].include(polls)
            for name, polls in wanted.items()
        )

    def _want_polls(self) -> None:
        for poller in self.pollers.values():
            poller.want_polls()

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
                if job.given_up_ms is not None:
                    self._cancel(job)
            return
        while True:
            event()
            try:
                event = self._events.get_nowait()
            except Empty:
                return

    def _turn_over(self) -> None:
        self._expire()
        self._abandon()
        for poller in self.pollers.values():
            if not self._is_stopping:
                poller.refresh_if_due()
                poller.poll_if_due()
            poller.commit_if_due(
                at_once=self._waiters.are_there and poller.is_completed
            )
        self._outcomes.write_again()
        while self._start_chunk():
            pass

    def _wait_s(self) -> float:
        now_ms = self._clock.monotonic_ms()
        times = [poller.wakes_at_ms() for poller in self.pollers.values()]
        if len(self._jobs) >= self._limits.chunks or self._is_paused:
            times = [now_ms + 100]
        times += [now_ms + 1_000, *self._outcomes.wakes()]
        if now_ms < self._begins_at_ms:  # nothing can be sent before
            times = [max(self._begins_at_ms, min(times))]
        if any(job.given_up_ms is not None for job in self._jobs.values()):
            times.append(now_ms + int(CANCEL_AGAIN_S * 1_000))
        return max(0.001, (min(times) - now_ms) / 1_000)

    def _expire(self) -> None:
        timeout_ms = self._limits.timeout_ms
        now_ms = self._clock.monotonic_ms()
        if timeout_ms is None or now_ms - self._rotated_ms < timeout_ms:
            return
        self._rotated_ms = now_ms
        reason = f"not completed within {timeout_ms} ms"
        for started in self._outcomes.rotate():
            job = self._jobs.get(started.attempt)
            if started.left is not None:
                self._outcomes.timed_out(started, started.left, reason)
            elif job is None:  # given up before
                self._outcomes.timed_out(started, started.roots, reason)
            elif started.waited < self._limits.silent_timeouts:
                started.waited += 1
                self._outcomes.wait_for(started)
            else:
                self._size.timed_out(len(started))
                self._outcomes.silent(started, reason)
                self._cancel(job)

    def _hangs(self, attempt: TransactionAttempt, component: str, roots: Roots) -> None:
        """Handle the report that a bolt hangs with these records."""
        job = self._jobs.get(attempt)
        if job is None or job.started not in self._outcomes:
            return
        if len(roots) != 1:
            self._size.timed_out(len(roots) or len(job.started))
        timeout_ms = self._limits.timeout_ms
        reason = f"{component}: not given back within {timeout_ms} ms"
        self._outcomes.hangs(job.started, roots, reason)
        self._cancel(job)

    def _moves(self, attempt: TransactionAttempt) -> None:
        """Handle the report that a task advances, or that its bolt reset a time-out."""
        job = self._jobs.get(attempt)
        if job is not None:
            job.started.waited = 0

    def _cancel(self, job: ChunkJob) -> None:
        job.give_up(self._clock.monotonic_ms())

    def _abandon(self) -> None:
        """Free the places of jobs that were cancelled and do not end.

        Raises:
            TransactionError: Too many of these jobs run.
        """
        until_ms = self._clock.monotonic_ms() - _ENDS_WITHIN_MS
        for attempt, job in list(self._jobs.items()):
            if job.given_up_ms is not None and job.given_up_ms <= until_ms:
                logger.warning("it was cancelled and still runs", attempt=attempt)
                self._hanging.append(self._jobs.pop(attempt))
        if len(self._hanging) > MOST_HANGING:
            self._hanging = [job for job in self._hanging if job.runs]
        if len(self._hanging) > MOST_HANGING:
            raise too_many_hang(MOST_HANGING, "chunks were given up")

    # --- chunks ---

    def _start_chunk(self) -> bool:
        """Send one more chunk; False if there is no room or no record to send."""
        limits = self._limits
        if self._is_paused or self._is_stopping or len(self._jobs) >= limits.chunks:
            return False
        if self._clock.monotonic_ms() < self._begins_at_ms:
            return False
        room = self._size.records
        if limits.max_pending is not None:
            room = min(room, limits.max_pending - self._outcomes.open)
        if room < 1:
            return False
        names = list(self.pollers)
        for at in range(len(names)):
            name = names[(self._turn + at) % len(names)]
            if self._outcomes.is_crowded(name):
                continue
            emissions = self.pollers[name].chunk(room)
            if emissions:
                self._turn += at + 1
                self._send(name, emissions)
                return True
        return False

    def _send(self, name: str, emissions: list[Emission]) -> None:
        poller = self.pollers[name].parts
        self._chunks += 1
        attempt = TransactionAttempt(self._chunks, 1)
        now_ms = self._clock.monotonic_ms()
        started = InFlightChunk(attempt, name, self._next_root, emissions, now_ms)
        self._next_root = started.end
        self._outcomes.sent(started)
        records = KafkaRecords(started.numbered, poller.reader, poller.scheme)
        stage = self._plan.stage_of[name].name
        pace = Pace.of(self._limits.timeout_ms, time.monotonic, records=len(started))
        watch = self._listener.watch(attempt) if self._listener else None
        job = ChunkJob(
            started,
            self._engine,
            lambda: run_chunk(
                self._plan, attempt, {stage: records}, self._engine, pace, watch
            ),
            lambda result: self._post(lambda: self._done(started, result)),
        )
        self._jobs[attempt] = job
        job.start()

    def _done(self, started: InFlightChunk, result: Chunk | BaseException) -> None:
        job = self._jobs.pop(started.attempt, None)
        if job is None:
            return  # given up before
        is_done = isinstance(result, Chunk) and result.failure is None
        outcome, clock = "completed" if is_done else "failed", self._clock
        self.pollers[started.spout].metrics.chunk_ended(started, clock, outcome)
        if isinstance(result, Chunk):
            self._ended(started, result)
        elif job.given_up_ms is not None:
            self._outcomes.unused(started)
        elif isinstance(result, KafkaTxError) and result.retryable:
            # Smaller chunks, until the record that kills its worker is alone.
            self._size.lost(len(started))
            logger.warning("the chunk was lost: %s", result, attempt=started.attempt)
            self._outcomes.lost(started, str(result))
        else:
            raise result

    def _ended(self, started: InFlightChunk, chunk: Chunk) -> None:
        if isinstance(chunk.failure, BatchStopped):
            raise chunk.failure.error
        if chunk.failure is not None:
            self._failed(started, chunk.failure)
            return
        self._unprepared = 0
        is_in_time = started in self._outcomes
        tried = self._outcomes.finished(started, chunk)
        if is_in_time:
            job_s = (self._clock.monotonic_ms() - started.since_ms) / 1_000
            self._size.ended(len(started), tried, chunk.took_s, job_s)

    def _failed(self, started: InFlightChunk, failure: BatchFailed) -> None:
        """Handle a failure outside of rows; the next step depends on the cause.

        Raises:
            ComponentError: Bolts failed to prepare too often in a row.
        """
        logger.warning("the chunk failed: %s", failure, attempt=started.attempt)
        if failure.stops is not None:
            self._unprepared += 1
            if not _PREPARES.allows(self._unprepared):
                raise failure.stops
            pause_ms = _PREPARES.delay_ms(self._unprepared)
            self._begins_at_ms = self._clock.monotonic_ms() + pause_ms
            self._outcomes.unused(started)
        elif failure.component == started.spout:  # its schema registry is away
            self._begins_at_ms = self._clock.monotonic_ms() + _PREPARES.delay_ms(1)
            self._outcomes.unused(started)
        else:  # cleanup or unpickle: smaller chunks, until the record is alone
            self._size.lost(len(started))
            self._outcomes.lost(started, str(failure))

    # --- what others see ---

    def _publish(self) -> None:
        idle = {
            name: poller.ended_polls()
            for name, poller in self.pollers.items()
            if poller.is_idle and not self._outcomes.writes(name)
        }
        is_asked = self._waiters.are_there or self._is_stopping
        now_ms = self._clock.monotonic_ms()
        if is_asked or now_ms - self._measured_ms >= self._limits.metrics_ms:
            self._measure(now_ms)
        if idle and not self._jobs:
            with self._waiters.changing():
                self._idle_since |= idle

    def _measure(self, now_ms: int) -> None:
        self._measured_ms = now_ms
        totals: Counter[str] = Counter()
        view = {"chunks": len(self._jobs), "pending": 0, "waiting": 0}
        for name, poller in self.pollers.items():
            metrics = poller.metrics
            found = poller.partitions
            metrics.update(found.managers, now_ms, found.take_touched())
            started = (job.started for job in self._jobs.values())
            mine = [chunk for chunk in started if chunk.spout == name]
            metrics.in_flight(mine, self._clock)
            totals.update(metrics.totals())
            view["pending"] += sum(manager.pending for manager in found.awake)
            view["waiting"] += sum(manager.waiting for manager in found.awake)
        is_news = totals != self.totals
        self.view, self.totals = view, totals
        if is_news:
            self.recent.append((view, totals))

    # --- the end ---

    def _pause(self, is_paused: bool, /) -> None:
        self._is_paused = is_paused
        for poller in self.pollers.values():
            poller.commit_if_due(at_once=True)

    def _stop(self, *, finish: bool) -> None:
        self._is_stopping = True
        self._finishes = finish
        if not finish:
            for job in self._jobs.values():
                self._cancel(job)

    def _abort(self, error: BaseException) -> None:
        raise error

    def _spout_ids(self) -> set[str]:
        return {poller.parts.keeper.id for poller in self.pollers.values()}

    def _release(self) -> list[str] | None:
        if self._ends_s is None:
            self.end_within(END_WITHIN_S)
        left = [j for j in self._jobs.values() if not j.end(self._rest_s())]
        left += [job for job in self._hanging if job.runs]
        hanging = [str(job.started.attempt) for job in left]
        closed = self._end_letters()
        self._measure(self._clock.monotonic_ms())
        self._engine.close()
        if self._listener is not None:
            self._listener.close()
        closed += [poller.close(self._rest_s) for poller in self.pollers.values()]
        for poller in self.pollers.values():
            poller.metrics.ended()
        return hanging if hanging or not all(closed) else None

    def _end_letters(self) -> list[bool]:
        """Take the answers to dead letters, which the last commit then stores."""
        left_s = self._rest_s()
        ends_s = time.monotonic() + left_s - min(_COMMIT_S, left_s / 2)
        is_wanted = self._finishes and self.error is None
        ended = [
            poller.end_letters(max(_LEAST_S, ends_s - time.monotonic()), is_wanted)
            for poller in self.pollers.values()
        ]
        for event in islice(iter(self._left, None), _MOST_LEFT):
            try:
                event()
            except Exception:
                logger.exception("an answer was not taken")
        return ended

    def _rest_s(self) -> float:
        """Seconds left for shutdown, at least 0.1."""
        ends_s = time.monotonic() if self._ends_s is None else self._ends_s
        return max(_LEAST_S, ends_s - _HANDS_S - time.monotonic())

    def _left(self) -> Callable[[], None] | None:
        try:
            return self._events.get_nowait()
        except Empty:
            return None
