"""Reading numbered batches: decode the records and check them against each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import BatchMetadata, LogPosition, QueryShape, TopicPartition
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import (
    Committed,
    read_batch,
    read_committed,
    read_shape,
    read_txid,
)
from kafka_tx.transactions.layout.commit_stats import CommitStats, stats_in
from kafka_tx.transactions.layout.txid_layout import (
    ASKED,
    COMMITTED,
    CURRENT,
    METADATA,
    NUMBERING,
    OWNER,
    QUERY,
    Door,
    another_door,
    metadata_path,
    numbering_of,
    read_numbering,
    txid_of,
)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """All records of an id's numbered batches, decoded.

    Attributes:
        epoch: The owner's epoch at the time of the read; 0: no owner yet.
        committed: None before the first commit or adopted position. A topology's
            offsets are the ends of its last batch; for a spout without ranges only the
            txid is known.
        planned: Stored metadata by ascending txid. The committed txid's own stays until
            the next commit, to recognise a replay of this batch; see ``first_stored``.
        numbering: Empty before the first write.
        query: Shape of the query that got the last batch; None: no query got one.
        texts: Every record of the id, by path.
    """

    epoch: int
    committed: Committed | None
    planned: Mapping[int, BatchMetadata]
    numbering: str = ""
    query: QueryShape | None = None
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def commit_stats(self) -> tuple[CommitStats, ...]:
        """Numbers about the last committed txids, ascending, as far as stored."""
        return stats_in(self.texts)

    @property
    def moved_to(self) -> str:
        """The store to which a tool has copied the id; empty: it is here."""
        found = numbering_of(self.texts, "", "")
        return found.moved_to if found is not None else ""

    @property
    def known_position(self) -> Committed | None:
        """The committed position; before the first commit, the start of txid 1."""
        first = self.planned.get(1)
        if self.committed is not None or first is None:
            return self.committed
        return Committed(0, first.starts(), first.topic_ids)

    @property
    def txid(self) -> int:
        """The last committed txid; 0 when there is none."""
        return self.committed.txid if self.committed else 0

    @property
    def committed_ms(self) -> int | None:
        """Unix time of the last commit; None: there is none, or it is not known."""
        times = {each.txid: each.committed_ms for each in self.commit_stats}
        return self.position.completed_ms or times.get(self.txid) or None

    @property
    def unfinished(self) -> dict[int, BatchMetadata]:
        """Planned and not committed: contiguous from ``txid + 1``, ascending."""
        return {txid: m for txid, m in self.planned.items() if txid > self.txid}

    @property
    def position(self) -> Committed:
        """The committed position; before the first one, txid 0 without offsets."""
        return self.committed or Committed(0, {})

    @property
    def partitions(self) -> set[TopicPartition]:
        """All that the id has read or has planned to read."""
        planned = (batch.ends() for batch in self.unfinished.values())
        return set().union(self.position.offsets, *planned)

    @property
    def fixed_partitions(self) -> set[TopicPartition]:
        """Those of them that do not come from plans which a replay may change."""
        plans = self.unfinished.values()
        fixed = (batch.ends() for batch in plans if batch.mode != "opaque")
        return set().union(self.position.offsets, *fixed)

    @property
    def next(self) -> BatchMetadata | None:
        """The batch after the committed one, if planned."""
        return self.planned.get(self.txid + 1)

    @property
    def last(self) -> BatchMetadata | None:
        """The last committed batch with records, if still stored."""
        return self.planned.get(self.committed.carried) if self.committed else None

    @property
    def has_several_sources(self) -> bool:
        """Whether the query is known to have several sources."""
        return self.query is not None and self.query.has_several_sources

    @property
    def is_asked(self) -> bool:
        """Whether the txid of a batch was asked for: the sink stores txids."""
        return self.query is not None or ASKED in self.texts

    @property
    def newest(self) -> int:
        """The greatest txid that is committed or planned; 0: none."""
        return max([self.txid, *self.planned])

    def batch_of(self, spark_batch: str) -> BatchMetadata | None:
        """The empty batch planned for this batch of Spark; None: none yet."""
        known = (m for m in self.planned.values() if m.spark_batch == spark_batch)
        return next(known, None)

    def leads_to(self, later: LedgerState, *, is_alone: bool) -> bool:
        """Whether a later read under the same epoch can find ``later``.

        The listener's process commits txids and deletes metadata of lower ones. Only
        the planning process makes other changes. ``is_alone``: it has cached this
        state.
        """
        texts = later.texts
        if later.txid < self.txid or texts.get(OWNER) != self.texts.get(OWNER):
            return False
        same = [metadata_path(n) for n in self.planned if n >= later.txid]
        if later.txid == self.txid:
            same.append(COMMITTED)
        return not is_alone or all(texts.get(p) == self.texts.get(p) for p in same)


class LedgerReader:
    """Reads the numbered batches of one id, a source's or a topology's.

    A record that did not change is not parsed again. ``url`` is without secrets.
    """

    def __init__(
        self,
        url: str,
        id: str,  # noqa: A002 - the word of every store
        door: Door = Door.SOURCE,
    ) -> None:
        self._url, self.id = url, id
        self._door = door
        self._decoded: dict[str, tuple[str, Any]] = {}

    def read(self, texts: Mapping[str, str], epoch: int = 0) -> LedgerState:
        """Decode these records into one state.

        Raises:
            StateCorruptedError: A record cannot be read, or two contradict each other.
            FormatError: A record is of another version.
            StateError: The records belong to another door.
        """
        records.check_formats(texts, self._url, self.id)
        numbering = self._record(texts, NUMBERING, read_numbering)
        if numbering is not None and numbering.door is not self._door:
            raise another_door(self._url, self.id, numbering.door)
        planned = {
            txid: self._batch(texts, metadata_path(txid))
            for txid in self._planned_txids(texts)
        }
        committed = self._committed(texts, planned)
        first = committed.txid + 1 if committed else 1
        for txid in range(first, max(planned, default=0) + 1):
            if txid not in planned:
                path = metadata_path(txid)
                raise self._corrupted(path, "it is missing and a later one exists")
        query = self._record(texts, QUERY, read_shape)
        self._decoded = {p: d for p, d in self._decoded.items() if p in texts}
        name = numbering.name if numbering else ""
        return LedgerState(epoch, committed, planned, name, query, texts)

    def after(
        self, state: LedgerState, put: Mapping[str, str], gone: Collection[str]
    ) -> LedgerState:
        """The state once these records are written to it and deleted from it."""
        kept = {p: text for p, text in state.texts.items() if p not in gone}
        return self.read({**kept, **put}, state.epoch)

    def _batch(self, texts: Mapping[str, str], path: str) -> BatchMetadata:
        found: BatchMetadata = self._record(texts, path, read_batch)
        if metadata_path(found.txid) != path:
            raise self._corrupted(path, f"it is the record of txid {found.txid}")
        return found

    def _committed(
        self, texts: Mapping[str, str], planned: Mapping[int, BatchMetadata]
    ) -> Committed | None:
        """The position: a source stores it; a topology's is its last batch."""
        current = self._record(texts, CURRENT, read_txid)
        if self._door is Door.SOURCE:
            committed: Committed | None = self._record(texts, COMMITTED, read_committed)
            first = committed.txid + 1 if committed else 1
            if current not in (None, first):
                reason = f"it says {current}, '{COMMITTED}' {first}"
                raise self._corrupted(CURRENT, reason)
            return committed
        txid = (current or 1) - 1
        if (txid and txid not in planned) or min(planned, default=1) < max(txid, 1):
            reason = (
                f"it says {current}, and '{METADATA}' holds the txids {[*planned]};"
                f" legal: every txid from {max(txid, 1)} on, without a hole"
            )
            raise self._corrupted(CURRENT, reason)
        if not txid:
            return None
        last = planned[txid]
        epochs = last.leader_epochs()
        return Committed(txid, last.ends(), last.topic_ids, leader_epochs=epochs)

    def _planned_txids(self, texts: Iterable[str]) -> list[int]:
        paths = [path for path in texts if path.startswith(METADATA)]
        for path in paths:
            if not txid_of(path):
                raise self._corrupted(path, "its name is no txid")
        return sorted(map(txid_of, paths))

    def _record(
        self, texts: Mapping[str, str], path: str, read: Callable[[Any], Any]
    ) -> Any:  # noqa: ANN401 - the result of ``read``
        """Decode a record, or return the cached result for the same text."""
        text = texts.get(path)
        if text is None:
            return None
        known, value = self._decoded.get(path, (None, None))
        if known == text:
            return value
        kind = "batch" if path.startswith(METADATA) else path
        value = records.decode_as(kind, text, read, self._at(path))
        self._decoded[path] = (text, value)
        return value

    def _at(self, path: str) -> records.Place:
        return records.Place(path, self._url, self.id)

    def _corrupted(self, path: str, reason: str) -> StateCorruptedError:
        return records.corrupted(reason, self._at(path))


def stored_batches(store: Store) -> LedgerState:
    """The state of a topology's batches. Writes nothing; raises as ``LedgerReader``."""
    epoch = store.epoch()  # first, as the ledger does
    reader = LedgerReader(store.url, store.id, Door.TRANSACTIONAL)
    return reader.read(store.read(), epoch)


class OwnedPosition:
    """Reads the committed position of an id for as long as one epoch owns the id.

    For one thread at a time, beside the threads that use ``store`` otherwise.
    """

    def __init__(self, store: Store, door: Door = Door.SOURCE) -> None:
        self._store = store
        self._reader = LedgerReader(store.url, store.id, door)

    def of(self, epoch: int) -> dict[TopicPartition, LogPosition] | None:
        """The position now; None: the epoch's owner is fenced, or the id was moved.

        Raises:
            StateCorruptedError: A record cannot be read, or two contradict each other.
            StateUnavailableError, StateError: As of ``Store.epoch``.
        """
        if self._store.epoch() != epoch:
            return None
        state = self._reader.read(self._store.read(), epoch)
        return None if state.moved_to else state.position.positions()
