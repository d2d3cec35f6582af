"""Asks brokers for log bounds: as rarely, and for as few, as needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.position_checks import is_of_other_leader
from kafka_tx.offsets.retry import BackOff
from kafka_tx.protocols import Clock, ClusterView

Bounds = Mapping[TopicPartition, LogBounds | Unavailable]

_PAUSE_MS_EACH = 4
"""Longest pause between two polls without news, in ms for each partition.

A poll costs the driver about 25 µs for each quiet partition, so an idle driver uses
less than 1 % of a core.
"""


WHOLE_POLL_MS = 30_000
"""How often the starts of quiet logs are asked for, too: retention removes records, and
a metric shows the headroom."""


def longest_pause_ms(partitions: int) -> int:
    """The longest pause between polls of so many quiet partitions."""
    return partitions * _PAUSE_MS_EACH


def pause_ms(fruitless: int, shortest_ms: int, longest_ms: int) -> int:
    """The pause after so many polls (1 or more) without news: twice as long each time.

    No pause is longer than ``longest_ms``, unless the shortest is.
    """
    pauses = BackOff(
        initial_delay_ms=shortest_ms,
        multiplier=2,
        max_delay_ms=max(shortest_ms, longest_ms),
    )
    return pauses.delay_ms(fruitless)


_COUNTS_TIMES, _COUNTS_MS = 10, 1_000


def counts_until_ms(began_ms: int, now_ms: int) -> int:
    """When an answer counts no more: after ten times its duration, 1 s at most.

    So polls take a tenth of the driver's time at most, for any number of partitions.
    """
    return began_ms + min(_COUNTS_TIMES * (now_ms - began_ms), _COUNTS_MS)


POLL_MS = 100
"""Longest pause between two polls of few logs with nothing to read."""

SOON_MS = 5
"""The first pause with nothing to read; it doubles up to ``POLL_MS``."""

POLL_SHARE = 5
"""The first pause is at least this many times as long as a poll, up to ``POLL_MS``."""

BUSY_POLL_MS = 1_000
"""Pause between two polls while there is something to read."""

_COSTLY_POLL_MS = 5_000
"""Longest pause while there is something to read, if a poll takes long."""

_BUSY_SHARE = 50
"""While there is something to read, polls take at most 1/50 of the time."""


class PollTimes:
    """Times of polls, one at a time, in monotonic ms; the topology's thread only.

    Attributes:
        is_wanted: The next poll is due at once.
        had_nothing: The last request for records found nothing to read.
    """

    def __init__(self) -> None:
        self.is_wanted = True
        self.had_nothing = True
        self._fruitless = 0
        self._took_ms = 0
        self._began_ms = self._ended_ms = 0

    def began(self, now_ms: int) -> None:
        """A poll begins."""
        self.is_wanted = False
        self._began_ms = now_ms

    def ended(self, now_ms: int, *, is_news: bool) -> None:
        """The poll's answer was applied; ``is_news``: a log has changed."""
        self._ended_ms = now_ms
        self._took_ms = now_ms - self._began_ms
        self._fruitless = 0 if is_news else self._fruitless + 1

    def failed(self, now_ms: int) -> None:
        """The poll failed: the next one comes after ``POLL_MS`` or more."""
        self._ended_ms = now_ms
        self._took_ms = max(self._took_ms, POLL_MS // POLL_SHARE)

    def due_ms(self, partitions: int) -> int:
        """When to poll so many partitions again; 0: at once."""
        if self.is_wanted:
            return 0
        return self._ended_ms + self._pause_ms(partitions)

    def _pause_ms(self, partitions: int) -> int:
        if self.had_nothing:
            first_ms = min(POLL_MS, max(SOON_MS, POLL_SHARE * self._took_ms))
            longest_ms = max(POLL_MS, longest_pause_ms(partitions))
            return pause_ms(max(self._fruitless, 1), first_ms, longest_ms)
        return max(BUSY_POLL_MS, min(self._took_ms * _BUSY_SHARE, _COSTLY_POLL_MS))


_Leader = tuple[str | None, int | None]
"""Topic id and leader epoch: a topic created anew begins with epoch 0 again."""


class EpochEnds:
    """Adds the ends of epochs that a position check needs if there is a new leader.

    Sends no request if the leader is the one that held the position, and no request
    twice to one leader.
    """

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._epoch_ends: dict[TopicPartition, tuple[_Leader, dict[int, int]]] = {}
        """By partition: its leader, and the ends of older epochs in its log."""

    def completed(
        self, bounds: Bounds, positions: Mapping[TopicPartition, LogPosition]
    ) -> Bounds:
        """The bounds, with the ends of these positions' epochs.

        Raises: as ``ClusterView.epoch_ends``.
        """
        moved: dict[TopicPartition, tuple[LogBounds, int]] = {}
        for partition, position in positions.items():
            found = bounds.get(partition)
            if isinstance(found, LogBounds) and is_of_other_leader(position, found):
                epoch, now = position.leader_epoch, found.leader_epoch
                assert epoch is not None
                assert now is not None
                if epoch < now:  # a lower epoch is a former leader's answer: ignore it
                    moved[partition] = found, epoch
        if not moved:
            return bounds
        unknown = {
            p: epoch
            for p, (found, epoch) in moved.items()
            if epoch not in self._ends_of(p, found)
        }
        ends = self._cluster.epoch_ends(unknown) if unknown else {}
        for partition, end in ends.items():
            self._ends_of(partition, moved[partition][0])[unknown[partition]] = end
        complete = {
            p: replace(found, epoch_ends=dict(self._ends_of(p, found)))
            for p, (found, _) in moved.items()
        }
        return {**bounds, **complete}

    def _ends_of(self, partition: TopicPartition, bounds: LogBounds) -> dict[int, int]:
        leader = bounds.topic_id, bounds.leader_epoch
        former, ends = self._epoch_ends.get(partition, (None, {}))
        if former != leader:
            ends = {}
            self._epoch_ends[partition] = leader, ends
        return ends


class LogPoller(EpochEnds):
    """Asks brokers for log bounds: of quiet logs, mostly only for their ends.

    A log that was read to its end, and has the same end and leader, is assumed to have
    the same start and topic: there is nothing to read in it. That halves the cost. A
    topic that was created anew with as many records is detected by its id at the next
    poll of topics.
    """

    def __init__(self, cluster: ClusterView, clock: Clock) -> None:
        super().__init__(cluster)
        self._clock = clock
        self._still: tuple[object, object] = None, None
        """The last ends that were reported, and the bounds that they are those of."""
        self.forget()

    def forget(self) -> None:
        """Ask for the starts of all logs next."""
        self._whole_at_ms = 0

    def asked_whole(self) -> None:
        """The starts of all logs are asked for now."""
        self._whole_at_ms = self._clock.monotonic_ms() + WHOLE_POLL_MS

    @property
    def is_whole_due(self) -> bool:
        """Whether the starts of quiet logs are due, too: then no log is quiet."""
        return self._clock.monotonic_ms() >= self._whole_at_ms

    def poll(
        self,
        partitions: Collection[TopicPartition],
        quiet: Mapping[TopicPartition, LogBounds],
        ask: Callable[[list[TopicPartition]], Bounds] | None = None,
    ) -> Bounds:
        """The bounds of partitions; of quiet ones only the ends are asked for.

        Args:
            partitions: All of them.
            quiet: The last bounds of logs that are read to their ends.
            ask: Asks for the other bounds; None: ``ClusterView.bounds``.

        Raises: as ``ClusterView.bounds``.
        """
        quiet = {p: quiet[p] for p in partitions if p in quiet}
        if not quiet:
            self.asked_whole()
        ends = self._cluster.ends(quiet.keys()) if quiet else {}
        same = {
            p: b for p, b in quiet.items() if ends.get(p) == (b.end, b.leader_epoch)
        }
        rest = [p for p in partitions if p not in same]
        return {**same, **(ask or self._cluster.bounds)(rest)} if rest else same

    def are_still(
        self,
        partitions: Collection[TopicPartition],
        quiet: Mapping[TopicPartition, LogBounds],
    ) -> bool:
        """Whether all these logs end, under the same leaders, as ``quiet`` says.

        Costs no step for each partition in Python where brokers report what they
        reported the last time: the view then gives the same mapping.

        Raises: as ``ClusterView.ends``.
        """
        ends = self._cluster.ends(partitions)
        if self._still[0] is ends and self._still[1] is quiet:
            return True
        is_same = len(ends) == len(quiet) and all(
            ends.get(p) == (b.end, b.leader_epoch) for p, b in quiet.items()
        )
        self._still = (ends, quiet) if is_same else (None, None)
        return is_same
