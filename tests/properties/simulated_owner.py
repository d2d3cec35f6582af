"""One live driver of a simulated topology, its spout, and the work it was asked to do.

A ``Work`` is a generator that stops wherever a crash, a takeover or a late answer may
come in between.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kafka_tx.errors import (
    ComponentError,
    DamagedRecordsError,
    FailedException,
    FencedError,
    KafkaTxError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import Store
from kafka_tx.running.permit import Permits
from kafka_tx.running.serial_worker import SerialWorker
from kafka_tx.running.transactional.spout_thread import SpoutThread
from kafka_tx.topology.declare.spouts import (
    Json,
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
)
from kafka_tx.transactions.coordinator.actions import (
    Action,
    Cancel,
    Initialize,
    StartBatch,
    StartCommit,
    Stopped,
    TransactionCommitted,
    Write,
)
from kafka_tx.transactions.coordinator.actions import Outcome as Ended
from kafka_tx.transactions.coordinator.idleness import Idleness
from kafka_tx.transactions.coordinator.in_flight_batches import BatchPhase
from kafka_tx.transactions.layout.commit_stats import CommitStats, stats_record
from kafka_tx.transactions.layout.txid_layout import Door, numbered
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader
from kafka_tx.transactions.ownership import guarded_writes
from kafka_tx.transactions.ownership.guarded_writes import take_over
from tests.properties.simulated_store import Batch, ranges

if TYPE_CHECKING:
    from tests.properties.simulated_topology import World

Work = Generator[None, "Outcome", None]

TRIES = 6
"""Of a batch with damaged records."""

_COMMIT_PHASES = (BatchPhase.COMMITTING, BatchPhase.RECORDING)


class Outcome(IntEnum):
    """How the next step of a work ends."""

    GOOD = 0
    FAILED = 1
    """It did not happen, and says so."""
    UNKNOWN = 2
    """It happened, and says that it did not."""


class Mood(NamedTuple):
    """How a spout answers for now.

    Attributes:
        is_shy: It is not ready, whatever is left.
        is_eager: It is ready although nothing is left.
        is_unsure: It does not know whether it is drained.
        is_late: Its answer comes after the next question.
    """

    is_shy: bool = False
    is_eager: bool = True
    is_unsure: bool = False
    is_late: bool = False


class Spout(PartitionedTransactionalSpout):
    """Reads the world's log, as the Kafka spout reads a cluster's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._planned_to: dict[int, int] = {}
        self.mood = Mood()
        self.is_broken = False

    def is_ready(self) -> bool:
        return not self.mood.is_shy and (self.mood.is_eager or self._has_more())

    def is_drained(self) -> bool | None:
        """Who cannot read a partition knows that rows may be left."""
        if self.mood.is_unsure and not self._world.unreadable:
            self._world.seen["spouts that did not know"] += 1
            return None
        return not self._has_more()

    def _has_more(self) -> bool:
        ends = enumerate(self._world.log_ends)
        return any(self._planned_to.get(p, -1) < end for p, end in ends)

    def initialize_transaction(
        self, txid: int, previous: Mapping[str, Json] | None
    ) -> Mapping[str, Json]:
        if self.is_broken and txid % 2:
            raise FailedException("later")
        metadata = super().initialize_transaction(txid, previous)
        self._planned_to = {int(p): part["end"] for p, part in metadata.items()}
        if self.is_broken:
            self._world.seen["plans that failed at their end"] += 1
            raise FailedException("later, and the rows count as planned")
        return metadata

    def partitions(self) -> list[str]:
        return [str(partition) for partition in self._world.listed()]

    def offers(self, lasts: Mapping[str, Json | None]) -> Mapping[str, Json]:
        return self._world.offers(lasts)

    def empty_after(self, metadata: Json) -> Json:
        return {"start": metadata["end"], "end": metadata["end"]}

    def is_empty(self, metadata: Json) -> bool:
        return all(part["start"] == part["end"] for part in metadata.values())


class OpaqueSpout(Spout, OpaquePartitionedTransactionalSpout):
    pass


class Answer(Future[Any]):
    """Is there, or is late: nobody waits for it."""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(0)


class SpoutWorker(SerialWorker):
    """Calls the spout at once, or when it is told to; in the order of the requests."""

    def __init__(self) -> None:
        self._left: deque[tuple[Answer, Callable[[], Any]]] = deque()
        self.is_prompt = False

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        answer = Answer()
        self._left.append((answer, function))
        if self.is_prompt:
            self.run()
        return answer

    def run(self) -> None:
        while self._left:
            answer, function = self._left.popleft()
            answer.set_result(function())


class Owner:
    """One live driver: a coordinator, a spout, and the work it was asked to do."""

    thread: type[SpoutThread] = SpoutThread
    idle: type[Idleness] = Idleness
    opaque: type[OpaqueSpout] = OpaqueSpout

    def __init__(self, world: World) -> None:
        self._world = world
        epoch = take_over(cast(Store, world.store))
        values = numbered(cast(Store, world.store), epoch)
        is_opaque = world.mode == "opaque"
        self.spout = (self.opaque if is_opaque else Spout)(world)
        self._calls = SpoutWorker()
        self._spouts = self.thread(self._calls, self.spout, "spout", lambda: None)
        self._idleness = self.idle()
        self.waits: list[tuple[Callable[[], bool], list[int]]] = []
        """Those who wait for all that was in the log when they began to."""
        reader = LedgerReader("memory:", "sim", Door.TRANSACTIONAL)
        state = reader.read(values, epoch)
        self.coordinator = world.coordinator(world.mode, world.pacing, reader, state)
        self.work: list[Work] = []
        self.is_stopping = False
        self.is_lost = False  # the store went back under it
        self.error: BaseException | None = None
        self.writes = self.commits = 0  # works of that kind under way
        self.permits = Permits()
        self._owned = False  # whether the store has just taken a write of ours
        self._answers: list[Callable[[], list[Action[Json]]]] = []
        self._jobs: list[Work] = []
        self._committing: list[Work] = []
        self._flying: dict[int, TransactionAttempt] = {}
        self._damaged_reads, self._failures = Counter[int](), Counter[int]()
        self._begins_at_ms: dict[int, int] = {}
        self._batches: dict[TransactionAttempt, Batch] = {}
        stored = world.store.txids("meta") if not is_opaque else []
        self._planned_to = max([world.store.currtx() - 1, *stored])
        self._committed = world.store.currtx() - 1

    # --- steps ---

    def tick(self, *, is_ready: bool) -> bool:
        """Let the coordinator look around; say whether it asked for anything."""
        self._world.seen["steps"] += 1
        actions = self.coordinator.tick(self._world.now_ms, is_ready=is_ready)
        new = (a.attempt.txid for a in actions if isinstance(a, Initialize))
        is_replay = all(txid <= self._planned_to for txid in new)
        assert is_ready or is_replay, "planned although the spout was not ready"
        self._carry_out(actions)
        return bool(actions)

    def look(self, mood: Mood = Mood()) -> bool:  # noqa: B008 - it cannot change
        """As ``tick``, with an answer of the spout."""
        self.spout.mood, self._calls.is_prompt = mood, not mood.is_late
        is_asked = self.coordinator.asks_ready(self._world.now_ms)
        is_ready = is_asked and self._is_ready()
        self._calls.is_prompt = False
        return self.tick(is_ready=is_ready)

    def _is_ready(self) -> bool:
        if self._calls.is_prompt:
            self._calls.run()
        may_be_idle = bool(self.waits) and not self.coordinator.phases
        poll = self._spouts.poll(0, self._idleness.ask() if may_be_idle else 0)
        if poll is None:
            self._world.seen["late answers of a spout"] += 1
            return False
        if may_be_idle and poll.drained_at:
            self._idleness.found(poll.drained_at)
        return poll.is_ready

    def wait(self) -> None:
        """Somebody begins to wait for all that is available; four at a time do."""
        if len(self.waits) < 4:
            self.waits.append((self._idleness.begin(), list(self._world.log_ends)))

    def go_on(self, which: int, outcome: Outcome) -> None:
        """One step of one work."""
        if not self.work:
            return
        self._world.seen["steps"] += 1
        work = self.work[which % len(self.work)]
        try:
            work.send(outcome)
        except StopIteration:
            self.work.remove(work)
            self._jobs = [job for job in self._jobs if job is not work]

    def go_on_with_a_commit(self, outcome: Outcome = Outcome.GOOD) -> None:
        """One step of the commit phase under way, wherever it is in the list."""
        (at,) = [n for n, work in enumerate(self.work) if work in self._committing]
        self.go_on(at, outcome)

    def advance(self, mood: Mood = Mood()) -> None:  # noqa: B008 - it cannot change
        """One step towards the end, everything going well."""
        if self.work:
            self.go_on(0, Outcome.GOOD)
        if not self.look(mood) and not self.work:
            wakes_at_ms = self.coordinator.wakes_at_ms()
            if not self.coordinator.is_stopped:
                assert wakes_at_ms is not None, "it sleeps for ever"
                self._world.now_ms = max(self._world.now_ms, wakes_at_ms)

    def hang(self, which: int) -> None:
        """The job of a batch in flight never answers."""
        if self._jobs:
            self._world.seen.update(["steps", "hanging jobs"])
            job = self._jobs[which % len(self._jobs)]
            self.work.remove(job)
            self._jobs.remove(job)

    def repeat(self, which: int) -> None:
        """An answer that was given before comes once more."""
        if self._answers:
            before = self._decided()
            actions = self._answers[which % len(self._answers)]()
            assert not actions, "it counted twice"
            assert self._decided() == before, "it counted twice"
            self._world.seen.update(["steps", "repeated answers"])

    def _decided(self) -> tuple[object, ...]:
        """Everything that an answer can change."""
        machine = self.coordinator
        wakes_at_ms = None if machine.is_stopped else machine.wakes_at_ms()
        is_stopped = machine.is_stopped
        return machine.planning, machine.phases, machine.state, wakes_at_ms, is_stopped

    def lose(self, which: int) -> None:
        """An executor that held something of a batch in flight is lost."""
        attempts = list(self.coordinator.phases)
        if attempts:
            self._world.seen.update(["steps", "lost executors"])
            attempt = attempts[which % len(attempts)]
            self.coordinator.now_ms = self._world.now_ms
            self._carry_out(self.coordinator.failed(attempt, "executor lost"))

    def stop(self, *, finish: bool) -> None:
        self._world.seen.update(["steps", "stops"])
        self.is_stopping = True
        self._carry_out(self.coordinator.stop(finish=finish))

    # --- works ---

    def _plan(self, attempt: TransactionAttempt, previous: Json | None) -> Work:
        question, plans = self._idleness.ask(), list[tuple[Json, bool, bool]]()
        self._spouts.plan(
            *(attempt, previous, lambda *plan: plans.append(plan), lambda _: None)
        )
        self.spout.is_broken = (yield) is not Outcome.GOOD
        self._calls.run()
        self.spout.is_broken = False
        yield
        if not plans:
            if self.coordinator.planning == attempt:
                self._planned_to = max(self._planned_to, attempt.txid)
            self._answer(lambda: self.coordinator.initialize_failed(attempt))
            return
        ((metadata, is_empty, is_last),) = plans
        if self.coordinator.planning == attempt:
            self._planned_to = max(self._planned_to, attempt.txid)
        else:
            self._world.seen["void plans"] += 1
        self._idleness.planned(attempt.txid, question, is_last=is_last)
        self._answer(
            lambda: self.coordinator.initialized(attempt, metadata, is_empty=is_empty)
        )

    def _make(self, write: Write) -> Work:
        outcome = yield
        try:
            if outcome is Outcome.FAILED:
                raise StateUnavailableError("no answer")
            store = cast(Store, self._world.store)
            guarded_writes.write(
                store, write.epoch, write.put, write.delete, write.expect
            )
            if outcome is Outcome.UNKNOWN:
                raise StateUnavailableError("no answer in time")
        except KafkaTxError as error:
            self._world.seen[f"writes that met {type(error).__name__}"] += 1
            is_question = not write.put and not write.delete
            if is_question and isinstance(error, FencedError):
                self._world.seen["former owners told before a commit phase"] += 1
            failure = error
            yield
            self.writes -= 1
            write_id = write.write_id
            self._answer(lambda: self.coordinator.store_failed(write_id, failure))
        else:
            yield
            self.writes -= 1
            self._owned = True
            self._answer(lambda: self.coordinator.stored(write.write_id))
            self._owned = False

    def _process(self, attempt: TransactionAttempt) -> Work:
        outcome = yield
        read = {p for p, (start, end) in self._batches[attempt].items() if end > start}
        if read & self._world.damaged:
            self._world.seen["damaged reads"] += 1
            self._damaged_reads[attempt.txid] += 1
            error = DamagedRecordsError("damaged", position=0, next_offset=None)
            self._answer(lambda: self.coordinator.failed(attempt, "damaged", error))
        elif outcome is Outcome.FAILED:
            self._answer(lambda: self.coordinator.failed(attempt, "bolt"))
        else:
            self._answer(lambda: self.coordinator.processed(attempt))

    def _commit(self, attempt: TransactionAttempt, batch: Batch) -> Work:
        """The task of a committer; it goes on although its job was cancelled."""
        outcome = yield
        holder = attempt.attempt_id
        if not self.permits.ask(holder, attempt, "committer"):
            self._world.seen["tasks refused after a cancel"] += 1
            self.commits -= 1
            self._answer(lambda: self.coordinator.commit_failed(attempt, "refused"))
            return
        try:
            self._commit_to_sink(attempt, batch, outcome)
        except FailedException:
            outcome = Outcome.FAILED
        except StateError as error:
            is_former = self.is_lost or self is not self._world.owners[-1]
            assert is_former, "the live owner was refused"
            self._refused(attempt, error)
            return
        yield
        self.commits -= 1
        self.permits.ended(holder)
        if outcome is Outcome.GOOD:
            held = CommitStats(txid=attempt.txid, epoch=attempt.epoch, committed_ms=0)
            record = stats_record({}, held)
            self._answer(lambda: self.coordinator.committed(attempt, record))
        elif outcome is Outcome.UNKNOWN and attempt not in self.coordinator.phases:
            self._world.seen["crashes of given-up commit phases"] += 1
            crash = ComponentError("it ended in an error", component="committer")
            self._answer(lambda: self.coordinator.crashed(attempt, crash))
        else:
            self._answer(lambda: self.coordinator.commit_failed(attempt, "committer"))

    def _refused(self, attempt: TransactionAttempt, refusal: StateError) -> None:
        self._world.seen["commits refused to an old owner"] += 1
        self.commits -= 1
        self.permits.ended(attempt.attempt_id)
        self._answer(lambda: self.coordinator.crashed(attempt, refusal))

    def _commit_to_sink(
        self, attempt: TransactionAttempt, batch: Batch, outcome: Outcome
    ) -> None:
        if outcome is Outcome.FAILED:
            raise FailedException
        self._world.commit(attempt, batch)

    # --- between works and coordinator ---

    def _answer(self, answer: Callable[[], list[Action[Json]]]) -> None:
        self._answers = [*self._answers[-7:], answer]
        self.coordinator.now_ms = self._world.now_ms
        self._carry_out(answer())

    def _begin(self, work: Work) -> Work:
        next(work)
        self.work.append(work)
        return work

    def _carry_out(self, actions: list[Action[Json]]) -> None:
        for action in actions:
            self._carry_out_one(action)
        self._check_waits()
        flying, phases = self._flying, self.coordinator.phases
        assert list(phases) == [flying[txid] for txid in sorted(flying)]
        assert len(phases) <= self._world.pacing.max_pending
        in_commit = [a for a, p in phases.items() if p in _COMMIT_PHASES]
        assert in_commit in ([], list(phases)[:1]), "not the lowest, or not alone"

    def _check_waits(self) -> None:
        """Whoever waits no longer finds what he waited for."""
        for wait in self.waits[:]:
            is_reached, ends = wait
            if is_reached():
                self.waits.remove(wait)
                self._world.seen["waits that ended"] += 1
                is_done = self._world.is_covered(ends)
                assert self.is_lost or is_done, "a wait ended too early"

    def _carry_out_one(self, action: Action[Json]) -> None:
        match action:
            case Initialize(attempt=attempt, previous=previous):
                self._begin(self._plan(attempt, previous))
            case Write():
                self.writes += 1
                assert self.writes == 1, "two writes at once"
                self._begin(self._make(action))
            case StartBatch(attempt=attempt, metadata=metadata):
                self._start(attempt, metadata)
            case StartCommit(attempt=attempt):
                assert self._owned, "it did not ask whether the store is its own"
                self.commits += 1
                assert self.commits == 1, "two commit phases at once"
                self.permits.open(attempt)
                assert attempt.txid == self._committed + 1, "committed out of order"
                work = self._begin(self._commit(attempt, self._batches[attempt]))
                self._committing.append(work)
            case Cancel():
                self._cancel(action)
            case TransactionCommitted(attempt=attempt):
                self._recorded(attempt)
            case Stopped(error=error):
                self._stopped(error)

    def _recorded(self, attempt: TransactionAttempt) -> None:
        assert attempt.txid == self._committed + 1
        assert self._flying.pop(attempt.txid) == attempt
        self._committed = attempt.txid
        if not self.coordinator.phases:
            self._idleness.committed(attempt.txid)
        del self._damaged_reads[attempt.txid], self._failures[attempt.txid]

    def _stopped(self, error: BaseException | None) -> None:
        assert not self._flying, "stopped with batches in flight"
        is_endless = "has not ended" in str(error)
        assert self.commits or not is_endless, "waited for what has ended"
        self.error = error
        if isinstance(error, DamagedRecordsError):
            self._world.seen["topologies that stopped at damage"] += 1
            most = max(self._damaged_reads.values())
            assert most >= TRIES, f"too early: {most}"

    def _cancel(self, cancel: Cancel) -> None:
        attempts = cancel.attempts
        if cancel.outcome is Ended.FAILED and cancel.reason != "damaged":
            self._pauses(attempts[0].txid)
        self._world.seen["cancelled attempts"] += len(attempts)
        for attempt in attempts:
            assert self._flying.pop(attempt.txid) == attempt
            if self.permits.close(attempt):
                self._world.seen["commit phases that outlive their job"] += 1
            self.job_ended(attempt)
        left = [txid for txid in self._flying if txid > attempts[0].txid]
        assert not left, "a later batch was left alive"

    def _pauses(self, txid: int) -> None:
        """The first replay begins at once, the next one after 100 ms, and so on."""
        failures = self._failures[txid] = self._failures[txid] + 1
        pause_ms = min(25 << failures, 5_000) if failures > 1 else 0
        self._begins_at_ms[txid] = self._world.now_ms + pause_ms

    def job_ended(self, attempt: TransactionAttempt) -> None:
        """A cancelled job has ended. That is no answer: its task may go on."""

    def _start(self, attempt: TransactionAttempt, metadata: Json) -> None:
        txid, batch = attempt.txid, ranges(metadata)
        lower = range(self._committed + 1, txid)
        assert all(t in self._flying for t in lower), f"{txid} started before {lower}"
        assert txid not in self._flying
        begins_at_ms = self._begins_at_ms.pop(txid, 0)
        assert begins_at_ms <= self._world.now_ms, f"{txid} was replayed too early"
        self._world.seen["replays after a pause"] += self._failures[txid] > 1
        if not self.is_lost:
            self._world.check_started(attempt, batch)
        self._flying[txid] = attempt
        self._batches[attempt] = batch
        self._jobs.append(self._begin(self._process(attempt)))
