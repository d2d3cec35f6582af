"""What a spout's poller is made of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_tx.errors import KafkaTxError
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TopicPartition
from kafka_tx.offsets.manager import PartitionManager
from kafka_tx.protocols import Clock, ClusterView, PartitionCoordinator, RangeReader
from kafka_tx.running.at_least_once.dead_letters import DeadLetters
from kafka_tx.running.at_least_once.offset_keeper import OffsetKeeper
from kafka_tx.topology.rows.schemes import Scheme

logger = logging.getLogger(__name__)


class ManagingCoordinator(PartitionCoordinator, Protocol):
    """A partition coordinator that keeps managers."""

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """Its task's, as last seen, in assignment order."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the last look was answered, and all that it named can be read."""
        ...

    def is_due(self) -> bool:
        """Whether to look again."""
        ...

    def look(self) -> Callable[[], None]:
        """Look (any thread); returns what takes the answer in (the topology's)."""
        ...

    def manager(self, partition: TopicPartition) -> PartitionManager | None:
        """Of one of its partitions."""
        ...

    def close(self) -> None:
        """Close (= commit) every manager."""
        ...


@dataclass(frozen=True)
class PollerParts:
    """What a poller is made of.

    Attributes:
        name: The component.
        coordinator: Of its partitions.
        cluster: Used on the looking thread only.
        keeper: Of its offsets.
        reader: Pickled into jobs.
        scheme: From records to rows.
        dead_letters: Where given-up records go; None: they are skipped.
        commit_interval_ms: ``state_update_interval_ms``.
        registry: Takes the metrics.
        clock: The machine's.
        closing: Release what else was opened for it.
    """

    name: str
    coordinator: ManagingCoordinator
    cluster: ClusterView
    keeper: OffsetKeeper
    reader: RangeReader
    scheme: Scheme
    dead_letters: DeadLetters | None
    commit_interval_ms: int
    registry: MetricsRegistry
    clock: Clock
    closing: tuple[Callable[[], None], ...] = ()

    def release(self, rest_s: Callable[[], float]) -> bool:
        """Commit what is completed and release everything; False if that hangs.

        ``rest_s`` tells how long it may still take, all in all.
        """
        self.keeper.ends_within(rest_s)
        try:
            self.coordinator.close()
        except KafkaTxError as error:
            logger.warning("the last commit of %s failed: %s", self.name, error)
        for close in (self.cluster.close, *self.closing):
            close()
        closed = [self.keeper.close(rest_s())]
        if self.dead_letters is not None:
            closed.append(self.dead_letters.close(rest_s()))
        return all(closed)
