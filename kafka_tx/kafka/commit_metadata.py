"""What is stored with a group's offset: the runs that are done beyond it, and by whom.

Kafka keeps a short text with every committed offset, 4,096 characters unless the broker
says otherwise. Ours is ``kafka_tx:<version>:<checksum>:<how>:<content>``: deployment id
and name, then for every run the gap before it and its length, as variable-length
integers, deflated if that is shorter, in base 85. A run takes about 2 to 4 characters.
Version 2 has the topic's id behind the names, then the number of runs, and behind them
for every failed run the gap, its length and how often it failed.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kafka_tx.model import CommittedOffset

LIMIT = 4_096
"""Characters that a broker takes by default (``offset.metadata.max.bytes``)."""

_PREFIX = "kafka_tx:"
_VERSIONS = ("1", "2")
"""The second one has the topic's id and failures."""

Run = tuple[int, int]


def encode(committed: CommittedOffset, limit: int = LIMIT) -> str:
    """The text to store with ``committed.offset``; empty when there is nothing to say.

    As many of the lowest runs as fit are kept; records in the others will be processed
    again after a restart. Failures are kept if there is room. The broker is not kept.
    """
    kept = replace(
        committed, completed=committed.completed[: fitting(committed, limit)]
    )
    if kept == CommittedOffset(kept.offset, broker=kept.broker):
        return ""
    text = _text(kept)
    return text if len(text) <= limit else _text(replace(kept, failures=()))


def fitting(committed: CommittedOffset, limit: int = LIMIT) -> int:
    """How many of the lowest runs fit: fewer than there are means no room for more.

    A spout asks before it emits beyond what it could remember as done.
    """
    total = len(committed.completed)
    low, high = 0, min(total, 512)
    while _fits(committed, high, limit):
        if high == total:
            return total
        low, high = high, min(total, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(committed, middle, limit):
            low = middle
        else:
            high = middle
    return low


def decode(offset: int, metadata: str) -> CommittedOffset:
    """Read what stands with ``offset``. Another program's text says nothing to us.

    Raises:
        ValueError: The text is ours, and cut, changed or of an unknown version.
    """
    if not metadata.startswith(_PREFIX):
        return CommittedOffset(offset)
    try:
        version, checksum, how, content = metadata.removeprefix(_PREFIX).split(":", 3)
    except ValueError:
        raise ValueError("it is cut short") from None
    if version not in _VERSIONS:
        msg = f"its version is {version!r}; this release reads {', '.join(_VERSIONS)}"
        raise ValueError(msg)
    if checksum != _checksum(offset, content):
        raise ValueError("its checksum does not match")
    try:
        body = b85decode(content)
        return _parse(offset, zlib.decompress(body) if how == "z" else body, version)
    except (zlib.error, IndexError) as error:
        raise ValueError(str(error)) from None


def _fits(committed: CommittedOffset, count: int, limit: int) -> bool:
    some = replace(committed, completed=committed.completed[:count], failures=())
    return len(_text(some)) <= limit


def _text(committed: CommittedOffset) -> str:
    body = bytearray()
    version = "2" if committed.topic_id or committed.failures else "1"
    names = [committed.topology_id, committed.topology_name]
    for name in names if version == "1" else [*names, committed.topic_id]:
        data = name.encode()
        _append(body, len(data))
        body += data
    if version == "2":
        _append(body, len(committed.completed))
    last = committed.offset
    for start, end in committed.completed:
        _append(body, start - last)
        _append(body, end - start)
        last = end
    last = committed.offset
    for start, end, times in committed.failures:
        for number in (start - last, end - start, times):
            _append(body, number)
        last = end
    plain, deflated = bytes(body), zlib.compress(body, 9)
    how, shorter = ("z", deflated) if len(deflated) < len(plain) else ("-", plain)
    content = b85encode(shorter).decode()
    checksum = _checksum(committed.offset, content)
    return f"{_PREFIX}{version}:{checksum}:{how}:{content}"


def _parse(offset: int, body: bytes, version: str) -> CommittedOffset:
    names, at = [], 0
    for _ in range(2 if version == "1" else 3):
        length, at = _take(body, at)
        names.append(body[at : at + length].decode())
        at += length
    numbers = list(_numbers(body, at))
    failed: list[int] = []
    if version != "1":
        runs = 2 * numbers[0]
        numbers, failed = numbers[1 : 1 + runs], numbers[1 + runs :]
    return CommittedOffset(
        offset,
        completed=tuple(_runs(offset, numbers)),
        topology_id=names[0],
        topology_name=names[1],
        topic_id=names[2] if version != "1" else "",
        failures=tuple(_failures(offset, failed)),
    )


def _failures(offset: int, numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    last = offset
    each = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    for gap, length, times in each:
        yield last + gap, last + gap + length, times
        last += gap + length


def _runs(offset: int, numbers: Sequence[int]) -> Iterator[Run]:
    last = offset
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        yield last + gap, last + gap + length
        last += gap + length


def _append(body: bytearray, number: int) -> None:
    """Seven bits a byte, lowest first; the high bit says that more follow."""
    while number > 0x7F:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


def _take(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while body[at] & 0x80:
        number |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | body[at] << shift, at + 1


def _numbers(body: bytes, at: int) -> Iterator[int]:
    while at < len(body):
        number, at = _take(body, at)
        yield number


def _checksum(offset: int, content: str) -> str:
    return f"{zlib.crc32(f'{offset}:{content}'.encode()):08x}"
