"""What a topic takes, and with which times."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000
LARGEST = 2**63 - 1
"""Times without a limit."""

LEAST_BYTES = 1_024
"""A dead-letter topic must take batches of this size: the smallest dead letters."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic's settings that decide which records it takes, as brokers report them.

    Attributes:
        partitions: Their number; 0: the topic does not exist.
        leaderless: Numbers of partitions without a leader now.
        is_known: Whether brokers reported the settings. If not, the defaults below
            stand for them.
        policy: ``cleanup.policy``.
        stamps: Whether brokers replace the time of a record by their own.
        before_ms, after_ms: How far the time of a record may be from now.
        retention_ms: After which time from its own a record is removed; -1: never.
        largest: Bytes of the largest batch; None: not known.
        rights: Operations that the user may do; empty: not known.
    """

    name: str
    partitions: int
    leaderless: frozenset[int] = frozenset()
    is_known: bool = False
    policy: str = "delete"
    stamps: bool = False
    before_ms: int = LARGEST
    after_ms: int = HOUR_MS
    retention_ms: int = -1
    largest: int | None = None
    rights: frozenset[str] = frozenset()

    @property
    def is_compacted(self) -> bool:
        """Whether the topic keeps only one record of a key, and takes none without."""
        return "compact" in self.policy

    @property
    def is_read_only(self) -> bool:
        """Whether it is known that the user may not write."""
        return bool(self.rights) and "WRITE" not in self.rights

    def letter_times(self, now_ms: int) -> tuple[int, int]:
        """The first and last time that a dead letter may have: it is taken, and kept.

        A record that has used up half of the topic's retention would be removed too
        soon. If brokers replace times, there is no such time.
        """
        if self.stamps:
            return 0, -1
        return self._times(now_ms, self.retention_ms // 2)

    def record_times(self, now_ms: int) -> tuple[int, int]:
        """The first and last time with which a record can be sent back here.

        Any time if brokers replace it: the record had none of its own.
        """
        if self.stamps:
            return -LARGEST, LARGEST
        return self._times(now_ms, self.retention_ms)

    def _times(self, now_ms: int, kept_ms: int) -> tuple[int, int]:
        oldest_ms = self.before_ms if kept_ms < 0 else min(self.before_ms, kept_ms)
        return now_ms - oldest_ms, now_ms + self.after_ms

    def refusal(self, partition: int, key: bytes | None) -> tuple[str, bool] | None:
        """Why a record cannot be written to a partition now; None: nothing is known.

        The second one is whether that lasts: a partition may get a leader again.
        """
        name = self.name
        if partition >= self.partitions:
            has = f"has {self.partitions} partitions" if self.partitions else "is gone"
            return f"topic '{name}' {has}: there is no partition {partition}", True
        if partition in self.leaderless:
            return f"partition {partition} of '{name}' has no leader now", False
        if self.is_read_only:
            return f"this user has no WRITE right on topic '{name}'", False
        if self.is_compacted and key is None:
            return f"topic '{name}' is compacted and takes no record without key", True
        return None


def unfit(facts: TopicFacts) -> str | None:
    """Why a topic cannot take dead letters, and what to do; None: it can.

    ``facts`` are of a topic that exists.
    """
    name = facts.name
    alter = f"kafka-configs.sh --alter --entity-type topics --entity-name {name}"
    if facts.is_compacted:
        return (
            f"with cleanup.policy={facts.policy} it takes no dead letter without a key,"
            " and keeps only the last one of each key. Set it:"
            f" {alter} --add-config cleanup.policy=delete"
        )
    if facts.is_read_only:
        return f"this user may not write it. Grant WRITE on topic '{name}'"
    if facts.largest is not None and facts.largest < LEAST_BYTES:
        return (
            f"it takes {facts.largest} bytes at a time, and dead letters need at least"
            f" {LEAST_BYTES}. Set it: {alter} --add-config max.message.bytes=1048588"
        )
    return None
