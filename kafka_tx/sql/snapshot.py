"""One value whose every batch counts once: a map of one fixed key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafka_tx.config import check_kind
from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import MapBatch, NonTransactionalMap
from kafka_tx.sql.values import array_of

KEY = "$GLOBAL$"


class SnapshotValue:
    """The only value of a map, such as a global count or the newest time.

    Counts as its map does: once with a ``TransactionalMap`` or an ``OpaqueMap``. It can
    be pickled as the map can. The map is of its own, with keys of text; others raise
    ConfigError.

    Source: Storm, Snapshottable and SnapshottableMap.
    """

    def __init__(self, state: NonTransactionalMap) -> None:
        check_kind("state", state, NonTransactionalMap, "a map with key=str")
        if state.key_type is not str:
            kind = state.key_type.__name__
            raise ConfigError.illegal("state", f"a map with key={kind}", "key=str")
        self._state = state

    def get(self) -> Any:  # noqa: ANN401 - what the map holds
        """The value as last committed; None: there is none. Raises as ``map.get``."""
        return self._state.get([KEY]).get(KEY)

    def set(self, attempt: TransactionAttempt, value: Any) -> bool:  # noqa: ANN401
        """Replace the value; None removes it. As ``update``."""
        with self._state.batch(attempt) as batch:
            _put(batch, value)
        return not batch.is_counted

    def update(self, attempt: TransactionAttempt, change: Callable[[Any], Any]) -> bool:
        """Count a batch: ``change`` makes the new value of the old one; None: no value.

        A ``TransactionalMap`` takes a second call of the same attempt for a second try:
        it returns False and does not call ``change``.

        Returns and raises as ``map.update``; also the errors of ``change``.
        """
        with self._state.batch(attempt) as batch:
            if not batch.is_counted:
                _put(batch, change(batch.get([KEY]).get(KEY)))
        return not batch.is_counted


def _put(batch: MapBatch, value: Any) -> None:  # noqa: ANN401 - what the map holds
    if value is None:
        batch.remove([KEY])
    else:
        values = array_of("value", [value], batch.value_type)
        batch.put(pa.table({"key": [KEY], "value": values}))
