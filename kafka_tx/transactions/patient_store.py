"""Stores whose every call is made again while they are unavailable, for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn, Protocol, TypeVar

from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.protocols import OffsetStore, Store
from kafka_tx.transactions.patience import Patience
from kafka_tx.transactions.refusals import unpicklable
from kafka_tx.transactions.state_of_id import StoreAround

_T = TypeVar("_T")


class PatientStore(StoreAround):
    """A Store over another one.

    A write whose answer was lost is made again under the same guard: it either lands
    once more with the same content, or finds that it had landed (a conflict, upon which
    the ledger reads what is there). An epoch that was raised unnoticed is raised again.
    What stays unavailable is a StateGivenUpError, not retryable.
    """

    def __init__(self, store: Store, patience: Patience) -> None:
        super().__init__(store)
        self._patience = patience

    def _call(self, call: Callable[[Store], _T]) -> _T:
        return self._patience(lambda: call(self.inside))


class PatientOffsetStore:
    """An OffsetStore over another one; as ``PatientStore``.

    Attributes:
        patience: How long a call may go on: until it is over, and the last try ended.
    """

    def __init__(self, store: OffsetStore, patience: Patience) -> None:
        self._store = store
        self.patience = patience

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    def __reduce__(self) -> NoReturn:
        unpicklable(self)

    def acquire(self, task: int = 0, tasks: int = 1) -> int:
        """As ``OffsetStore.acquire``."""
        return self.patience(lambda: self._store.acquire(task, tasks))

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """As ``OffsetStore.load``."""
        wanted = list(partitions)
        return self.patience(lambda: self._store.load(wanted))

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """As ``OffsetStore.store``."""
        self.patience(lambda: self._store.store(offsets))

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
        self._store.close()


class GroupOffsets(OffsetStore, Protocol):
    """An OffsetStore that forgets, and has little room: a Kafka group."""

    def renew_ms(self) -> int:
        """How often all offsets must be written again."""
        ...

    def fitting(self, committed: CommittedOffset) -> int:
        """How many of the lowest runs beyond the offset can be kept."""
        ...


class PatientGroupOffsets(PatientOffsetStore):
    """GroupOffsets over another one; as ``PatientStore``."""

    _store: GroupOffsets

    def __init__(self, store: GroupOffsets, patience: Patience) -> None:
        super().__init__(store, patience)

    def renew_ms(self) -> int:
        """As ``GroupOffsets.renew_ms``, which asks once and has a default."""
        return self._store.renew_ms()

    def fitting(self, committed: CommittedOffset) -> int:
        """As ``GroupOffsets.fitting``."""
        return self._store.fitting(committed)
