"""Base classes of stores: URL, id, repr; pickling is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from kafka_tx.model import CommittedOffset
from kafka_tx.protocols import NOTHING, Expected, Paths, Store, Texts
from kafka_tx.transactions.ownership.refusals import unpicklable

_T = TypeVar("_T")


class StateOfId:
    """The state of one id at one address, which is without secrets. Never pickled."""

    retry_ms = 0

    def __init__(self, url: str, id: str) -> None:  # noqa: A002 - the seam's word
        self.url = url
        self.id = id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, {self.id!r})"

    def __reduce__(self) -> NoReturn:
        unpicklable(self)


class OffsetsOfId(StateOfId):
    """The offsets of one id, in a store without expiry and limit of size."""

    def renew_ms(self) -> int | None:
        """None: stored offsets never expire."""
        return None

    def fitting(self, committed: CommittedOffset) -> int:
        """Number of runs that fit: all."""
        return len(committed.completed)


class StoreAround(StateOfId):
    """A Store over another one. Subclasses override ``_call``."""

    def __init__(self, inside: Store) -> None:
        super().__init__(inside.url, inside.id)
        self.retry_ms = inside.retry_ms
        self.inside = inside

    def _call(self, call: Callable[[Store], _T]) -> _T:
        return call(self.inside)

    def acquire(
        self, put: Texts = NOTHING, *, above: int = 0, expect: Expected = None
    ) -> int:
        """As ``Store.acquire``."""
        return self._call(lambda store: store.acquire(put, above=above, expect=expect))

    def epoch(self) -> int:
        """As ``Store.epoch``."""
        return self._call(lambda store: store.epoch())

    def read(self, prefix: str = "") -> dict[str, str]:
        """As ``Store.read``."""
        return self._call(lambda store: store.read(prefix))

    def get(self, path: str) -> str | None:
        """As ``Store.get``."""
        return self._call(lambda store: store.get(path))

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """As ``Store.write``."""
        gone = list(delete)
        self._call(lambda store: store.write(epoch, put, gone, expect=expect))

    def sinks(self, numbering: str) -> dict[str, int]:
        """As ``Store.sinks``."""
        return self._call(lambda store: store.sinks(numbering))

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
        self.inside.close()
