"""The metadata of uncommitted batches, each planned from the one before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar, cast

from kafka_tx.config import Mode
from kafka_tx.errors import OutOfOrderError
from kafka_tx.model import BatchMetadata, SpoutBatch, TransactionAttempt, short_digest
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import batch_record
from kafka_tx.transactions.layout.txid_layout import CURRENT, metadata_path
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader, LedgerState

M = TypeVar("M")


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
    in memory until the batch commits; the first plan of txid 1 is stored, too, if it
    has ranges, because no batch before it tells where it begins. A plan of other
    partitions alone takes its place: the topology was given other topics. Each batch
    begins where the one before ends. A failed batch may end elsewhere next time, so
    later ones are dropped with it.

    Nothing here writes. A method returns the ``Change`` to make; memory changes only
    when ``apply`` is called, after the store has the change. So values in memory have
    been through the store's text form, and a restart sees the same values. Make and
    apply one change before asking for the next. Source: Storm,
    RotatingTransactionalState (deviates: writes first, so that memory and store never
    disagree after a failed write).

    ``reader`` has read ``state``, as the new owner found it.
    """

    def __init__(self, mode: Mode, reader: LedgerReader, state: LedgerState) -> None:
        self._reader = reader
        self.state = state
        """Of the store, after the last change."""
        self.is_opaque = mode == "opaque"
        self._planned: dict[int, tuple[TransactionAttempt, M]] = {}
        """Opaque metadata before its commit: valid for the attempt that planned it."""

    @property
    def newest(self) -> int:
        """The greatest txid with metadata to replay; else the committed one."""
        return self.state.txid if self.is_opaque else self.state.newest

    def has(self, txid: int) -> bool:
        """Whether an uncommitted txid has metadata, so that it may start unplanned."""
        if not self.is_opaque:
            return txid in self.state.planned
        return txid in self._planned and not self._is_start(*self._planned[txid])

    @property
    def start(self) -> M | None:
        """What txid 1 is planned from: where its first plan begins; None: not stored.

        What that plan has skipped is in it: no commit has counted these offsets.
        """
        first = self.state.planned.get(1)
        if first is None or isinstance(first, SpoutBatch):
            return None
        ranges = tuple(replace(wanted, end=wanted.start) for wanted in first.ranges)
        return cast(M, replace(first, txid=0, ranges=ranges))

    def metadata(self, txid: int) -> M:
        """The metadata of the last committed txid, or of one that ``has`` knows."""
        if txid in self._planned:
            return self._planned[txid][1]
        batch = self.state.planned[txid]
        return cast(M, batch.json if isinstance(batch, SpoutBatch) else batch)

    def attempt(self, txid: int) -> TransactionAttempt | None:
        """The only attempt that the metadata is valid for; None: any attempt."""
        return self._planned[txid][0] if txid in self._planned else None

    def digest(self, txid: int) -> str:
        """Digest of metadata that is the same on every replay; else empty."""
        if self.is_opaque:
            return ""
        return short_digest(self.state.texts[metadata_path(txid)])

    def keep(self, attempt: TransactionAttempt, metadata: M) -> Change:
        """Take new metadata; return the change to store before its use.

        Raises:
            OutOfOrderError: The txid does not follow the greatest one directly.
            ConfigError: JSON cannot give the metadata back unchanged.
        """
        txid = attempt.txid
        if self.is_opaque:
            self._planned[txid] = attempt, metadata
            is_start = self._is_start(attempt, metadata)
            return Change(_record(txid, metadata)) if is_start else Change()
        if txid in self.state.planned:
            return Change()
        following = self.state.newest + 1
        if txid != following:
            raise OutOfOrderError(
                f"txid {txid} cannot be planned: stored are {[*self.state.planned]}, so"
                f" only txid {following} can follow",
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
        stored, put = self.state.planned, {CURRENT: records.encode(CURRENT, txid + 1)}
        if not self.is_opaque:
            return Change(put, _paths(n for n in stored if n < txid))
        put |= _record(txid, self._planned[txid][1])
        return Change(put, _paths(n for n in stored if n != txid))

    def apply(self, change: Change) -> None:
        """Apply a stored change to memory; what it commits is no longer planned."""
        if change:
            self.state = self._reader.after(self.state, change.put, change.delete)
        done = self.state.txid
        self._planned = {t: plan for t, plan in self._planned.items() if t > done}

    def _is_start(self, attempt: TransactionAttempt, metadata: M) -> bool:
        """Whether this opaque plan is to be stored: no batch tells where it begins."""
        if attempt.txid != 1 or not isinstance(metadata, BatchMetadata):
            return False
        stored = self.state.planned.get(1)
        known = stored.ends().keys() if stored is not None else set()
        return bool(metadata.ranges) and known.isdisjoint(metadata.ends())


def _record(txid: int, metadata: object) -> dict[str, str]:
    if not isinstance(metadata, BatchMetadata):
        metadata = SpoutBatch(txid, (), json=metadata)
    return {metadata_path(txid): batch_record(metadata)}


def _paths(txids: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(metadata_path, sorted(txids)))
