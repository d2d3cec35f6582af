"""The headers by which a dead letter tells where its record was, and why it is one."""

from __future__ import annotations

from collections.abc import Sequence

PREFIX = "kafka_tx."
TOPIC, PARTITION, OFFSET = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"
ERROR, ATTEMPTS, TXID = f"{PREFIX}error", f"{PREFIX}attempts", f"{PREFIX}txid"
BYTES = f"{PREFIX}bytes"
"""How large the value is that the letter is without, since it did not fit."""

LONGEST_ERROR = 2_000
"""Bytes of ``kafka_tx.error``."""

LONGEST_KEY = 10_000
"""Bytes of the key of a letter without its value."""

Header = tuple[str, bytes | None]


def headers_of(
    topic: str, partition: int, offset: int, error: str, attempts: int
) -> list[Header]:
    """Ours; they come behind those of the record."""
    about = {
        TOPIC: topic,
        PARTITION: partition,
        OFFSET: offset,
        ERROR: error,
        ATTEMPTS: attempts,
    }
    return [(name, str(value).encode()) for name, value in about.items()]


def split(headers: Sequence[Header]) -> tuple[list[Header], dict[str, str]]:
    """The record's own headers, and the last of ours by their names.

    A record that is a letter itself, of another job, has some of ours before them.
    """
    names = [name for name, _ in headers]
    if TOPIC not in names:
        return list(headers), {}
    at = len(names) - 1 - names[::-1].index(TOPIC)
    ours = {
        name: (value or b"").decode(errors="replace") for name, value in headers[at:]
    }
    return list(headers[:at]), ours
