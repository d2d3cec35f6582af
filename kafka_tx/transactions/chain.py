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
    """The state that a new owner found.

    The epoch was acquired *before* ``values``, all records of the id, were read, so
    that no older owner can write in between. ``store`` is an address without secrets.
    """

    epoch: int
    values: Mapping[str, str]
    store: str
    id: str


@dataclass(frozen=True, slots=True)
class Change:
    """Paths to set and to delete in one atomic step. A second time changes nothing."""

    put: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.delete)


class MetadataChain(Generic[M]):
    """Metadata by txid, without gaps from the last committed txid on.

    Transactional: stored before a batch is emitted; the same for every attempt. Opaque:
    in memory until the batch commits. Each batch begins where the one before ends. A
    failed batch may end elsewhere next time, so later ones are dropped with it.

    Nothing here writes. A method returns the ``Change`` to make; memory changes only
    when ``apply`` is called, after the store has the change. So values in memory have
    been through the store's text form, and a restart sees the same values. Make and
    apply one change before asking for the next. Source: Storm,
    RotatingTransactionalState (deviates: writes first, so that memory and store never
    disagree after a failed write).

    Raises: as ``LedgerReader.read``.
    """

    def __init__(self, mode: Mode, opened: Opened) -> None:
        self._reader = LedgerReader(opened.store, opened.id, Door.TRANSACTIONAL)
        self.found: LedgerState = self._reader.read(opened.values, opened.epoch)
        """The state that the store held."""
        self.is_opaque = mode == "opaque"
        self._stored = dict(self.found.planned)
        self._planned: dict[int, tuple[TransactionAttempt, M]] = {}
        """Opaque metadata before its commit: valid for the attempt that planned it."""

    @property
    def newest(self) -> int:
        """The greatest txid with metadata to replay; else the committed one."""
        unfinished = () if self.is_opaque else self.found.unfinished
        return max(unfinished, default=self.found.txid)

    def has(self, txid: int) -> bool:
        """Whether an uncommitted txid has metadata, so that it may start unplanned."""
        return txid in (self._planned if self.is_opaque else self._stored)

    def metadata(self, txid: int) -> M:
        """The metadata of the last committed txid, or of one that ``has`` knows."""
        if txid in self._planned:
            return self._planned[txid][1]
        batch = self._stored[txid]
        return cast(M, batch.json if isinstance(batch, SpoutBatch) else batch)

    def attempt(self, txid: int) -> TransactionAttempt | None:
        """The only attempt that the metadata is valid for; None: any attempt."""
        return self._planned[txid][0] if txid in self._planned else None

    def digest(self, txid: int) -> str:
        """Digest of metadata that is the same on every replay; else empty."""
        return "" if self.is_opaque else short_digest(batch_record(self._stored[txid]))

    def keep(self, attempt: TransactionAttempt, metadata: M) -> Change:
        """Take new metadata; return the change to store before its use.

        Raises:
            OutOfOrderError: The txid does not follow the greatest one directly.
            ConfigError: JSON cannot give the metadata back unchanged.
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
        """This txid failed: drop metadata that cannot be used again."""
        self._planned = {t: plan for t, plan in self._planned.items() if t < txid}

    def record(self, txid: int) -> Change:
        """The change that records the txid's commit and deletes old metadata.

        The txid's own metadata stays: the next batch begins where it ends. Opaque
        metadata is stored now, and all other metadata goes: a transactional owner may
        have planned later batches after an earlier plan of this txid.
        """
        if not self.is_opaque:
            return Change({}, _paths(n for n in self._stored if n < txid))
        gone = _paths(n for n in self._stored if n != txid)
        return Change(_record(txid, self._planned[txid][1]), gone)

    def apply(self, change: Change) -> None:
        """Apply a stored change to memory; what it sets is no longer planned."""
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
