"""Whether this process can write natively, and the producers that do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING

from kafka_tx.errors import ConfigError
from kafka_tx.native import library
from kafka_tx.native.library import load

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_tx.native import _reader

_REVISION = 2
"""Of the extension's part that writes, as this package calls it."""


def refusal(settings: Mapping[str, object]) -> str | None:
    """Why records cannot be written natively with these settings; None if they can."""
    extension, _ = load()
    if extension is not None and not _is_current(extension):
        return "the extension was built from other sources: reinstall kafka_tx"
    return library.refusal(settings)


def check_sums(columns: pa.RecordBatch, topics: tuple[str, ...]) -> int | None:
    """The check sums of rows to write, added up; None where nothing was built."""
    extension, _ = load()
    if extension is None or not _is_current(extension):
        return None
    total: int = extension.check_sums(*columns.__arrow_c_array__(), topics)
    return total


def _is_current(extension: ModuleType) -> bool:
    return bool(getattr(extension, "WRITER_REVISION", 0) == _REVISION)


def producer(settings: Mapping[str, str], suspect: tuple[int, ...]) -> _reader.Producer:
    """A producer; use it if ``refusal(settings)`` is None.

    ``suspect`` are codes with which brokers refuse a whole batch for one of its
    records.

    Raises:
        ConfigError: Only Python can use the settings.
        ValueError: librdkafka refuses a setting.
    """
    extension, _ = load()
    why_not = refusal(settings)
    if extension is None or why_not is not None:
        raise ConfigError(f"the native writer cannot be used: {why_not}")
    given = {name: value for name, value in settings.items() if name != "group.id"}
    for name, value in given.items():
        if "\0" in f"{name}{value}":
            raise ConfigError(f"Kafka setting '{name}' has a NUL character")
    pairs = tuple(chain.from_iterable((k, library.text(v)) for k, v in given.items()))
    try:
        made: _reader.Producer = extension.Producer(settings=pairs, suspect=suspect)
    except extension.ReadError as error:
        raise ValueError(error.args[-1]) from None
    return made
