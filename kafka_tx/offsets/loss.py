"""Judges what a position check found, for all doors: go on, skip and count, or stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kafka_tx.errors import ConfigError, DataLossError
from kafka_tx.logs import event_log
from kafka_tx.model import Skip, TopicPartition
from kafka_tx.offsets.position_checks import Finding, PositionCheck

logger = event_log(__name__)


class LossReason(StrEnum):
    """Why offsets were skipped, in every door. The value is the metrics' label.

    Attributes:
        TRIMMED: The log start is above them: retention, or records were deleted.
        CUT: The log ends below them: a leader lost them.
        RECREATED: The topic was deleted, and created again.
        BEHIND: They were more than ``max_offset_behind`` behind.
        COMPACTED: Compaction removed them between a failure and the retry.
    """

    TRIMMED = "retention"
    CUT = "cut"
    RECREATED = "topic_deleted"
    BEHIND = "too_far_behind"
    COMPACTED = "compacted"


class OutOfRange(StrEnum):
    """The policy of every door for a position that its log does not hold.

    ``FAIL`` raises DataLossError. ``EARLIEST``, also called ``nearest``, goes on at the
    log start below it, and at the log end above it: committed records are not read
    again, even if the log lost its end. A topic that was created anew is another log,
    and is read from its start. Source: Storm, PartitionManager.fill.
    """

    FAIL = "fail"
    EARLIEST = "earliest"

    @classmethod
    def of(cls, fails: bool) -> OutOfRange:
        """The policy for ``failOnDataLoss``."""
        return cls.FAIL if fails else cls.EARLIEST

    @classmethod
    def parse(cls, name: str) -> OutOfRange:
        """The policy for the option ``out_of_range``; raises ConfigError for others."""
        try:
            return cls.EARLIEST if name == "nearest" else cls(name)
        except ValueError:
            legal = "'fail', 'earliest' or 'nearest'"
            raise ConfigError.illegal("out_of_range", name, legal) from None


OF_SPOUTS = "To go on without it, give the spout the option failOnDataLoss=false."
"""The next step for transactional topologies; the source's is the error's default."""

_ALLOWED = "The job goes on without them, as its options say."

AT_LEAST_ONCE = (
    "To go on without it, set the spout's out_of_range to 'earliest' or 'nearest', or"
    " store another offset for this partition."
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a partition goes on.

    Attributes:
        reason: Why ``next_offset`` is not the position; None: it is.
        lost: Number of offsets between; 0 if it is another topic.
    """

    next_offset: int
    reason: LossReason | None = None
    lost: int = 0


_REASONS = {
    Finding.TRIMMED: LossReason.TRIMMED,
    Finding.CUT: LossReason.CUT,
    Finding.ANEW: LossReason.RECREATED,
}


def judge(
    partition: TopicPartition,
    check: PositionCheck,
    policy: OutOfRange,
    advice: str = "",
) -> Verdict:
    """Decide where a partition goes on: the one such decision of all doors.

    Data is lost if the log starts above a wanted offset, lost its end, or is of a topic
    that was created anew. A gap inside the log is no loss: compaction and transaction
    markers leave gaps. Deleted partitions are judged together, by ``Losses.deleted``.
    Source: Spark, KafkaMicroBatchStream.reportDataLoss (deviates: counts).

    Args:
        partition: Named in the error.
        check: The finding; brokers have confirmed it, or it needs no confirmation.
        policy: The door's policy.
        advice: The door's next step, for the error; empty: that of the source.

    Raises:
        DataLossError: The finding means a loss, and the policy is to fail.
    """
    reason = _REASONS.get(check.finding)
    if reason is not None and policy is OutOfRange.FAIL:
        raise _lost(partition, check, advice)
    return Verdict(check.next_offset, reason, check.lost + check.cut)


def _lost(
    partition: TopicPartition, check: PositionCheck, advice: str
) -> DataLossError:
    wanted, goes_on, log = check.position, check.next_offset, check.bounds
    name = "PARTITION_OFFSET_CHANGED"
    if check.finding is Finding.TRIMMED:
        name = "START_OFFSET_RESET"
        happened = (
            f"Starting offset for {partition} was {wanted} but consumer reset to"
            f" {goes_on}: retention or a deletion removed records that were not read."
        )
    elif check.finding is Finding.CUT:
        happened = (
            f"Partition {partition} offset was changed from {wanted} to {goes_on}: its"
            " log ends below what was read or planned already, or other records follow"
            " there. Brokers lost its end (an unclean leader election), or the start"
            " offset is set too high, or the topic was deleted and created again. Or"
            " the job has read a transaction that is open, and its isolation level is"
            " read_committed now: start it once the transaction has ended. If"
            f" losses are allowed, reading goes on at {goes_on}, and nothing that was"
            " read is read again."
        )
    else:
        happened = (
            f"Partition {partition} offset was changed from {wanted} to {check.end}:"
            " the topic was deleted and created again, or this is another cluster, and"
            " some data may have been missed. If losses are allowed, the new topic is"
            " read from its beginning: what it has from the former one comes twice."
        )
    holds = f" The log holds [{log.log_start}, {log.end})." if log else ""
    return DataLossError(
        name,
        f"{happened}{holds}",
        advice,
        topic=partition.topic,
        partition=partition.partition,
        wanted=wanted,
        log_start=log and log.log_start,
        log_end=log and log.end,
    )


class Losses:
    """Judges the partitions of a batch, and counts skipped offsets until ``take``.

    All methods raise DataLossError for a loss if the policy is to fail.
    """

    def __init__(self, policy: OutOfRange, advice: str = "") -> None:
        self.policy = policy
        self.advice = advice
        self._skipped: Counter[Skip] = Counter()

    def take(self) -> dict[Skip, int]:
        """Offsets skipped since the last call, by partition and reason."""
        taken = dict(self._skipped)
        self._skipped.clear()
        return taken

    def judge(self, partition: TopicPartition, check: PositionCheck) -> int:
        """Count what ``judge`` skips; return the offset to go on at."""
        verdict = judge(partition, check, self.policy, self.advice)
        if verdict.reason is not None:
            logger.warning("%s", _lost(partition, check, self._advice))
        if verdict.reason is not None and verdict.lost:
            self._skipped[partition, verdict.reason] += verdict.lost
        return verdict.next_offset

    def skipped(
        self, partition: TopicPartition, first: int, end: int, reason: LossReason
    ) -> None:
        """Count ``[first, end)`` as skipped; never raises."""
        if end > first:
            self._skipped[partition, reason] += end - first
            logger.warning("%s: [%d, %d) is gone and skipped", partition, first, end)

    def deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions do not exist any more."""
        names = [str(partition) for partition in sorted(partitions)]
        if names:
            text = f"Partitions {', '.join(names)} have been deleted."
            self._report(
                DataLossError(
                    "PARTITIONS_DELETED", text, self._advice, partitions=names
                )
            )

    def added_late(self, partition: TopicPartition, log_start: int) -> None:
        """A partition that appeared during the run does not begin at 0."""
        self._report(
            DataLossError(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                f"Added partition {partition} starts from {log_start} instead of 0.",
                self._advice,
                topic=partition.topic,
                partition=partition.partition,
                wanted=0,
                log_start=log_start,
            )
        )
        self._skipped[partition, LossReason.TRIMMED] += log_start

    @property
    def _advice(self) -> str:
        return self.advice if self.policy is OutOfRange.FAIL else _ALLOWED

    def _report(self, loss: DataLossError) -> None:
        if self.policy is OutOfRange.FAIL:
            raise loss
        logger.warning("%s", loss)
