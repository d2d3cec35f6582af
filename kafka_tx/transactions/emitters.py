"""What each batch takes from each partition: the exact and the opaque emitter.

Both run in the driver beside the transaction coordinator and answer with data only. A
*batch* maps partitions to metadata of any type, such as an offset range; how much a new
batch takes is the spout's offer. All partitions of a txid are one record of the store,
``<prefix>/<txid>``, written in one step with what the coordinator writes:

1. ``Initialize(attempt)``: ``lasts`` tells from where each partition goes on; the spout
   makes its offers; ``plan`` gives the batch and the change for ``initialized``.
2. ``StartBatch(attempt)``: ``batch`` tells what to read. Task i of n reads ``owned``.
3. ``StartCommit(attempt)``: ``commit`` gives the change for ``committed``.
4. A ``Write`` has succeeded: ``apply`` it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_tx.errors import ConfigError, FailedException, OutOfOrderError
from kafka_tx.model import TransactionAttempt, Unavailable
from kafka_tx.transactions.rotating import Change, Codec, RotatingState

P = TypeVar("P", bound=Hashable)
M = TypeVar("M")


@dataclass(frozen=True)
class BatchPlan(Generic[P, M]):
    """What a batch takes from each partition, and what is stored with its metadata.

    The partitions are frozen in it: a replay never reads one that was added later.
    """

    batch: Mapping[P, M]
    change: Change


def owned(partitions: Sequence[P], index: int, tasks: int) -> list[P]:
    """Every ``tasks``-th partition from ``index`` on: those of task ``index``.

    Raises:
        ConfigError: ``index`` is not one of 0 … tasks - 1.
    """
    if not 0 <= index < tasks:
        raise ConfigError.illegal("task index", index, f"0 to {tasks - 1}")
    return list(partitions[index::tasks])


class ExactEmitter(Generic[P, M]):
    """A txid holds the same ranges for ever, whatever has happened since.

    Source: Storm, PartitionedTransactionalSpoutExecutor (deviates: stores before it
    emits, all partitions at once; a partition that is not listed keeps its position).

    Args:
        codec: Between a batch and the store's text.
        empty_after: The metadata of nothing, right after this one.
        prefix: Where in the store.
    """

    def __init__(
        self,
        codec: Codec[Mapping[P, M] | None],
        empty_after: Callable[[M], M],
        *,
        prefix: str = "user",
    ) -> None:
        self._states = RotatingState[Mapping[P, M]](prefix, codec)
        self._empty_after = empty_after

    def load(self, stored: Mapping[str, str]) -> None:
        """Begin from everything the store holds.

        Raises:
            StateCorruptedError: A record cannot be read.
        """
        self._states.load(stored)

    def apply(self, change: Change) -> None:
        """Follow a change that is in the store now."""
        self._states.apply(change)

    def lasts(self, txid: int, partitions: Iterable[P]) -> dict[P, M | None]:
        """From which metadata each partition of a new batch goes on; None: from none.

        Partitions known before come first, listed now or not; then the new ones. Empty
        for a txid that is planned already, or that a later one has overtaken.

        Raises:
            OutOfOrderError: Nothing is known of the batch before.
        """
        known = self._states.txids()
        if any(other >= txid for other in known):
            return {}
        _check_predecessor(txid, known)
        return _union(_positions(map(self._states.state, known)), partitions)

    def plan(
        self,
        attempt: TransactionAttempt,
        partitions: Iterable[P],
        offers: Mapping[P, M | Unavailable],
    ) -> BatchPlan[P, M]:
        """The batch of a txid: what is stored, else what is offered now.

        A partition without an offer, or that cannot be read now, gives an empty range
        at its position; without a position yet, it is left out and is new next time. A
        txid that a later one has overtaken holds nothing, now and on every replay.

        Raises:
            OutOfOrderError: Nothing is known of the batch before.
        """
        lasts = self.lasts(attempt.txid, partitions)
        offered = _filled(lasts, offers, self._empty_after)
        batch, change = self._states.get_state(attempt.txid, lambda *_: offered)
        return BatchPlan(batch or {}, change)

    def batch(self, attempt: TransactionAttempt) -> Mapping[P, M]:
        """What an attempt reads: the same for every attempt of its txid.

        Raises:
            OutOfOrderError: The txid was never stored, or is cleaned up.
        """
        return self._states.state(attempt.txid) or {}

    def commit(self, attempt: TransactionAttempt) -> Change:
        """Clean up strictly below; this txid stays, the next one goes on from it."""
        return self._states.cleanup_before(attempt.txid)


class OpaqueEmitter(Generic[P, M]):
    """A batch holds what is readable when it is planned, from where the last one ended.

    Uncommitted batches live in memory, each chained from the one before it; a batch is
    stored when it commits, so one that never commits leaves no trace.

    Source: Storm, OpaquePartitionedTransactionalSpoutExecutor (deviates: a predecessor
    is required; a partition that cannot be read never loses its position).

    Args:
        codec: Between a batch and the store's text.
        empty_after: The metadata of nothing, right after this one.
        prefix: Where in the store.
    """

    def __init__(
        self,
        codec: Codec[Mapping[P, M] | None],
        empty_after: Callable[[M], M],
        *,
        prefix: str = "user",
    ) -> None:
        self._states = RotatingState[Mapping[P, M]](prefix, codec)
        self._empty_after = empty_after
        self._cached: dict[int, tuple[TransactionAttempt, Mapping[P, M]]] = {}

    def load(self, stored: Mapping[str, str]) -> None:
        """Begin from everything the store holds; nothing is remembered.

        Raises:
            StateCorruptedError: A record cannot be read.
        """
        self._states.load(stored)
        self._cached = {}

    def apply(self, change: Change) -> None:
        """Follow a change that is in the store now, and cache no more what it sets."""
        for txid in self._states.apply(change):
            self._cached.pop(txid, None)

    def lasts(self, txid: int, partitions: Iterable[P]) -> dict[P, M | None]:
        """From which metadata each partition of this batch goes on; None: from none.

        Partitions known before come first, listed now or not; then the new ones. Stored
        batches count only below the lowest cached one: what is stored above it is not
        committed.

        Raises:
            OutOfOrderError: Nothing is known of the batch before.
        """
        cached = [t for t in sorted(self._cached) if t < txid]
        stored = [t for t in self._states.txids() if t < min([txid, *cached])]
        _check_predecessor(txid, [*stored, *cached])
        chain = [self._states.state(t) for t in stored]
        chain += [self._cached[t][1] for t in cached]
        return _union(_positions(chain), partitions)

    def plan(
        self,
        attempt: TransactionAttempt,
        partitions: Iterable[P],
        offers: Mapping[P, M | Unavailable],
    ) -> BatchPlan[P, M]:
        """Remember this attempt's batch; forget those of this txid and later ones.

        A partition without an offer, or that cannot be read now, gives an empty range
        at its position; without a position yet, it is left out and is new next time.

        Raises:
            OutOfOrderError: Nothing is known of the batch before.
        """
        lasts = self.lasts(attempt.txid, partitions)
        batch = _filled(lasts, offers, self._empty_after)
        self._cached = {t: c for t, c in self._cached.items() if t < attempt.txid}
        self._cached[attempt.txid] = (attempt, batch)
        return BatchPlan(batch, Change())

    def batch(self, attempt: TransactionAttempt) -> Mapping[P, M]:
        """What this attempt reads.

        Raises:
            FailedException: The remembered attempt of this txid is another one.
        """
        remembered, batch = self._cached.get(attempt.txid, (None, {}))
        if remembered != attempt:
            raise FailedException(
                f"attempt {attempt} is not the one that is remembered for its txid"
                f" ({remembered}); the batch must be replayed",
                txid=attempt.txid,
            )
        return batch

    def commit(self, attempt: TransactionAttempt) -> Change:
        """Store this attempt's batch, and clean up strictly below it.

        Raises:
            FailedException: The remembered attempt of this txid is another one.
        """
        batch = self.batch(attempt)
        own = self._states.override_state(attempt.txid, batch)
        return own | self._states.cleanup_before(attempt.txid)


def _positions(batches: Iterable[Mapping[P, M] | None]) -> dict[P, M]:
    """The last metadata of every partition, in ascending order of batches."""
    positions: dict[P, M] = {}
    for batch in batches:
        positions |= batch or {}
    return positions


def _union(positions: Mapping[P, M], partitions: Iterable[P]) -> dict[P, M | None]:
    return {**positions, **{p: None for p in partitions if p not in positions}}


def _filled(
    lasts: Mapping[P, M | None],
    offers: Mapping[P, M | Unavailable],
    empty_after: Callable[[M], M],
) -> dict[P, M]:
    batch: dict[P, M] = {}
    for partition, last in lasts.items():
        offer = offers.get(partition)
        if offer is not None and not isinstance(offer, Unavailable):
            batch[partition] = offer
        elif last is not None:
            batch[partition] = empty_after(last)
    return batch


def _check_predecessor(txid: int, known: Sequence[int]) -> None:
    if max(known, default=0) != txid - 1:
        raise OutOfOrderError(
            f"a batch for txid {txid} cannot be planned: known are the txids"
            f" {list(known)}, and {txid - 1} is needed to know where each partition"
            " goes on",
            txid=txid,
        )
