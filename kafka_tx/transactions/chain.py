"""The metadata of uncommitted batches, each planned from the one before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from kafka_tx.config import Mode
from kafka_tx.errors import OutOfOrderError
from kafka_tx.model import BatchMetadata, SpoutBatch, TransactionAttempt, short_digest
from kafka_tx.transactions.ledger_reading import LedgerReader, LedgerState
from kafka_tx.transactions.ledger_records import batch_record
from kafka_tx.transactions.txid_layout import Door, metadata_path, txid_of

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Opened:
    """What a new owner found.

    Attributes:
        epoch: Acquired *before* ``values`` were read, or an older owner may still write
            in between.
        values: Everything the store holds for the id, by path.
        store: Address of the store, without secrets, for errors.
        id: Whose state it is, for errors.
    """

    epoch: int
    values: Mapping[str, str]
    store: str
    id: str


@dataclass(frozen=True, slots=True)
class Change:
    """Paths to set and to delete in one atomic step. Doing it twice is harmless."""

    put: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.delete)


class MetadataChain(Generic[M]):
    """Metadata by txid, without holes from the last committed txid on.

    Transactional: stored before a batch is emitted; the same for every attempt. Opaque:
    in memory until the batch commits. It begins where the one before it ends, so a
    batch that failed, and may end elsewhere next time, takes later ones with it.

    Nothing here writes. A method answers with the ``Change`` to make; memory follows
    only when ``apply`` is told that the change is in the store. What is in memory has
    therefore been through the store's text form, and a restart sees the same values.
    Make and apply one change before asking for the next.
    Source: Storm, RotatingTransactionalState (deviates: writes first, so that memory
    and store never disagree after a failed write).

    Raises:
        StateCorruptedError: A stored record cannot be read, or the txids have a hole.
        StateError: The id is a source's.
    """

    def __init__(self, mode: Mode, opened: Opened) -> None:
        self._reader = LedgerReader(opened.store, opened.id, Door.TRANSACTIONAL)
        self.found: LedgerState = self._reader.read(opened.values, opened.epoch)
        """What the store held."""
        self.is_opaque = mode == "opaque"
        self._stored = dict(self.found.planned)
        self._planned: dict[int, tuple[TransactionAttempt, M]] = {}
        """Opaque, and not committed yet: each for the attempt that planned it."""

    @property
    def newest(self) -> int:
        """The greatest txid that must be replayed and not planned, else committed."""
        unfinished = () if self.is_opaque else self.found.unfinished
        return max(unfinished, default=self.found.txid)

    def has(self, txid: int) -> bool:
        """Whether an uncommitted txid may start without being planned."""
        return txid in (self._planned if self.is_opaque else self._stored)

    def metadata(self, txid: int) -> M:
        """The metadata of the last committed txid, or of one that ``has`` knows."""
        if txid in self._planned:
            return self._planned[txid][1]
        batch = self._stored[txid]
        return cast(M, batch.json if isinstance(batch, SpoutBatch) else batch)

    def attempt(self, txid: int) -> TransactionAttempt | None:
        """The attempt the metadata was planned for, where it holds for no other one."""
        return self._planned[txid][0] if txid in self._planned else None

    def digest(self, txid: int) -> str:
        """Of the metadata, where it is the same on every replay; else empty."""
        return "" if self.is_opaque else short_digest(batch_record(self._stored[txid]))

    def keep(self, attempt: TransactionAttempt, metadata: M) -> Change:
        """Take new metadata; return what must be stored before it may be used.

        Raises:
            OutOfOrderError: The txid does not follow the greatest one directly.
            ConfigError: The metadata is more than JSON can give back.
        """
        txid = attempt.txid
        if self.is_opaque:
            self._planned[txid] = attempt, metadata
            return Change()
        if txid in self._stored:
            return Change()
        last = max(self._stored, default=0)
        if txid != last + 1:
            raise OutOfOrderError(
                f"txid {txid} cannot be planned: stored are {sorted(self._stored)}, so"
                f" only txid {last + 1} can follow",
                txid=txid,
            )
        return Change(_record(txid, metadata))

    def drop_from(self, txid: int) -> None:
        """This txid failed: forget what cannot be used again."""
        self._planned = {t: plan for t, plan in self._planned.items() if t < txid}

    def record(self, txid: int) -> Change:
        """What is stored when the txid has committed, and what is not needed then.

        The txid itself is the next one's predecessor. An opaque one is stored now, and
        all others go: a transactional owner may have planned later ones from what this
        txid held then.
        """
        if not self.is_opaque:
            return Change({}, _paths(n for n in self._stored if n < txid))
        gone = _paths(n for n in self._stored if n != txid)
        return Change(_record(txid, self._planned[txid][1]), gone)

    def apply(self, change: Change) -> None:
        """Follow a change that is in the store now, and plan no more what it sets."""
        for path in filter(txid_of, change.put):
            self._stored[txid_of(path)] = self._reader.batch(change.put, path)
            self._planned.pop(txid_of(path), None)
        for path in change.delete:
            self._stored.pop(txid_of(path), None)


def _record(txid: int, metadata: object) -> dict[str, str]:
    if not isinstance(metadata, BatchMetadata):
        metadata = SpoutBatch(txid, (), json=metadata)
    return {metadata_path(txid): batch_record(metadata)}


def _paths(txids: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(metadata_path, sorted(txids)))
