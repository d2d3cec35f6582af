"""Polls topics and logs, and decides when an answer counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_tx.logs import event_log
from kafka_tx.model import (
    BatchMetadata,
    LogBounds,
    LogPosition,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.discovery import Discovery, Found
from kafka_tx.offsets.position_checks import (
    BELIEVED_AFTER_MS,
    Finding,
    PositionCheck,
    Settling,
    check_position,
)
from kafka_tx.planning.log_bounds import EpochEnds, LogPoller, counts_until_ms
from kafka_tx.protocols import Clock, ClusterView

logger = event_log(__name__)

Positions = Mapping[TopicPartition, int]
LeaderEpochs = Mapping[TopicPartition, int]

_GIVE_UP_MS = 30_000
"""If answers contradict each other for so long, the last one counts."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One answer of the cluster.

    ``bounds`` belong to the topics in ``found``. Partitions that did not answer have no
    bounds: they are neither new nor lost. ``ends`` fetches the ends of epochs for
    positions that were read from another leader.
    """

    found: Found
    bounds: Mapping[TopicPartition, LogBounds]
    at_ms: int
    ends: EpochEnds

    def reaches(self, target: Positions) -> bool:
        """Whether every partition answered, and its log reaches ``target``."""
        bounds = self.bounds
        return all(p in bounds and bounds[p].end >= end for p, end in target.items())

    def check_position(
        self,
        partition: TopicPartition,
        position: LogPosition,
    ) -> PositionCheck:
        """The check of one position; see ``position_checks``."""
        return self.position_checks({partition: position})[partition]

    def position_checks(
        self, positions: Mapping[TopicPartition, LogPosition]
    ) -> dict[TopicPartition, PositionCheck]:
        """The check of each position; its topic id and leader epoch may be unknown.

        Raises: as ``ClusterView.epoch_ends``.
        """
        bounds = self.ends.completed(self.bounds, positions)
        return {
            p: self._check_position(p, at, bounds.get(p)) for p, at in positions.items()
        }

    def _check_position(
        self,
        partition: TopicPartition,
        position: LogPosition,
        bounds: LogBounds | Unavailable | None,
    ) -> PositionCheck:
        topic = self.found.topics.get(partition.topic)
        if bounds is None and topic is not None:
            bounds = Unavailable("no answer", topic.topic_id)
        exists = bounds is not None and self.found.exists(partition)
        return check_position(position, bounds, exists=exists)

    def position_checks_of(
        self, batch: BatchMetadata
    ) -> dict[TopicPartition, PositionCheck]:
        """The checks of a stored batch's ends, for partitions with records."""
        ends, read = batch.positions(), (r for r in batch.ranges if len(r))
        return self.position_checks(
            {r.topic_partition: ends[r.topic_partition] for r in read}
        )


class ClusterPoller:
    """Polls a subscription, with a few requests each time.

    ``retries`` are the least number of repeated polls after an answer that means loss,
    and the pause between in ms. A log that ends too early must report this end for
    ``BELIEVED_AFTER_MS``.
    """

    def __init__(
        self,
        view: ClusterView,
        discovery: Discovery,
        clock: Clock,
        retries: tuple[int, int],
    ) -> None:
        self._view = view
        self._discovery = discovery
        self._clock = clock
        self._logs = LogPoller(view, clock)
        self._topics_until_ms = 0
        self._pause_ms = retries[1]
        shortest_ms = (retries[0] - 1) * retries[1]
        self._believed_after_ms = {
            finding: max(ms, shortest_ms) if finding is Finding.CUT else shortest_ms
            for finding, ms in BELIEVED_AFTER_MS.items()
        }
        self.last: ClusterState | None = None

    def now(self) -> ClusterState:
        """Poll the brokers now."""
        began_ms = self._clock.monotonic_ms()
        self._logs.asked_whole()
        known = self.last.found.partitions if self.last else ()
        topics, answers = self._view.survey(self._discovery.wanted, known)
        found = self._discovery.found_in(topics)
        new = [p for p in found.partitions if p not in answers]
        if new:
            answers |= self._view.bounds(new)
        bounds = {
            p: answer
            for p in found.partitions
            if isinstance(answer := answers.get(p), LogBounds)
            and answer.topic_id == topics[p.topic].topic_id
        }
        now_ms = self._clock.monotonic_ms()
        self._topics_until_ms = counts_until_ms(began_ms, now_ms)
        self.last = ClusterState(found, bounds, now_ms, self._logs)
        return self.last

    def is_unchanged(self, cluster: ClusterState) -> bool:
        """Whether topics and logs are as in the last answer, which is ``cluster``.

        Asks for the ends of logs, and for topics if the last answer about them is too
        old to count. False also if an answer of all logs is due; see ``LogPoller``.

        Raises: as ``ClusterView.topics``.
        """
        is_whole = len(cluster.bounds) == len(cluster.found.partitions)
        if cluster is not self.last or not is_whole or self._logs.is_whole_due:
            return False
        began_ms = self._clock.monotonic_ms()
        if began_ms >= self._topics_until_ms:
            if self._discovery.find() != cluster.found:
                return False
            self._topics_until_ms = counts_until_ms(
                began_ms, self._clock.monotonic_ms()
            )
        return self._logs.are_still(cluster.found.partitions, cluster.bounds)

    def is_of_these_topics(self, cluster: ClusterState) -> bool:
        """Whether the topics are still as in an older answer; fetches no log bounds."""
        return self._discovery.find() == cluster.found

    def steady(
        self,
        position_checks: Callable[
            [ClusterState], Mapping[TopicPartition, PositionCheck]
        ],
    ) -> ClusterState:
        """Poll until all of these checks count, because an answer may be outdated."""
        settling = Settling(self._believed_after_ms)
        cluster = self.now()
        until_ms = cluster.at_ms + _GIVE_UP_MS + max(self._believed_after_ms.values())
        while cluster.at_ms < until_ms:
            doubtful = [
                f"{partition} is {check.finding} at {check.position}"
                for partition, check in position_checks(cluster).items()
                if not settling.believes(partition, check, cluster.at_ms)
            ]
            if not doubtful:
                break
            logger.warning("polling again: %s", ", ".join(doubtful))
            self._clock.sleep_ms(max(self._pause_ms, 100))
            cluster = self.now()
        return cluster
