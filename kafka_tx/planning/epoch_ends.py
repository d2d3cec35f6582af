"""Asking where former leaders' logs ended, and not twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.planning.standing import is_of_other_leader
from kafka_tx.protocols import ClusterView

Bounds = Mapping[TopicPartition, LogBounds | Unavailable]


_Leader = tuple[str | None, int | None]
"""Topic id and leader epoch: a topic made anew begins with epoch 0 again."""


class EpochEnds:
    """Completes bounds with what ``stand`` needs where a partition has a new leader.

    Nothing is asked where the leader is the one that held the position, and no question
    is put twice to one leader.

    Args:
        cluster: What is asked.
    """

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._told: dict[TopicPartition, tuple[_Leader, dict[int, int]]] = {}
        """By partition: its leader, and where older epochs ended in its log."""

    def completed(
        self, bounds: Bounds, positions: Mapping[TopicPartition, LogPosition]
    ) -> Bounds:
        """The bounds, with the ends of the epochs that these positions are of.

        Raises: as ``ClusterView.epoch_ends``.
        """
        moved: dict[TopicPartition, tuple[LogBounds, int]] = {}
        for partition, position in positions.items():
            found = bounds.get(partition)
            if isinstance(found, LogBounds) and is_of_other_leader(position, found):
                epoch, now = position.leader_epoch, found.leader_epoch
                assert epoch is not None
                assert now is not None
                if epoch < now:  # else a former leader told: it knows nothing of it
                    moved[partition] = found, epoch
        if not moved:
            return bounds
        unknown = {
            p: epoch
            for p, (found, epoch) in moved.items()
            if epoch not in self._told_by(p, found)
        }
        ends = self._cluster.epoch_ends(unknown) if unknown else {}
        for partition, end in ends.items():
            self._told_by(partition, moved[partition][0])[unknown[partition]] = end
        complete = {
            p: replace(found, epoch_ends=dict(self._told_by(p, found)))
            for p, (found, _) in moved.items()
        }
        return {**bounds, **complete}

    def _told_by(self, partition: TopicPartition, bounds: LogBounds) -> dict[int, int]:
        leader = bounds.topic_id, bounds.leader_epoch
        former, told = self._told.get(partition, (None, {}))
        if former != leader:
            told = {}
            self._told[partition] = leader, told
        return told
