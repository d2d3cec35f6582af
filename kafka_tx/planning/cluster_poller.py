"""What the brokers said about topics and logs, and when that is believed."""

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
from kafka_tx.planning.log_bounds import EpochEnds
from kafka_tx.planning.standing import (
    BELIEVED_AFTER_MS,
    Finding,
    Settling,
    Standing,
    stand,
)
from kafka_tx.protocols import Clock, ClusterView

logger = event_log(__name__)

Positions = Mapping[TopicPartition, int]
LeaderEpochs = Mapping[TopicPartition, int]

_GIVE_UP_MS = 30_000
"""Answers that contradict each other for so long: the last one counts."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One look at the cluster.

    ``bounds`` are those of the topics that were ``found``. They leave out partitions
    that did not answer: they are neither new nor lost. ``ends`` asks what a position
    needs that was held by another leader.
    """

    found: Found
    bounds: Mapping[TopicPartition, LogBounds]
    at_ms: int
    ends: EpochEnds

    def reaches(self, target: Positions) -> bool:
        """Whether every partition answered, and holds all up to there."""
        bounds = self.bounds
        return all(p in bounds and bounds[p].end >= end for p, end in target.items())

    def stand(
        self,
        partition: TopicPartition,
        position: int,
        ids: Mapping[str, str],
        epochs: LeaderEpochs,
    ) -> Standing:
        """What it means for a position; see ``standings``."""
        return self.standings({partition: position}, ids, epochs)[partition]

    def standings(
        self, positions: Positions, ids: Mapping[str, str], epochs: LeaderEpochs
    ) -> dict[TopicPartition, Standing]:
        """What it means for each position.

        Args:
            positions: The next offsets.
            ids: Of the topics that they are of; unknown ones are left out.
            epochs: Of the leaders that held them; unknown ones are left out.

        Raises: as ``ClusterView.epoch_ends``.
        """
        wanted = {
            p: LogPosition(offset, ids.get(p.topic), epochs.get(p))
            for p, offset in positions.items()
        }
        bounds = self.ends.completed(self.bounds, wanted)
        return {p: self._stand(p, at, bounds.get(p)) for p, at in wanted.items()}

    def _stand(
        self,
        partition: TopicPartition,
        position: LogPosition,
        bounds: LogBounds | Unavailable | None,
    ) -> Standing:
        topic = self.found.topics.get(partition.topic)
        if bounds is None and topic is not None:
            bounds = Unavailable("no answer", topic.topic_id)
        exists = bounds is not None and self.found.exists(partition)
        return stand(position, bounds, exists=exists)

    def standings_of(self, batch: BatchMetadata) -> dict[TopicPartition, Standing]:
        """What it means for the ends of a stored batch, where it has records."""
        ends = {r.topic_partition: r.end for r in batch.ranges if len(r)}
        return self.standings(ends, batch.topic_ids, batch.leader_epochs())


class ClusterPoller:
    """Looks at a subscription, in a few requests each time.

    Args:
        retries: How often, at the least, an answer that means loss is asked for again,
            and the pause between, in ms; a log that ends too early must say so for
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
        self._ends = EpochEnds(view)
        self._pause_ms = retries[1]
        shortest_ms = (retries[0] - 1) * retries[1]
        self._believed_after_ms = {
            finding: max(ms, shortest_ms) if finding is Finding.CUT else shortest_ms
            for finding, ms in BELIEVED_AFTER_MS.items()
        }
        self.last: ClusterState | None = None

    def now(self) -> ClusterState:
        """Ask anew."""
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
        self.last = ClusterState(found, bounds, self._clock.monotonic_ms(), self._ends)
        return self.last

    def is_of_these_topics(self, look: ClusterState) -> bool:
        """Whether topics are still as in an older look; logs are not asked."""
        return self._discovery.look() == look.found

    def steady(
        self, standings: Callable[[ClusterState], Mapping[TopicPartition, Standing]]
    ) -> ClusterState:
        """Look until all it means is believed: an answer may be an older one.

        Args:
            standings: What a look means.
        """
        settling = Settling(self._believed_after_ms)
        look = self.now()
        until_ms = look.at_ms + _GIVE_UP_MS + max(self._believed_after_ms.values())
        while look.at_ms < until_ms:
            doubtful = [
                f"{partition} is {standing.finding} at {standing.position}"
                for partition, standing in standings(look).items()
                if not settling.believes(partition, standing, look.at_ms)
            ]
            if not doubtful:
                break
            logger.warning("asking again: %s", ", ".join(doubtful))
            self._clock.sleep_ms(max(self._pause_ms, 100))
            look = self.now()
        return look
