"""Reading a ledger: what the records say, and whether they fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import BatchMetadata, QueryShape
from kafka_tx.protocols import Store
from kafka_tx.transactions import records
from kafka_tx.transactions.held import Held, held_in
from kafka_tx.transactions.ledger_records import (
    Committed,
    metadata_path,
    read_batch,
    read_committed,
    read_shape,
)
from kafka_tx.transactions.txid_layout import (
    COMMITTED,
    CURRENT,
    METADATA,
    OWNER,
    QUERY,
    Door,
    another_door,
    numbering_of,
    position,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the store: its texts and what they say."""

    texts: Mapping[str, str]
    committed: Committed | None
    planned: Mapping[int, BatchMetadata]
    numbering: str = ""
    query: QueryShape | None = None

    @property
    def held(self) -> tuple[Held, ...]:
        """What the last committed txids held, ascending."""
        return held_in(self.texts)

    @property
    def txid(self) -> int:
        """The last committed txid; 0 when there is none."""
        return self.committed.txid if self.committed else 0

    def guard(self) -> dict[str, str | None]:
        """What must not have changed when a decision about this reading is written."""
        return position(self.texts)

    def leads_to(self, later: Reading, *, is_alone: bool) -> bool:
        """Whether a later look under the same epoch can find that.

        The listener's process moves the committed txid on, and cleans up behind it. All
        else is done by the planning process alone.

        Args:
            later: What was found.
            is_alone: Whether who remembers this reading is the planning process.
        """
        texts = later.texts
        if later.txid < self.txid or texts.get(OWNER) != self.texts.get(OWNER):
            return False
        same = [metadata_path(n) for n in self.planned if n >= later.txid]
        if later.txid == self.txid:
            same.append(COMMITTED)
        return not is_alone or all(texts.get(p) == self.texts.get(p) for p in same)


class LedgerReader:
    """Reads one store's ledger; a record that did not change is not parsed again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._decoded: dict[str, tuple[str, Any]] = {}

    def look(self) -> Reading:
        """Read everything and hold the records against each other.

        Raises:
            StateCorruptedError: One cannot be read, or two contradict each other.
            StateUnavailableError: The store does not answer.
        """
        return self.reading_of(self._store.read())

    def reading_of(self, texts: Mapping[str, str]) -> Reading:
        """What these records say together.

        Raises:
            StateCorruptedError: As of ``look``.
            StateError: They are a topology's.
        """
        numbering = numbering_of(texts, self._store.url, self._store.id)
        if numbering is not None and numbering.door is not Door.SOURCE:
            raise another_door(self._store, numbering.door)
        committed = self._record(texts, COMMITTED, read_committed)
        planned = {
            txid: self._record(texts, metadata_path(txid), read_batch)
            for txid in self._planned_txids(texts)
        }
        current = self._record(texts, CURRENT, int)
        first = committed.txid + 1 if committed else 1
        if current not in (None, first):
            raise self._corrupted(CURRENT, f"it says {current}, '{COMMITTED}' {first}")
        for txid in range(first, max(planned, default=0) + 1):
            if txid not in planned:
                path = metadata_path(txid)
                raise self._corrupted(path, "it is missing and a later one exists")
        query = self._record(texts, QUERY, read_shape)
        self._decoded = {p: d for p, d in self._decoded.items() if p in texts}
        name = numbering.name if numbering else ""
        return Reading(texts, committed, planned, name, query)

    def _planned_txids(self, texts: Iterable[str]) -> list[int]:
        names = [p.removeprefix(METADATA) for p in texts if p.startswith(METADATA)]
        for name in names:
            if not name.isdecimal() or str(int(name)) != name:
                raise self._corrupted(f"{METADATA}{name}", "its name is no txid")
        return sorted(map(int, names))

    def _record(
        self, texts: Mapping[str, str], path: str, read: Callable[[Any], Any]
    ) -> Any:  # noqa: ANN401 - what ``read`` makes of it
        """Decode a record, or take what was decoded from the same text before."""
        text = texts.get(path)
        if text is None:
            return None
        known, value = self._decoded.get(path, (None, None))
        if known == text:
            return value
        kind = "batch" if path.startswith(METADATA) else path
        store = self._store
        payload = records.decode(text, kind, path=path, store=store.url, id=store.id)
        try:
            value = read(payload)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._corrupted(
                path, f"its content makes no sense ({error})"
            ) from None
        if kind == "batch" and metadata_path(value.txid) != path:
            raise self._corrupted(path, f"it is the record of txid {value.txid}")
        self._decoded[path] = (text, value)
        return value

    def _corrupted(self, path: str, reason: str) -> StateCorruptedError:
        return records.corrupted(
            reason, path=path, store=self._store.url, id=self._store.id
        )
