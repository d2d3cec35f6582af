"""The ledger of transactions: the ranges of each txid, and the committed position.

Paths of the records in a store: ``txid_layout``.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kafka_tx.errors import (
    BatchIdsAgainError,
    ConfigError,
    OutOfOrderError,
    StateConflictError,
    StateLostError,
)
from kafka_tx.model import BatchMetadata, LogPosition, QueryShape, TopicPartition
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import (
    Committed,
    after,
    batch_record,
    first_stored,
    position_records,
    shape_fields,
)
from kafka_tx.transactions.layout.commit_stats import (
    HISTORY,
    STATS,
    CommitStats,
    TaskSums,
    history_of,
    stats_record,
    with_task_sums,
)
from kafka_tx.transactions.layout.txid_layout import (
    ALIVE,
    ASKED,
    CALL,
    COMMITTED,
    METADATA,
    NUMBERING,
    OWNER,
    QUERY,
    Door,
    Numbering,
    metadata_path,
    new_name,
    position,
    refuse_moved,
    txid_of,
)
from kafka_tx.transactions.ledger.batch_ids import IGNORED, ids_again, unproven
from kafka_tx.transactions.ledger.ledger_reading import (
    LedgerReader,
    LedgerState,
    OwnedPosition,
)
from kafka_tx.transactions.ownership.guarded_writes import take_over
from kafka_tx.transactions.ownership.refusals import fenced, lost
from kafka_tx.transactions.ownership.takeover import DraftingStore

__all__ = ["Committed", "Ledger", "LedgerState"]

_TRIES = 10
"""A conflict means that the other process of this owner has made one step; ten in a row
mean another fault."""

_T = TypeVar("_T")
_Decide = Callable[[LedgerState], _T]


@dataclass(slots=True)
class _Change:
    """What decisions on ``seen`` write, one after the other, and the state then."""

    seen: LedgerState
    after: LedgerState
    epoch: int = 0
    put: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def add(self, epoch: int, put: Mapping[str, str], gone: Collection[str]) -> None:
        self.epoch = epoch
        self.put = {p: text for p, text in self.put.items() if p not in gone}
        self.put |= put
        self.gone = (self.gone | {*gone}) - put.keys()


@dataclass(frozen=True, slots=True)
class _Delayed:
    """A commit that the next write takes along, and what it changes for now."""

    change: _Change
    decide: _Decide[bool]
    told: Callable[[bool], None]


class Ledger:
    """Reads and writes the transactions of one id.

    1. The planning process takes the id over: ``draft``, then ``load``. It checks
       the state and makes its first writes, all in memory; ``publish`` writes them to
       the store, if the store has not changed.
    2. It stores the ranges of txid n before any task may read them: ``plan``.
    3. n is done: ``commit``, from the listener in the user's process, or
       ``commit_with_next``, from the planning process; or from both. The first one
       writes; the other finds the commit.

    Both processes write under one epoch. Every write expects the position that its
    decision was made on; if the other process has moved it, the decision is made again.
    The store is read only if the state that was read or written last does not suffice.
    If the store is behind that state, or another one, it is lost: nothing is decided on
    it. Blocks as long as its store does. Several threads may use one object.
    """

    def __init__(
        self, store: Store, history: int = HISTORY, sink_batch_ids: str = ""
    ) -> None:
        self._history = history_of(store.url, history)
        self._sink_batch_ids = sink_batch_ids
        self._store = DraftingStore(store)
        self.url, self.id = store.url, store.id
        self._reader = LedgerReader(store.url, store.id)
        self._owned = OwnedPosition(store)
        self.state = LedgerState(0, None, {})
        """The state that this object has read or written last."""
        self._is_current = False
        self._is_owner = False
        self._left: list[LedgerState] = []
        """The state that was left under ``_left_epoch``; two while the outcome of a
        write is unknown."""
        self._left_epoch = 0
        self._tried: str | None = None
        """The last commit that this object tried, while the outcome is unknown."""
        self._change: _Change | None = None
        """Of the decisions that are being made."""
        self._delayed: _Delayed | None = None

    def acquire(self, above: int = 0) -> int:
        """Become the owner and return the new epoch; former owners are fenced.

        The new epoch is also greater than ``above``. Raises: as ``Store.epoch``.
        """
        self.settle()
        epoch = take_over(self._store, above)
        self._is_owner, self._is_current, self._left = True, False, []
        return epoch

    def draft(self) -> int:
        """As ``acquire``, but nothing changes in the store before ``publish``."""
        self._store.draft()
        return self.acquire()

    def publish(self) -> None:
        """As ``DraftingStore.publish``: become the owner, and write the changes."""
        self._store.publish()

    def load(self) -> LedgerState:
        """The whole state, from one read. Writes nothing; needs no ownership.

        Raises:
            StateCorruptedError: A record cannot be read, or two contradict each other.
            StateLostError: The store is behind this object's state, or another store.
            StateUnavailableError: The store does not answer.
            StateError: The id is a topology's. Or the id was copied to another store,
                and this object is its owner.
        """
        self.settle()
        seen = self._read()
        if self._is_owner:
            refuse_moved(self._store, seen.texts)
        return seen

    def plan(
        self, epoch: int, metadata: BatchMetadata, *, replace: bool = False
    ) -> None:
        """Store the ranges of a txid, before anything of it is emitted.

        The txid must be the first one without metadata. Storing the same ranges again
        changes nothing. With ``replace`` (opaque mode) an unfinished txid may get other
        ranges; later ones, which began where it ended, are dropped with it.

        Raises:
            OutOfOrderError: The txid is committed already, leaves a gap, or has other
                ranges and ``replace`` is not set.
            FencedError: ``epoch`` is not the current one.
            StateLostError: The store is behind this object's state, or another store.
            StateCorruptedError: A needed record cannot be read.
            StateUnavailableError: The store does not answer.
        """
        self._until_unmoved(lambda seen: self._plan(seen, epoch, metadata, replace))

    def commit(
        self,
        epoch: int,
        txid: int,
        completed_ms: int,
        *,
        from_tasks: TaskSums | None = None,
        logged: int = 0,
        is_bounded: bool = False,
    ) -> bool:
        """Mark a txid committed, in one atomic write; True if this call did it.

        Its ends become the committed offsets (other partitions keep theirs), metadata
        of lower txids is deleted, ``currtx`` becomes the next txid. False, without a
        write, if the other process has committed the txid. ``from_tasks`` is of its
        tasks. ``logged`` is the epoch of the entry in Spark's log that has ended.
        ``is_bounded``: by a run that ends by itself.
        Source: Storm, TransactionalSpoutCoordinator.ack (deviates: one atomic write).

        Raises, beside the errors of ``plan``:
            OutOfOrderError: An earlier txid is not committed, or no ranges are known.
            BatchIdsAgainError: The batch is ``unproven`` under this entry, and the
                user's word does not vouch for the sink.
            StateUnavailableError: The store does not answer; unknown if it landed.
        """
        stats = CommitStats(
            txid=txid,
            epoch=epoch,
            committed_ms=completed_ms,
            from_tasks=from_tasks or TaskSums(),
            is_bounded=is_bounded,
        )
        return self._until_unmoved(lambda seen: self._commit(seen, stats, logged))

    def commit_with_next(
        self,
        epoch: int,
        txid: int,
        completed_ms: int,
        told: Callable[[bool], None],
        *,
        logged: int = 0,
        is_bounded: bool = False,
    ) -> None:
        """As ``commit``, in one write with whatever this object writes next.

        ``state`` shows the commit at once. ``settle`` ends the delay. ``told`` gets
        what ``commit`` would return, after the write. If the write raises an error, the
        commit is not stored; whoever reads Spark's log commits it later.
        """
        stats = CommitStats(
            txid=txid, epoch=epoch, committed_ms=completed_ms, is_bounded=is_bounded
        )

        def decide(seen: LedgerState) -> bool:
            return self._commit(seen, stats, logged)

        def look(seen: LedgerState) -> tuple[bool, _Change]:
            change = _Change(seen, seen)
            return self._decided(change, decide), change

        self.settle()
        is_first, change = self._on_state(look)
        if is_first:
            self._delayed = _Delayed(change, decide, told)
            self.state = change.after
        else:
            told(False)

    def settle(self) -> None:
        """Write a delayed commit; raises as ``commit``."""
        if self._delayed is not None:
            self._until_unmoved(lambda _: None)

    def store_task_sums(
        self, epoch: int, from_tasks: Mapping[tuple[int, int], TaskSums]
    ) -> None:
        """Store the task reports of committed txids that are not stored yet.

        For the listener: the planning process often commits first, and has no task
        reports. ``from_tasks`` is by epoch of the commit and txid.

        Raises: as ``describe``.
        """

        def decide(seen: LedgerState) -> None:
            put = with_task_sums(seen.texts, from_tasks)
            if put:
                self._write(seen, epoch, put, [])

        self._until_unmoved(decide)

    def adopt(
        self,
        epoch: int,
        committed: Committed,
        numbering: str = "",
        *,
        keeps_later: bool = False,
    ) -> None:
        """Set the position to ``committed`` unconditionally; drop all metadata.

        For a position that a checkpoint or a person decided. The next txid is
        ``committed.txid + 1``, of the stored numbering unless another one is given.
        ``keeps_later``: metadata of later txids stays. Works even if records cannot be
        read.

        Raises:
            ConfigError: A negative txid or offset.
            FencedError, StateLostError, StateUnavailableError: As of ``plan``.
        """
        if committed.txid < 0 or any(o < 0 for o in committed.offsets.values()):
            raise ConfigError.illegal(
                "committed", committed, "txid and every offset at least 0"
            )
        put = position_records(committed)
        last = committed.txid if keeps_later else math.inf

        def gone(texts: Mapping[str, str]) -> list[str]:
            return [
                p
                for p in texts
                if p == STATS or (p.startswith(METADATA) and txid_of(p) <= last)
            ]

        if self.state.texts:
            self._until_unmoved(
                lambda seen: self._write(
                    seen,
                    epoch,
                    {**put, **_named(seen.texts, numbering)},
                    gone(seen.texts),
                )
            )
        else:  # a person's tool: the records may be corrupted
            texts = self._store.read()
            self._store.write(epoch, put | _named(texts, numbering), gone(texts))

    def describe(self, epoch: int, query: QueryShape) -> None:
        """Store the shape of the query that reads this id.

        Raises:
            FencedError, StateLostError: As of ``plan``.
            StateUnavailableError: The store does not answer; unknown if it landed.
        """
        put = {QUERY: records.encode(QUERY, shape_fields(query))}
        self._until_unmoved(lambda seen: self._write(seen, epoch, put, []))

    def note_question(self, epoch: int) -> None:
        """Store that the txid of a batch was asked for; raises as ``describe``."""
        put = {ASKED: records.encode(ASKED, True)}
        self._until_unmoved(lambda seen: self._write(seen, epoch, put, []))

    def ids_again(self) -> BatchIdsAgainError:
        """The error for a start whose sink may drop the next batches."""
        epoch, state = self._store.inside.epoch(), self.state
        return ids_again(self._store, state.txid, epoch, state.query)

    # --- signs of life ---

    def beat(self, epoch: int) -> None:
        """Leave a new sign of life, the answer to any call; as ``Store.write``."""
        sign = records.encode(ALIVE, secrets.token_hex(4))
        self._store.write(epoch, {ALIVE: sign}, [CALL])

    def answer(self, epoch: int) -> None:
        """As ``beat`` if somebody calls; otherwise nothing is written. One read.

        For any thread: nothing else of this object is used.
        """
        if self._store.get(CALL) is not None:
            self.beat(epoch)

    def let_go(self, epoch: int) -> None:
        """Remove the sign: nobody need wait for us; raises as ``Store.write``."""
        self._store.write(epoch, {}, [ALIVE, CALL])

    def call(self) -> Mapping[str, str | None] | None:
        """Ask whether the owner lives, and return the signs from before.

        An owner that lives changes ``signs`` the next time that it reads the store; one
        that is frozen does not. None: nobody has to answer.

        Raises:
            FencedError: Another owner took over meanwhile.
            StateUnavailableError, StateError: As of ``Store.write``.
        """
        epoch = self._store.inside.epoch()  # first: the signs are those of its owner
        signs = self.signs()
        if signs is not None:
            call = records.encode(CALL, secrets.token_hex(4))
            self._store.inside.write(epoch, {CALL: call})
        return signs

    def signs(self) -> Mapping[str, str | None] | None:
        """Records that change when an owner works or answers a ``call``.

        None: no owner, or it has let go. Raises: as ``Store.epoch``.
        """
        texts = self._store.inside.read()
        alive = texts.get(ALIVE)
        return None if alive is None else {**position(texts), ALIVE: alive}

    # --- reading ---

    def check(self, epoch: int) -> None:
        """Check in one read that we own the store as we left it; as ``plan``.

        A call that this read finds is answered.
        """
        self.settle()
        seen = self._read()
        self._must_be(self._left_epoch, epoch)
        if CALL in seen.texts:
            self.beat(epoch)

    def is_as_left(self) -> bool:
        """Whether all records are those that this object has read or written last.

        The owner's word is among them, so no owner came, and no call. For an owner that
        does nothing: nothing is written, and the epoch is not asked for.
        """
        texts = self.state.texts
        is_known = self._is_current and OWNER in texts and CALL not in texts
        return is_known and self._store.read() == texts

    def owned(self, epoch: int) -> dict[TopicPartition, LogPosition] | None:
        """As ``OwnedPosition.of``, for one more thread."""
        return self._owned.of(epoch)

    def sinks(self, numbering: str) -> dict[str, int]:
        """As ``Store.sinks``."""
        return self._store.sinks(numbering)

    def close(self) -> None:
        """Release the store's connections. Calling it twice is harmless."""
        self._store.close()

    # --- one decision -------------------------------------------------------------

    def _plan(
        self, seen: LedgerState, epoch: int, metadata: BatchMetadata, replace: bool
    ) -> None:
        txid = metadata.txid
        path, text = metadata_path(txid), batch_record(metadata)
        later = [n for n in seen.planned if n > txid]
        if not seen.txid < txid <= seen.newest + 1:
            raise self._out_of_order(epoch, txid, seen, "be planned")
        if seen.texts.get(path) == text:
            later = []
        elif path in seen.texts and not replace:
            self._must_own(epoch)
            raise OutOfOrderError(
                f"txid {txid} of '{self._store.id}' is planned with other ranges"
                " already; a transactional txid keeps its ranges on every replay",
                id=self._store.id,
                txid=txid,
            )
        self._write(seen, epoch, {path: text}, [metadata_path(n) for n in later])

    def _commit(self, seen: LedgerState, stats: CommitStats, logged: int) -> bool:
        epoch, txid = stats.epoch, stats.txid
        if txid <= seen.txid:
            self._must_own(epoch)
            landed = txid == seen.txid and seen.texts.get(COMMITTED) == self._tried
            self._tried = None
            return landed
        metadata = seen.planned.get(txid)
        if txid > seen.txid + 1 or metadata is None:
            raise self._out_of_order(epoch, txid, seen, "be committed")
        if logged in metadata.unproven and self._sink_batch_ids != IGNORED:
            self._must_own(epoch)
            epoch = self._store.inside.epoch()  # which the next start finds
            raise unproven(self._store, txid, epoch, seen.query)
        put = position_records(after(seen.committed, metadata, stats.committed_ms))
        stats = replace(stats, attempts=metadata.attempts, skipped=metadata.skipped)
        put |= stats_record(seen.texts, stats, self._history)
        kept = first_stored(seen.planned, txid)
        gone = [metadata_path(n) for n in seen.planned if n < kept]
        self._tried = put[COMMITTED]
        self._write(seen, epoch, put, gone)
        return True

    def _write(
        self, seen: LedgerState, epoch: int, put: Mapping[str, str], gone: list[str]
    ) -> None:
        """Add a decision on a state to what is written once all are made."""
        assert self._change is not None
        put = {**put, **_named({**seen.texts, **put})}
        self._change.after = self._reader.after(seen, put, gone)
        self._change.add(epoch, put, gone)

    def _decided(self, change: _Change, decide: _Decide[_T]) -> _T:
        """Add to a change what a decision on the state after it writes."""
        self._change = change
        try:
            return decide(change.after)
        finally:
            self._change = None

    def _store_change(self, change: _Change) -> None:
        """Write what was decided, and cache the records after the write."""
        if not change.epoch:
            return
        self._is_current = False  # if the outcome stays unknown
        self._left = [*self._left[:1], change.after]
        expect = position(change.seen.texts)
        self._store.write(change.epoch, change.put, [*change.gone], expect=expect)
        self._tried = None
        self._know(change.after, change.epoch)

    def _read(self) -> LedgerState:
        """Read everything, and compare it with the state that was left."""
        self._is_current = False
        epoch = self._store.epoch()  # first: an old epoch only gets us fenced
        seen = self._reader.read(self._store.read(), epoch)
        is_known = bool(self._left) and epoch <= self._left_epoch
        if is_known and (
            epoch < self._left_epoch
            or not any(x.leads_to(seen, is_alone=self._is_owner) for x in self._left)
        ):
            epoch = self._store.epoch()
            if epoch <= self._left_epoch:
                raise self._lost(epoch, seen)
        self._know(seen, epoch)
        return seen

    def _know(self, state: LedgerState, epoch: int) -> None:
        self.state, self._left, self._left_epoch = state, [state], epoch
        self._is_current = True

    def _lost(self, epoch: int, seen: LedgerState) -> StateLostError:
        left = f"at txid {self._left[0].txid}"
        found = f"at txid {seen.txid}"
        if epoch < self._left_epoch or left == found:
            left = f"{left} under epoch {self._left_epoch}"
            found = f"{found} under epoch {epoch}, with other records"
        return lost(self._store, left=left, found=found)

    def _until_unmoved(self, decide: _Decide[_T]) -> _T:
        """Decide and write; the commit that was delayed comes first, if any."""
        delayed, self._delayed = self._delayed, None

        def act(seen: LedgerState) -> tuple[bool, _T]:
            change, is_first = _Change(seen, seen), False
            if delayed is not None and seen is delayed.change.seen:
                change, is_first = delayed.change, True
            elif delayed is not None:
                is_first = self._decided(change, delayed.decide)
            answer = self._decided(change, decide)
            self._store_change(change)
            return is_first, answer

        if delayed is not None:
            self.state = delayed.change.seen
        is_first, answer = self._on_state(act)
        if delayed is not None:
            delayed.told(is_first)
        return answer

    def _on_state(self, act: _Decide[_T]) -> _T:
        """Act on the cached state; without one, or after a conflict, read anew."""
        if self._is_current:
            try:
                return act(self.state)
            except (StateConflictError, OutOfOrderError):
                pass
        for _ in range(_TRIES - 1):
            try:
                return act(self._read())
            except StateConflictError:
                continue
        return act(self._read())

    def _must_own(self, epoch: int) -> None:
        """Check the epoch first: a fenced owner must not judge the records."""
        self._must_be(self._store.epoch(), epoch)

    def _must_be(self, stored: int, epoch: int) -> None:
        if stored != epoch:
            raise fenced(self._store, held=epoch, stored=stored)

    def _out_of_order(
        self, epoch: int, txid: int, seen: LedgerState, wish: str
    ) -> OutOfOrderError:
        self._must_own(epoch)
        waiting = [n for n in seen.planned if n > seen.txid]
        return OutOfOrderError(
            f"txid {txid} of '{self._store.id}' cannot {wish} now: committed is"
            f" {seen.txid}, planned and unfinished: {waiting or 'none'}. Txids are"
            " planned and committed one after the other, without a gap.",
            id=self._store.id,
            txid=txid,
            committed=seen.txid,
            planned=waiting,
        )


def _named(texts: Mapping[str, str], numbering: str = "") -> dict[str, str]:
    """The numbering record to add: the given numbering, or a first one."""
    if NUMBERING in texts and not numbering:
        return {}
    return Numbering(numbering or new_name(), Door.SOURCE).record
