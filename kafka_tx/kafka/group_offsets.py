"""Committed offsets in Kafka itself, as those of a consumer group.

Kafka keeps a short text with every committed offset, 4,096 characters unless the broker
says otherwise. Ours holds the runs that are done beyond the offset, and by whom:
``kafka_tx:<version>:<checksum>:<how>:<content>``: deployment id, its name and topic id,
then leader epoch, numbers of runs and of failed runs, for every run the gap before it
and its length, and for every failed run the gap, its length and how often it failed, as
variable-length integers, deflated if that is shorter, in base 85. What follows them is
ignored. A run takes about 2 to 4 characters.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import (
    BrokerUnavailableError,
    StateCorruptedError,
    StateUnavailableError,
)
from kafka_tx.kafka.group_commits import as_commit
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.offsets.owners import lost_offsets
from kafka_tx.stored import GROUPS
from kafka_tx.transactions.ownership.retry_policy import DEFAULT_MS
from kafka_tx.transactions.ownership.store_base import StateOfId

LIMIT = 4_095
"""Characters that a broker takes by default: ``offset.metadata.max.bytes`` is 4,096,
and the client sends a zero behind the text."""

_PREFIX = "kafka_tx:"


def encode(committed: CommittedOffset, limit: int = LIMIT) -> str:
    """The text to store with ``committed.offset``; empty if there is nothing to store.

    Records of runs that do not fit are processed again after a restart. Failures are
    stored if there is room, the broker never.
    """
    kept = replace(
        committed, completed=committed.completed[: fitting(committed, limit)]
    )
    if kept == CommittedOffset(kept.offset, broker=kept.broker):
        return ""
    text = _text(kept)
    return text if len(text) <= limit else _text(replace(kept, failures=()))


def fitting(committed: CommittedOffset, limit: int = LIMIT) -> int:
    """The number of lowest runs that fit; fewer than all: there is no more room."""
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


def decode(
    offset: int, metadata: str, what: str = "a group's offset"
) -> CommittedOffset:
    """Read the text stored with ``offset``, if it is ours.

    ``what`` is the offset in words. Raises ValueError, or FormatError for a format that
    this version does not read.
    """
    if not metadata.startswith(_PREFIX):
        return CommittedOffset(offset)
    try:
        version, checksum, how, content = metadata.removeprefix(_PREFIX).split(":", 3)
    except ValueError:
        raise ValueError("it is cut short") from None
    GROUPS.check(int(version) if version.isdecimal() else version, what)
    if checksum != _checksum(offset, content):
        raise ValueError("its checksum does not match")
    try:
        body = b85decode(content)
        return _parse(offset, zlib.decompress(body) if how == "z" else body)
    except (zlib.error, IndexError) as error:
        raise ValueError(str(error)) from None


def _fits(committed: CommittedOffset, count: int, limit: int) -> bool:
    some = replace(committed, completed=committed.completed[:count], failures=())
    return len(_text(some)) <= limit


def _text(committed: CommittedOffset) -> str:
    body = bytearray()
    for name in (committed.topology_id, committed.topology_name, committed.topic_id):
        data = name.encode()
        body += _packed([len(data)]) + data
    epoch, at = committed.leader_epoch, committed.offset
    completed, failures = committed.completed, committed.failures
    known = 0 if epoch is None else epoch + 1
    body += _packed([known, len(completed), len(failures)])
    body += _packed(chain(_gaps(at, completed), _gaps(at, failures)))
    plain, deflated = bytes(body), zlib.compress(body, 9)
    how, shorter = ("z", deflated) if len(deflated) < len(plain) else ("-", plain)
    content = b85encode(shorter).decode()
    checksum = _checksum(committed.offset, content)
    return f"{_PREFIX}{GROUPS.number}:{checksum}:{how}:{content}"


def _parse(offset: int, body: bytes) -> CommittedOffset:
    names, at = [], 0
    for _ in range(3):
        length, at = _take(body, at)
        names.append(body[at : at + length].decode())
        at += length
    epoch, count, failed, *numbers = _numbers(body, at)
    first, last = 2 * count, 2 * count + 3 * failed
    if len(numbers) < last:
        raise IndexError("runs are missing")
    return CommittedOffset(
        offset,
        completed=tuple(_runs(offset, numbers[:first], 2)),
        topology_id=names[0],
        topology_name=names[1],
        topic_id=names[2],
        failures=tuple(_runs(offset, numbers[first:last], 3)),
        leader_epoch=epoch - 1 if epoch else None,
    )


def _gaps(last: int, runs: Iterable[Sequence[int]]) -> Iterator[int]:
    """Each run as its distance from the one before, its length, and what follows."""
    for start, end, *times in runs:
        yield from (start - last, end - start, *times)
        last = end


def _runs(last: int, numbers: Sequence[int], width: int) -> Iterator[Any]:
    """The runs that ``_gaps`` wrote as so many numbers each."""
    for gap, length, *times in zip(*[iter(numbers)] * width, strict=True):
        yield last + gap, last + gap + length, *times
        last += gap + length


def _packed(numbers: Iterable[int]) -> bytes:
    """Seven bits a byte, lowest first; the high bit says that more follow."""
    body = bytearray()
    for number in numbers:
        while number > 0x7F:
            body.append(number & 0x7F | 0x80)
            number >>= 7
        body.append(number)
    return bytes(body)


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


_RENEW_MS = 3_600_000


class KafkaGroupOffsetStore(StateOfId):
    """An OffsetStore in a Kafka consumer group, which it never joins.

    Every tool that shows groups shows the offsets. Brokers expire an offset that is not
    written for a while (``renew_ms``). The broker of an offset is not stored. For one
    thread at a time.

    There is no fencing: clients that are no members of a group may commit. Of two live
    spouts with the same group, one finds the other's offsets in place of its own.

    Args:
        settings: From ``client_settings(…, purpose="admin")``.
        group: The name of the group; nobody else may be an active member of it.
        timeout_ms: The longest time one call may take.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        group: str,
        *,
        timeout_ms: int = 30_000,
    ) -> None:
        super().__init__("kafka:", group)
        self.retry_ms = DEFAULT_MS
        self._mirror = GroupMirror(settings, group, timeout_ms=timeout_ms)
        self._left: dict[TopicPartition, tuple[int, ...]] = {}

    def fitting(self, committed: CommittedOffset) -> int:
        """As ``OffsetStore.fitting``."""
        return fitting(committed)

    def renew_ms(self) -> int:
        """A quarter of the brokers' retention; at most, and by default, one hour."""
        kept_ms = self._mirror.retention_ms()
        return _RENEW_MS if kept_ms is None else min(_RENEW_MS, kept_ms // 4)

    def acquire(self, task: int = 0, tasks: int = 1) -> int:  # noqa: ARG002
        """Fences nobody and returns 0: Kafka fences only members of the group.

        Raises:
            ConfigError: The group is none of consumers.
        """
        self._mirror.check_kind("id")
        return 0

    def topics(self) -> frozenset[str]:
        """None: a group is shared by all that name it, and nobody is fenced."""
        return frozenset()

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """As ``OffsetStore.load``; offsets of other programs have no runs.

        Raises also:
            AuthenticationError: Credentials, permission (DESCRIBE of the group) or TLS.
            KafkaError: A broker answered with another error.
        """
        found = self._positions(partitions)
        self._left |= {partition: (at.offset,) for partition, at in found.items()}
        return {partition: self._read(at) for partition, at in found.items()}

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """As ``OffsetStore.store``; offsets of a deleted topic are left out.

        Up to some thousand partitions are one request, which a broker takes whole or
        not. An offset that this object has not read or written last is nobody's to
        overwrite. One that the brokers have expired is written again.

        Raises also:
            AuthenticationError: Credentials, permission (READ of the group) or TLS.
            GroupOccupiedError: The group has members now.
            KafkaError: The group refused: the metadata is longer than the brokers take.
        """
        positions = [
            as_commit(partition, committed.position, encode(committed))
            for partition, committed in offsets.items()
        ]
        self._check_left(offsets)
        for partition, committed in offsets.items():
            left = self._left.get(partition, ())
            self._left[partition] = (*left, committed.offset)
        with self._reachable():
            gone = self._mirror.store_positions(positions)
        self._left |= {p: (committed.offset,) for p, committed in offsets.items()}
        for partition in gone:
            del self._left[partition]

    def close(self) -> None:
        """Release the connections. Calling it twice is harmless."""
        self._mirror.close()

    def _positions(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ClientPartition]:
        with self._reachable():
            found = self._mirror.load_positions(partitions)
        return {TopicPartition(at.topic, at.partition): at for at in found}

    def _check_left(self, partitions: Iterable[TopicPartition]) -> None:
        known = [partition for partition in partitions if partition in self._left]
        for partition, at in self._positions(known).items():
            if at.offset not in self._left[partition]:
                raise lost_offsets(
                    f"the brokers (partition {partition} at {at.offset}, left at"
                    f" {self._left[partition][-1]})",
                    self.id,
                    "was written by others (another live spout with this group, or"
                    " kafka-consumer-groups --reset-offsets), or the cluster went back",
                )

    def _read(self, at: ClientPartition) -> CommittedOffset:
        where = f"{at.topic}-{at.partition}"
        what = f"the offset that group '{self.id}' has committed for {where}"
        try:
            found = decode(at.offset, at.metadata or "", what)
            epoch = at.leader_epoch if found.leader_epoch is None else None
            return found if epoch is None else replace(found, leader_epoch=epoch)
        except ValueError as error:
            raise StateCorruptedError(
                f"the metadata of the offset {at.offset} that group '{self.id}' has"
                f" committed for {where} cannot be read: {error}. Nothing was changed."
                " Set the group's offset again with kafka-consumer-groups"
                " --reset-offsets; what was done beyond it is then processed again",
                store=f"group {self.id}",
                path=where,
                reason=str(error),
            ) from None

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except BrokerUnavailableError as error:
            raise StateUnavailableError(
                f"group '{self.id}' cannot be reached: {error.message}",
                store=f"group {self.id}",
            ) from error
