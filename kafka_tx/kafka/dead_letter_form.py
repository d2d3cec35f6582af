"""The headers by which a dead letter tells where its record was, and why it is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from kafka_tx.stored import LETTERS

PREFIX = "kafka_tx."
TOPIC, PARTITION, OFFSET = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"
ERROR, ATTEMPTS, TXID = f"{PREFIX}error", f"{PREFIX}attempts", f"{PREFIX}txid"
FORMAT = f"{PREFIX}format"
BYTES = f"{PREFIX}bytes"
"""Size of the record's value, if the letter lacks it because it did not fit."""

TIME = f"{PREFIX}timestamp_ms"
"""The record's time in ms since the Unix epoch, if it was written with another one."""
TOPIC_ID = f"{PREFIX}topic_id"
"""Id of the record's topic, if the letter lacks the value."""

COMPARED = "_kafka_tx_compared"
"""The column of numbers by which a replay is compared, beside those of the letters."""

LONGEST_ERROR = 2_000
"""Bytes of ``kafka_tx.error``."""

SHORTEST_ERROR = 200
"""Bytes of the error in a letter that did not fit without its value, either."""

LONGEST_KEY = 10_000
"""Bytes of the key of a letter without its value."""

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Of the years 1 to 9999: brokers may refuse others."""

_LONGEST_NUMBER = 20
"""Characters of a number of 64 bits."""

Header = tuple[str, bytes | None]
Span = tuple[int, int]


def headers_of(
    topic: str, partition: int, offset: int, error: str, attempts: int
) -> list[Header]:
    """The letter's own headers, which follow those of the record."""
    about = {
        TOPIC: topic,
        PARTITION: partition,
        OFFSET: offset,
        ERROR: error,
        ATTEMPTS: attempts,
        FORMAT: LETTERS.number,
    }
    return [(name, str(value).encode()) for name, value in about.items()]


def possible(span: Span) -> Span:
    """The times of a span that a record can be written with, besides 0."""
    return max(span[0], FIRST_MS), min(span[1], LAST_MS)


def timed(
    time_ms: int | None, span: Span = (FIRST_MS, LAST_MS)
) -> tuple[int | None, list[Header]]:
    """The time to write a record with, and the header of a time that it cannot have.

    ``span`` are the first and last time that its topic takes. The present time (None)
    replaces others, those outside of the years 1 to 9999, and 0, which the client takes
    for none.
    """
    first_ms, last_ms = possible(span)
    if time_ms is None or (time_ms and first_ms <= time_ms <= last_ms):
        return time_ms, []
    return None, [(TIME, str(time_ms).encode())]


def time_of(about: Mapping[str, str], written_ms: int | None) -> int | None:
    """The time of a dead letter's record: of the header, or as the letter has it."""
    text = about.get(TIME, "")
    with suppress(ValueError):
        return int(text) if len(text) <= _LONGEST_NUMBER else written_ms
    return written_ms


def check_format(about: Mapping[str, str], where: str) -> None:
    """Refuse a dead letter of another version, by FormatError."""
    found = about.get(FORMAT)
    is_number = found is not None and found.isascii() and found.isdecimal()
    LETTERS.check(int(found or 0) if is_number else found, f"the dead letter {where}")


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
