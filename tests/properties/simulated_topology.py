"""A topology without threads: owners, a store, a log and a sink, one step at a time.

``World`` holds what survives a crash; an ``Owner`` is one live driver. Whoever drives
them decides what happens next and how it ends; the world asserts the promises after
each step.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kafka_tx.config import Mode
from kafka_tx.errors import StateLostError
from kafka_tx.model import SpoutBatch, TransactionAttempt, Unavailable
from kafka_tx.sinks.store_beside import check_store_beside
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.pacing import Pacing
from kafka_tx.transactions.layout.commit_stats import stats_in
from kafka_tx.transactions.layout.txid_layout import NUMBERING, Door, position
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader
from tests.properties.simulated_owner import Mood, Outcome, Owner
from tests.properties.simulated_store import Batch, SimulatedStore, Sink, ranges


@dataclass(frozen=True)
class State:
    """What a database held: the store's records and epoch, and the sink's rows."""

    values: Mapping[str, str]
    epoch: int
    newest: TransactionAttempt
    rows: Mapping[tuple[int, str], tuple[int, int, int]]
    positions: Mapping[int, int]


TAKE = 3
PARTITIONS_AT_MOST = 5
PAUSE_MS = 20
TIMEOUT_MS = 1_000


class World:
    """What survives: the log, the store, the sink, and what was promised so far."""

    def __init__(
        self,
        mode: Mode,
        max_pending: int,
        coordinator: type[TransactionCoordinator[Any]] = TransactionCoordinator,
        owner: type[Owner] = Owner,
    ) -> None:
        self.mode: Mode = mode
        self.owner = owner
        self.coordinator = coordinator
        self.pacing = Pacing(
            max_pending=max_pending,
            timeout_ms=TIMEOUT_MS,
            emit_interval_ms=0,
            idle_pause_ms=PAUSE_MS,
            retry_ms=PAUSE_MS,
        )
        self.log_ends = [0, 0]
        self.unreadable: set[int] = set()
        self.damaged: set[int] = set()
        self.now_ms = 0
        self.seen: Counter[str] = Counter()
        """How often something happened; ``steps`` is all of it."""
        self.store = SimulatedStore(self)
        self.sink = Sink(mode)
        self.attempts: set[int] = set()
        self.contents: dict[int, Batch] = {}
        self.positions: dict[int, int] = {}
        self._states: deque[State] = deque(maxlen=12)
        """What one database with the store and the sink held, newest last."""
        self.has_changed()
        self.owners = [owner(self)]

    # --- what happens outside ---

    def produce(self, partition: int, records: int) -> None:
        self.seen["steps"] += 1
        self.log_ends[partition % len(self.log_ends)] += records

    def grow(self) -> None:
        self.seen["steps"] += 1
        if len(self.log_ends) < PARTITIONS_AT_MOST:
            self.log_ends.append(0)

    def toggle(self, partition: int) -> None:
        """A partition cannot be read any more, or can again."""
        self.seen["steps"] += 1
        self.unreadable ^= {partition % len(self.log_ends)}

    def damage(self, partition: int) -> None:
        """Records of a partition cannot be decoded any more, or can again."""
        self.seen["steps"] += 1
        self.damaged ^= {partition % len(self.log_ends)}

    def crash(self) -> None:
        """Every live driver dies; a new one starts."""
        self.seen.update(["steps", "crashes"])
        if self.sink.newest.txid == self.store.currtx():
            self.seen["crashes between commit and record"] += 1
        self.owners = [self.owner(self)]

    def take_over(self) -> None:
        """A second driver starts; the first one does not know yet."""
        self.seen.update(["steps", "takeovers"])
        self.owners = [*self.owners[-1:], self.owner(self)]

    def overtake_in_commit(self) -> None:
        """An owner freezes in its commit phase; another one commits that txid, too."""
        frozen = self.owners[-1]
        if not frozen.commits:
            return
        self.take_over()
        owner, before = self.owners[-1], self.seen["commits"]
        for _ in range(200):
            owner.advance()
            if self.seen["commits"] > before:
                break
        while frozen.commits:
            frozen.go_on_with_a_commit()

    def commit(self, attempt: TransactionAttempt, batch: Batch) -> None:
        """A map in the store's database, which compares the two.

        Not with an empty store: nobody reads what is written then, as the map gets
        another name once the next numbering has begun.
        """
        texts, epoch = self.store.values, self.store.epoch
        how = {"what": "the map", "store": "memory:"}
        try:
            is_known = check_store_beside(attempt, texts, epoch, **how)
        except StateLostError:
            self.seen["commits refused as the store beside went back"] += 1
            raise
        if is_known:
            self.sink.commit(attempt, batch)
            self.has_changed()
        self.seen["commits beside an empty store"] += not is_known

    def has_changed(self) -> None:
        sink = self.sink.newest, dict(self.sink.rows)
        store = dict(self.store.values), self.store.epoch
        self._states.append(State(*store, *sink, dict(self.positions)))

    def go_back(self, steps: int, *, is_beside: bool, is_frozen: bool = False) -> None:
        """The store becomes what it was, under a living owner that has to notice.

        The sink goes back with it if it is beside it. If it is elsewhere, the operator
        does what the error says, and puts the store right before he starts again. A
        frozen owner notices only after the next one has started.
        """
        if self.owners[-1].coordinator.is_stopped:  # by damage
            self.crash()
        self.has_changed()
        self.damaged.clear()  # what stops them shall be the store
        states = list(self._states)
        right, back = states[-1], states[max(0, len(states) - 1 - steps)]
        lost = self.owners
        if any(owner.is_stopping for owner in lost) or self._is_as_left(back):
            return
        for owner in lost:
            self._lose(owner, ids_come_again=back.epoch < right.epoch)
        self._restore(back, sink=is_beside)
        self._states = deque([back], maxlen=12)
        is_frozen = is_frozen and is_beside and back.epoch == right.epoch
        for owner in lost[: -1 if is_frozen else None]:
            self._notices(owner)
        if is_beside:
            self._goes_on_from(back)
        else:
            self._restore(right, sink=False)
        where = "in it" if is_beside else "elsewhere"
        self.seen[f"stores that went back, sink {where}"] += 1
        self.crash()
        if is_frozen:
            self._wakes(lost[-1], steps)

    def _lose(self, owner: Owner, *, ids_come_again: bool) -> None:
        owner.is_lost = True
        while ids_come_again and owner.commits:
            owner.go_on_with_a_commit()

    def _goes_on_from(self, back: State) -> None:
        assert self.sink.newest.txid <= self.store.currtx(), "written over a gap"
        if NUMBERING not in back.values:  # "give its sinks new names"
            self.sink = Sink(self.mode)
        self.contents = {
            txid: batch
            for txid, batch in self.contents.items()
            if f"meta/{txid}" in back.values
        }
        self.attempts.clear()

    def _wakes(self, frozen: Owner, steps: int) -> None:
        """Perhaps the next owner has planned the txid by then, with more records."""
        self.produce(steps, steps)
        for _ in range(2 * steps):
            self.owners[-1].advance()
        self.owners = [frozen, *self.owners]
        while frozen.commits:
            frozen.go_on_with_a_commit()

    def _is_as_left(self, back: State) -> bool:
        """Whether no write went back, or one whose answer has not come.

        What the sink alone wrote last may be gone, too: its map remembers that.
        """
        known = []
        for coordinator in (owner.coordinator for owner in self.owners):
            stored = dict(coordinator.state.texts)
            known.append(position(stored))
            for change in list(coordinator._writes._pending)[:1]:
                kept = {p: t for p, t in stored.items() if p not in change.delete}
                known.append(position(kept | dict(change.put)))
        return position(back.values) in known

    def _notices(self, owner: Owner) -> None:
        for _ in range(2_000):
            if owner.coordinator.is_stopped:
                break
            owner.coordinator.activate()
            owner.advance()
        assert owner.coordinator.is_stopped, "it did not notice"
        error = owner.error
        is_former = owner is not self.owners[-1]
        assert is_former or isinstance(error, StateLostError), error

    def _restore(self, state: State, *, sink: bool) -> None:
        self.store.values, self.store.epoch = dict(state.values), state.epoch
        self.positions = dict(state.positions)
        if sink:
            self.sink.newest, self.sink.rows = state.newest, dict(state.rows)

    def listed(self) -> list[int]:
        """What a metadata answer shows: an odd partition that is lost is not in it."""
        hidden = {p for p in self.unreadable if p % 2}
        return [p for p in range(len(self.log_ends)) if p not in hidden]

    def offers(self, lasts: Mapping[str, Any]) -> dict[str, Any]:
        offers: dict[str, Any] = {}
        for name, last in lasts.items():
            partition, start = int(name), last["end"] if last else 0
            end = min(start + TAKE, self.log_ends[partition])
            is_lost = partition in self.unreadable
            self.seen["offers missed"] += is_lost
            found = {"start": start, "end": end}
            offers[name] = Unavailable("no leader") if is_lost else found
        return offers

    # --- what was promised ---

    def check_started(self, attempt: TransactionAttempt, batch: Batch) -> None:
        assert attempt.attempt_id not in self.attempts, f"{attempt} was used before"
        self.attempts.add(attempt.attempt_id)
        if self.mode == "transactional":
            self.seen["identical replays"] += attempt.txid in self.contents
            first = self.contents.setdefault(attempt.txid, batch)
            assert batch == first, f"{attempt} holds {batch}, at first {first}"

    def check_recorded(self, txid: int) -> None:
        """The txid is done: in its turn, its ranges go on exactly, the sink agrees."""
        self.seen["commits"] += 1
        assert self.sink.newest.txid == txid
        values = self.store.values
        found = LedgerReader("memory:", "sim", Door.TRANSACTIONAL).read(values)
        done = cast(SpoutBatch, found.planned[txid])
        batch = ranges(done.json or {})
        for partition, (start, end) in batch.items():
            begin = self.positions.get(partition, 0)
            assert start == begin <= end, f"{txid}: {partition} from {begin}: {start}"
            self.positions[partition] = end
        assert set(self.positions) == set(batch), "a partition lost its position"
        assert self.store.txids("meta")[0] == txid, "not cleaned up"
        assert [held.txid for held in stats_in(values)] == [txid], "of another batch"
        self.check_counts()

    def check_counts(self) -> None:
        for partition, end in self.positions.items():
            assert self.sink.value(partition, "count") == end
            assert self.sink.value(partition, "sum") == sum(range(end))

    # --- the end ---

    def settle(self) -> None:
        """Heal everything; whatever is in the log must be counted, exactly once.

        The newest owner must get there by itself; one that was told to stop must stop.
        """
        self.unreadable.clear()
        self.damaged.clear()
        owner = self.owners[-1]
        owner.coordinator.activate()
        for _ in range(5_000):
            if owner.coordinator.is_stopped:
                self.crash()
                owner = self.owners[-1]
            if not owner.is_stopping and self.is_covered(self.log_ends):
                break
            owner.advance()
        assert self.is_covered(self.log_ends), "left over, or it did not stop"
        self.check_counts()
        self._await_all(owner)

    def _await_all(self, owner: Owner) -> None:
        """Whoever waits comes to an end, once the spout knows whether it is drained."""
        for is_eager in (False, True):
            owner.wait()
            for is_unsure in [True] * 8 + [False] * 30:
                if not owner.waits:
                    break
                owner.advance(Mood(is_eager=is_eager, is_unsure=is_unsure))
            assert not owner.waits, "somebody waits for ever"

    def is_covered(self, ends: Sequence[int]) -> bool:
        return all(self.positions.get(p, 0) >= end for p, end in enumerate(ends))


def run(world: World, data: bytes, *, is_quiet: bool = False) -> None:
    """One step for each pair of bytes, mostly good ones, on any live owner.

    Quiet: no records come, so that all are done now and then.
    """
    for kind, detail in zip(data[::2], data[1::2], strict=False):
        owner = world.owners[detail % len(world.owners)]
        if kind < 80:
            if detail % 16 == 1:
                owner.wait()
            shy, eager = detail % 8 == 0, detail % 3 > 0
            owner.look(Mood(shy, eager, detail % 5 == 0, detail % 7 == 0))
        elif kind < 230:
            outcome = Outcome.GOOD if kind < 215 else Outcome(1 + detail % 2)
            owner.go_on(detail, outcome)
        elif is_quiet:
            world.now_ms += detail // 4
        elif kind < 250:
            world.produce(detail % 8, detail // 32)
        else:
            world.now_ms += detail * 2
