"""Damages records in the files of a broker on this machine, as a bad disk does.

A broker that runs sees the change at once: it reads from the page cache. One that is
down can lose the end of a log, as without power.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

HEADER = 61
"""Bytes of a batch before its records, in the format of Kafka 0.11 and later."""

_LENGTH, _MAGIC, _CRC, _COVERED = 8, 16, 17, 21
"""Where these fields of the header begin; the checksum covers all from the last on."""


def damage(log: Path, batch: int, how: str) -> None:
    """Damage the n-th batch of a segment, counted from 0, in one of ``HOWS``."""
    before = log.read_bytes()
    data = bytearray(before)
    starts = batch_starts(data)
    HOWS[how](data, starts[batch], [*starts, len(data)][batch + 1])
    with log.open("r+b") as file:
        for at, (old, new) in enumerate(zip(before, data, strict=True)):
            if old != new:
                file.seek(at)
                file.write(bytes([new]))


def lose_end(log: Path, offset: int) -> None:
    """Cut a segment of a broker that is down before the batch that begins there."""
    data = log.read_bytes()
    begin = {struct.unpack_from(">q", data, at)[0]: at for at in batch_starts(data)}
    os.truncate(log, begin[offset])


def segment(cluster: Any, topic: str, partition: int = 0) -> Path:
    """The only segment of a partition."""
    folder = cluster.nodes[1].place / "data" / f"{topic}-{partition}"
    (log,) = folder.glob("*.log")
    assert isinstance(log, Path)
    return log


def batch_starts(data: bytes | bytearray) -> list[int]:
    """Where the batches of a segment begin."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += 12 + int(struct.unpack_from(">i", data, at + _LENGTH)[0])
    return starts


def _flip(data: bytearray, start: int, end: int) -> None:
    """One byte of the last record: the checksum does not match."""
    data[end - 3] ^= 0xFF


def _cut(data: bytearray, start: int, end: int) -> None:
    """The first record seems to be longer than the batch; the checksum matches."""
    data[start + HEADER : start + HEADER + 2] = b"\xfe\x7f"
    _sign(data, start, end)


def _cut_later(data: bytearray, start: int, end: int) -> None:
    """The same of the second record: the first can be read."""
    at = start + HEADER
    size = data[at] >> 1
    assert data[at] < 0x80, "a short record"
    data[at + 1 + size : at + 3 + size] = b"\xfe\x7f"
    _sign(data, start, end)


def _scramble(data: bytearray, start: int, end: int) -> None:
    """Records that cannot be unpacked; the checksum matches."""
    for at in range(start + HEADER, end):
        data[at] ^= 0xA5
    _sign(data, start, end)


def _magic(data: bytearray, start: int, end: int) -> None:
    data[start + _MAGIC] = 9


def _length(data: bytearray, start: int, end: int) -> None:
    """No broker can tell where the next batch begins."""
    struct.pack_into(">i", data, start + _LENGTH, -5)


HOWS: dict[str, Callable[[bytearray, int, int], None]] = {
    "flipped": _flip,
    "cut": _cut,
    "cut later": _cut_later,
    "scrambled": _scramble,
    "magic": _magic,
    "length": _length,
}


def _sign(data: bytearray, start: int, end: int) -> None:
    checksum = _crc32c(bytes(data[start + _COVERED : end]))
    struct.pack_into(">I", data, start + _CRC, checksum)


@cache
def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


def _crc32c(data: bytes) -> int:
    """Castagnoli's checksum, which Kafka uses."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
