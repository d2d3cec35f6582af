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
    With ``strict_order`` a txid is created only directly after its predecessor.

    Make and apply one change before asking for the next: a change that is not applied
    is not seen. Source: Storm, RotatingTransactionalState (deviates: writes first, so
    that memory and store never disagree after a failed write).
    """

    def __init__(
        self, prefix: str, codec: Codec[V | None], *, strict_order: bool = False
    ) -> None:
        self._prefix = prefix
        self._codec = codec
        self._strict = strict_order
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

    def previous_state(self, txid: int) -> V | None:
        """The value of the greatest txid strictly below; None when there is none."""
        lower = self._greatest_below(txid)
        return None if lower is None else self._values[lower]

    # --- changing ---

    def get_state(
        self, txid: int, init: Callable[[int, V | None], V | None]
    ) -> tuple[V | None, Change]:
        """The value of a txid, made if absent, and the change that keeps it.

        ``init`` gets the txid and the value of the greatest lower one. When a higher
        txid has a value already, it is not called and the new value is None: what that
        one holds began where the last known one ended; nothing is left for this txid.
        The change is empty when the value was there.

        Raises:
            OutOfOrderError: Strict order, and the txid does not follow directly.
        """
        if txid in self._values:
            return self._values[txid], Change()
        if self._strict:
            self._check_follows(txid)
        overtaken = any(other > txid for other in self._values)
        value = None if overtaken else init(txid, self.previous_state(txid))
        return value, self.override_state(txid, value)

    def override_state(self, txid: int, value: V | None) -> Change:
        """Set a value whatever is there; strict order is not asked."""
        return Change(put={self._path(txid): self._codec.encode(value)})

    def cleanup_before(self, txid: int) -> Change:
        """Delete every txid strictly lower; ``txid`` stays, the next one needs it."""
        lower = (other for other in sorted(self._values) if other < txid)
        return Change(delete=tuple(self._path(other) for other in lower))

    # --- paths and order ---

    def _check_follows(self, txid: int) -> None:
        lower, highest = self._greatest_below(txid), max(self._values, default=0)
        if highest > txid or txid != (lower or 0) + 1:
            raise OutOfOrderError(
                f"'{self._path(txid)}' cannot be created: stored are {self.txids()}, so"
                f" only txid {highest + 1} can follow",
                txid=txid,
            )

    def _greatest_below(self, txid: int) -> int | None:
        return max((other for other in self._values if other < txid), default=None)

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
