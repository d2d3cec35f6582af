"""Opens and closes the partition managers of a spout."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_tx.errors import BrokerUnavailableError, StateError
from kafka_tx.metrics.catalogue import SKIPPED_OFFSETS
from kafka_tx.model import (
    Broker,
    CommittedOffset,
    Earliest,
    LogBounds,
    LogPosition,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.managed import names_of
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.rules import PartitionRules
from kafka_tx.planning.standing import Finding, Settling, stand
from kafka_tx.planning.start import StartRules, choose_start, vanished
from kafka_tx.protocols import ClusterView, Meter
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known of a partition before it is opened."""

    stored: CommittedOffset | None
    bounds: LogBounds | Unavailable
    position: int | Unavailable | None


class SpoutManagers:
    """A coordinator's ``ManagerSource`` (driver).

    What partitions need is asked for all of them at once, before the first is opened,
    and apart from that: the topology's thread does not wait for it.
    """

    def __init__(
        self,
        rules: PartitionRules,
        start: StartRules,
        cluster: ClusterView,
        keeper: OffsetKeeper,
        meter: Meter,
    ) -> None:
        self._rules = rules
        self._start = start
        self._cluster = cluster
        self._keeper = keeper
        self._meter = meter
        self._found: dict[TopicPartition, _Found] = {}
        self._settling = Settling()
        self._has_stored: dict[str, bool] = {}

    def prepare(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``ManagerSource``.

        Raises:
            StateError: The stored offsets cannot be had, or some of them are gone.
            BrokerUnavailableError: The logs cannot be looked at now.
        """
        self._found = {}
        self._found = self._look_up(set(partitions))

    def open(
        self,
        partition: TopicPartition,
        leader: Broker | None,
        *,
        is_new: bool,
    ) -> PartitionManager:
        """See ``ManagerSource``.

        Raises:
            OffsetOutOfRangeError: The start is not in the log, and the policy is to
                fail.
            BrokerUnavailableError: The log could not be looked at, nobody tells whose
                it is, or its end lies below what is stored and may be an old answer.
        """
        found = self._found.pop(partition, None)
        if found is None:
            raise BrokerUnavailableError(f"{partition} was not looked up yet")
        for answer in (found.bounds, found.position):
            if isinstance(answer, Unavailable):
                raise BrokerUnavailableError(f"{partition}: {answer.reason}")
        assert isinstance(found.bounds, LogBounds)
        assert not isinstance(found.position, Unavailable)
        self._check_settled(partition, found.stored, found.bounds)
        # Also what came while nobody looked was seen by nobody.
        is_new = is_new or self._has_stored.get(partition.topic, False)
        is_unseen = is_new and found.stored is None
        decision = choose_start(
            partition,
            replace(self._start, position=Earliest()) if is_unseen else self._start,
            stored=found.stored,
            resolved=found.bounds.log_start if is_unseen else found.position,
            bounds=found.bounds,
        )
        logger.info("%s", decision.reason)
        for reason, count in decision.lost.items():
            self._meter.add(
                SKIPPED_OFFSETS.name,
                count,
                id=self._keeper.id,
                topic=partition.topic,
                partition=str(partition.partition),
                reason=reason,
            )
        return PartitionManager(
            partition,
            self._rules,
            decision.committed,
            stored=found.stored,
            leader=leader,
        )

    def _check_settled(
        self,
        partition: TopicPartition,
        stored: CommittedOffset | None,
        bounds: LogBounds,
    ) -> None:
        if stored is None:
            return
        standing = stand(LogPosition(stored.offset, stored.topic_id or None), bounds)
        if standing.finding is Finding.UNANSWERED:
            raise BrokerUnavailableError(
                f"{partition}: no broker tells whether its topic is still the one with"
                f" the id {stored.topic_id}, of which offset {stored.offset} is stored"
            )
        if self._settling.believes(partition, standing, self._keeper.now_ms()):
            self._settling.forget(partition)
            return
        raise BrokerUnavailableError(
            f"{partition} is said to be {standing.finding.value} at the stored offset"
            f" {stored.offset}: looking again before that is believed"
        )

    def _look_up(self, partitions: set[TopicPartition]) -> dict[TopicPartition, _Found]:
        stored = self._keeper.load(partitions)
        self._check_vanished(partitions, stored)
        bounds = self._cluster.bounds(partitions)
        positions: dict[TopicPartition, int | Unavailable | None]
        if isinstance(self._start.position, Earliest):
            positions = {
                partition: at.log_start if isinstance(at, LogBounds) else at
                for partition, at in bounds.items()
            }
        else:
            wanted = dict.fromkeys(partitions, self._start.position)
            positions = self._cluster.offsets(wanted)
        nothing = Unavailable("the brokers did not tell")
        return {
            p: _Found(stored.get(p), bounds.get(p, nothing), positions.get(p, nothing))
            for p in partitions
        }

    def _check_vanished(
        self,
        partitions: set[TopicPartition],
        stored: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Whether offsets are gone, the first time that a topic is looked up.

        Later what has no offset is new, or was never begun.
        """
        if self._start.ignore_stored_offsets:
            return
        first = {p for p in partitions if p.topic not in self._has_stored}
        topics = {partition.topic for partition in stored}
        gone = vanished(first, stored) if self._keeper.forgets else []
        if gone:
            raise StateError(
                f"'{self._keeper.id}' has offsets of {', '.join(sorted(topics))}, but"
                f" none of {names_of(gone)}: they expired (offsets.retention.minutes"
                " of the brokers) or were deleted. Beginning anew could lose or repeat"
                " records, so nothing was begun. Decide with kafka-consumer-groups"
                f" --group {self._keeper.id} --reset-offsets --topic"
                f" {_named(gone)} --execute and --to-earliest (repeats what is left in"
                " their logs), --to-latest (leaves it out) or --to-offset",
                id=self._keeper.id,
            )
        self._has_stored |= {p.topic: p.topic in topics for p in first}

    def close(self, managers: Sequence[PartitionManager]) -> None:
        """Commit what is completed; see ``ManagerSource``."""
        offers = {manager: manager.next_to_commit() for manager in managers}
        wanted = {m: offset for m, offset in offers.items() if offset is not None}
        if wanted:
            self._keeper.store_now(wanted)


def _named(partitions: Sequence[TopicPartition]) -> str:
    """As Kafka's own tools take them: ``topic:1,3``, with --topic before each topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    parts = (f"{topic}:{','.join(map(str, ns))}" for topic, ns in topics.items())
    return " --topic ".join(parts)
