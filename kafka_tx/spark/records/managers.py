"""Opens and closes the partition managers of a spout."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.metrics.catalogue import SKIPPED_OFFSETS
from kafka_tx.model import (
    Broker,
    CommittedOffset,
    Earliest,
    LogBounds,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.offsets.rules import PartitionRules
from kafka_tx.offsets.start import StartRules, choose_start
from kafka_tx.protocols import ClusterView, Meter
from kafka_tx.spark.records.offset_keeper import OffsetKeeper

logger = logging.getLogger(__name__)

SKIP_REASONS = {
    LossReason.TRIMMED: "retention",
    LossReason.CUT: "topic_deleted",
    LossReason.BEHIND: "too_far_behind",
}


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

    def prepare(self, partitions: Iterable[TopicPartition]) -> None:
        """See ``ManagerSource``.

        Raises:
            StateError: The stored offsets cannot be had.
            BrokerUnavailableError: The logs cannot be looked at now.
        """
        self._found = {}
        self._found = self._look_up(set(partitions))

    def open(
        self, partition: TopicPartition, leader: Broker | None, *, is_new: bool
    ) -> PartitionManager:
        """See ``ManagerSource``.

        Raises:
            OffsetOutOfRangeError: The start is not in the log, and the policy is to
                fail.
            BrokerUnavailableError: The log could not be looked at.
        """
        found = self._found.pop(partition, None)
        if found is None:
            raise BrokerUnavailableError(f"{partition} was not looked up yet")
        for answer in (found.bounds, found.position):
            if isinstance(answer, Unavailable):
                raise BrokerUnavailableError(f"{partition}: {answer.reason}")
        assert isinstance(found.bounds, LogBounds)
        assert not isinstance(found.position, Unavailable)
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
                reason=SKIP_REASONS[reason],
            )
        return PartitionManager(
            partition,
            self._rules,
            decision.committed,
            stored=found.stored,
            leader=leader,
        )

    def _look_up(self, partitions: set[TopicPartition]) -> dict[TopicPartition, _Found]:
        stored = self._keeper.load(partitions)
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

    def close(self, manager: PartitionManager) -> None:
        """Commit what is completed; see ``ManagerSource``."""
        offset = manager.next_to_commit()
        if offset is not None:
            self._keeper.store_now({manager: offset})
