"""Committed offsets in Kafka itself, as those of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import (
    BrokerUnavailableError,
    StateCorruptedError,
    StateUnavailableError,
)
from kafka_tx.kafka import commit_metadata
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.offsets.owners import lost_offsets
from kafka_tx.transactions.refusals import unpicklable

_RENEW_MS = 3_600_000
_REQUEST_BYTES = 500_000
"""A broker keeps a request as one batch of its own topic: at most 1 MB by default."""


class KafkaGroupOffsetStore:
    """An OffsetStore in a Kafka consumer group, which it never joins.

    Every tool that shows groups shows the offsets. Runs that are done beyond the offset
    and the deployment travel in the commit's metadata, as far as there is room:
    ``fitting`` tells. The broker is not kept. For one thread at a time.

    Brokers forget an offset that was not written for a while, each partition on its
    own: ``renew_ms`` tells how often all are to be written again.

    Nobody is fenced: a group knows its members, and who is none may commit. Of two live
    spouts with the same group, one finds the other's offsets in place of its own.

    Args:
        settings: From ``client_settings(…, purpose="admin")``.
        group: The name of the group; nobody else may be an active member of it.
        timeout_ms: The longest time one call may take.
        metadata_limit: ``offset.metadata.max.bytes`` of the brokers.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        group: str,
        *,
        timeout_ms: int = 30_000,
        metadata_limit: int = commit_metadata.LIMIT,
    ) -> None:
        self._group = group
        self._limit = metadata_limit
        self._mirror = GroupMirror(settings, group, timeout_ms=timeout_ms)
        self._left: dict[TopicPartition, tuple[int, ...]] = {}

    def __repr__(self) -> str:
        return f"KafkaGroupOffsetStore({self._group!r})"

    def __reduce__(self) -> NoReturn:
        unpicklable(self)

    def fitting(self, committed: CommittedOffset) -> int:
        """How many of the lowest runs beyond the offset can be kept.

        Fewer than there are: emit nothing new on that partition until some are joined
        to the offset, or accept that the rest is processed again after a restart.
        """
        return commit_metadata.fitting(committed, self._limit)

    def renew_ms(self) -> int:
        """How often all offsets must be written again, or the brokers forget them.

        A quarter of ``offsets.retention.minutes``, and once an hour at least: also
        where the brokers do not tell it.
        """
        kept_ms = self._mirror.retention_ms()
        return _RENEW_MS if kept_ms is None else min(_RENEW_MS, kept_ms // 4)

    def acquire(self, task: int = 0, tasks: int = 1) -> int:  # noqa: ARG002
        """Fence nobody: Kafka checks only members, and we are none."""
        return 0

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's offsets; partitions without one are left out.

        An offset that another program committed has no runs and no deployment.

        Raises:
            StateCorruptedError: Metadata of ours cannot be read.
            StateUnavailableError: No broker answered in time.
            AuthenticationError: Credentials, permission (DESCRIBE of the group) or TLS.
            KafkaError: A broker answered with another error.
        """
        found = self._positions(partitions)
        self._left |= {partition: (at.offset,) for partition, at in found.items()}
        return {partition: self._read(at) for partition, at in found.items()}

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Write all of them; other partitions keep theirs.

        Brokers keep none of a topic that was deleted: those are left out. One request,
        which a broker takes whole or not at all, for some thousand partitions; fewer
        when each has many runs. Beyond that several. Runs that do not fit are left out,
        the highest first.

        An offset that is another than this object has read or written last is nobody's
        to overwrite. One that the brokers have forgotten is written again.

        Raises:
            StateLostError: The group is not where this object left it.
            StateUnavailableError: No broker answered in time; unknown whether it
                landed.
            AuthenticationError: Credentials, permission (READ of the group) or TLS.
            GroupOccupiedError: The group has members now.
            KafkaError: The group refused: the metadata is longer than the brokers take.
        """
        positions = [
            ClientPartition(
                topic,
                partition,
                committed.offset,
                commit_metadata.encode(committed, self._limit),
            )
            for (topic, partition), committed in offsets.items()
        ]
        self._check_left(offsets)
        for partition, committed in offsets.items():
            left = self._left.get(partition, ())
            self._left[partition] = (*left, committed.offset)
        gone: set[TopicPartition] = set()
        with self._reachable():
            for some in _requests(positions):
                gone |= self._mirror.store_positions(some)
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
                    f"the brokers (partition {partition} at {at.offset})",
                    self._group,
                    "was written by others (another live spout with this group, or"
                    " kafka-consumer-groups --reset-offsets), or the cluster went back",
                )

    def _read(self, at: ClientPartition) -> CommittedOffset:
        try:
            return commit_metadata.decode(at.offset, at.metadata or "")
        except ValueError as error:
            raise self._corrupted(at, str(error)) from None

    def _corrupted(self, at: ClientPartition, reason: str) -> StateCorruptedError:
        where = f"{at.topic}-{at.partition}"
        return StateCorruptedError(
            f"the metadata of the offset {at.offset} that group '{self._group}' has"
            f" committed for {where} cannot be read: {reason}. Nothing was changed. Set"
            " the group's offset again with kafka-consumer-groups --reset-offsets; what"
            " was done beyond it is then processed again",
            store=f"group {self._group}",
            path=where,
            reason=reason,
        )

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except BrokerUnavailableError as error:
            raise StateUnavailableError(
                f"group '{self._group}' cannot be reached: {error.message}",
                store=f"group {self._group}",
            ) from error


def _requests(positions: list[ClientPartition]) -> Iterator[list[ClientPartition]]:
    some: list[ClientPartition] = []
    size = 0
    for position in positions:
        bytes_ = 100 + 2 * len(position.topic) + len(position.metadata or "")
        if some and size + bytes_ > _REQUEST_BYTES:
            yield some
            some, size = [], 0
        some.append(position)
        size += bytes_
    if some:
        yield some
