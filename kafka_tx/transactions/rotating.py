"""State that rotates: one value for each txid, the old ones cleaned away.

Nothing here writes. A method answers with the ``Change`` to make; memory follows only
when ``apply`` is told that the change is in the store. What is in memory has therefore
always been through the store's text form, and a restart sees the same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from kafka_tx.errors import OutOfOrderError, StateCorruptedError
from kafka_tx.transactions import records

V = TypeVar("V")

_TXID = re.compile(r"[1-9][0-9]{0,17}")


class Codec(Protocol[V]):
    """Between a value and the text a store keeps."""

    def encode(self, value: V) -> str:
        """Return the text.

        Raises:
            ConfigError: The value cannot be kept.
        """
        ...

    def decode(self, path: str, text: str) -> V:
        """Read it back; ``decode(p, encode(v)) == v``.

        Raises:
            StateCorruptedError: The text cannot be read; names ``path``.
        """
        ...


@dataclass(frozen=True)
class RecordCodec(Generic[V]):
    """Values as checksummed records of one kind; None is kept as it is.

    Attributes:
        kind: What a record of these is called.
        store: Address of the store, without secrets, for errors.
        id: Whose state it is, for errors.
        to_json: From a value to JSON; the value itself where it is JSON.
        from_json: Back again. A ValueError, KeyError or TypeError of it means that the
            record has another shape than expected.
    """

    kind: str
    store: str
    id: str
    to_json: Callable[[V], object] = field(default=lambda value: value)
    from_json: Callable[[Any], V] = field(default=lambda payload: payload)

    def encode(self, value: V | None) -> str:
        """Return the record's text.

        Raises:
            ConfigError: The value is more than JSON can give back.
        """
        payload = None if value is None else self.to_json(value)
        return records.encode(self.kind, payload)

    def decode(self, path: str, text: str) -> V | None:
        """Read a record.

        Raises:
            StateCorruptedError: It is none, of another kind, or has another shape.
        """
        where = {"path": path, "store": self.store, "id": self.id}
        payload = records.decode(text, self.kind, **where)
        try:
            return None if payload is None else self.from_json(payload)
        except (ValueError, KeyError, TypeError) as error:
            raise records.corrupted(
                f"unexpected content ({error!r})", **where
            ) from error


@dataclass(frozen=True, slots=True)
class Change:
    """Paths to set and to delete in one atomic step. Doing it twice is harmless."""

    put: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()

    def __or__(self, other: Change) -> Change:
        """Both in one step; where they touch the same path, ``other`` decides."""
        put = {p: t for p, t in self.put.items() if p not in other.delete}
        kept = (p for p in self.delete if p not in other.put)
        return Change(
            put | dict(other.put), tuple(dict.fromkeys([*kept, *other.delete]))
        )

    def __bool__(self) -> bool:
        return bool(self.put or self.delete)


class RotatingState(Generic[V]):
    """Values by txid, as the store holds them under ``<prefix>/<txid>``.

    None is a value like any other ("nothing for this txid") and differs from absent.
    A txid is created only directly after its predecessor.

    Make and apply one change before asking for the next: a change that is not applied
    is not seen. Source: Storm, RotatingTransactionalState (deviates: writes first, so
    that memory and store never disagree after a failed write).
    """

    def __init__(self, prefix: str, codec: Codec[V | None]) -> None:
        self._prefix = prefix
        self._codec = codec
        self._values: dict[int, V | None] = {}

    # --- what the store holds ---

    def load(self, stored: Mapping[str, str]) -> None:
        """Forget everything and take what is stored under the prefix; ignore the rest.

        Raises:
            StateCorruptedError: A path or a value under the prefix cannot be read.
        """
        self._values = {}
        self.apply(Change(put=stored))

    def apply(self, change: Change) -> list[int]:
        """Follow a change that is in the store now; return the txids it has set.

        Raises:
            StateCorruptedError: A path or a value under the prefix cannot be read.
        """
        ours = {self._txid(p): p for p in change.put if self._is_ours(p)}
        self._values |= {
            txid: self._codec.decode(p, change.put[p]) for txid, p in ours.items()
        }
        for path in filter(self._is_ours, change.delete):
            self._values.pop(self._txid(path), None)
        return sorted(ours)

    # --- reading ---

    def txids(self) -> list[int]:
        """The txids that have a value, ascending."""
        return sorted(self._values)

    def has_state(self, txid: int) -> bool:
        """Whether the txid has a value; None counts."""
        return txid in self._values

    def state(self, txid: int) -> V | None:
        """The value of a txid.

        Raises:
            OutOfOrderError: It has none.
        """
        if txid not in self._values:
            raise OutOfOrderError(
                f"'{self._path(txid)}' does not exist; stored: {self.txids()}",
                txid=txid,
            )
        return self._values[txid]

    def text(self, txid: int) -> str:
        """The value of a txid as it is stored.

        Raises:
            OutOfOrderError: It has none.
        """
        return self._codec.encode(self.state(txid))

    # --- changing ---

    def create_state(self, txid: int, value: V | None) -> Change:
        """Set the value of the next txid; nothing where it has one.

        Raises:
            OutOfOrderError: The txid does not follow the greatest one directly.
        """
        if txid in self._values:
            return Change()
        last = max(self._values, default=0)
        if txid != last + 1:
            raise OutOfOrderError(
                f"'{self._path(txid)}' cannot be created: stored are {self.txids()}, so"
                f" only txid {last + 1} can follow",
                txid=txid,
            )
        return self.override_state(txid, value)

    def override_state(self, txid: int, value: V | None) -> Change:
        """Set a value whatever is there, in any order."""
        return Change(put={self._path(txid): self._codec.encode(value)})

    def cleanup_before(self, txid: int) -> Change:
        """Delete every txid strictly lower; ``txid`` stays, the next one needs it."""
        lower = (other for other in sorted(self._values) if other < txid)
        return Change(delete=tuple(self._path(other) for other in lower))

    def cleanup_except(self, txid: int) -> Change:
        """Delete every other txid."""
        others = (other for other in sorted(self._values) if other != txid)
        return Change(delete=tuple(self._path(other) for other in others))

    # --- paths ---

    def _is_ours(self, path: str) -> bool:
        return path.startswith(self._prefix + "/")

    def _path(self, txid: int) -> str:
        return f"{self._prefix}/{txid}"

    def _txid(self, path: str) -> int:
        text = path[len(self._prefix) + 1 :]
        if not _TXID.fullmatch(text):
            raise StateCorruptedError(
                f"'{path}' is no path of a txid; legal: '{self._prefix}/<1, 2, …>'."
                " Delete it if nothing else needs it.",
                path=path,
            )
        return int(text)
