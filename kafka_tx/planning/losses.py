"""Handles records that are gone before they were read: stop, or skip and count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kafka_tx.errors import DataLossError
from kafka_tx.logs import event_log
from kafka_tx.model import Skip, TopicPartition
from kafka_tx.offsets.loss import LossReason
from kafka_tx.planning.standing import Finding, Standing

logger = event_log(__name__)


class Losses:
    """Fails on lost records, or logs and counts them, as ``failOnDataLoss`` says.

    Data is lost if the log starts above a wanted offset, or if a topic was deleted or
    created anew. A gap inside the log is no loss: compaction and transaction markers
    leave gaps. Skipped offsets are counted by reason until ``take`` returns them.
    Source: Spark, KafkaMicroBatchStream.reportDataLoss (deviates: counts).
    """

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._skipped: Counter[Skip] = Counter()

    def take(self) -> dict[Skip, int]:
        """Offsets skipped since the last call, by partition and reason."""
        taken = dict(self._skipped)
        self._skipped.clear()
        return taken

    def judge(self, partition: TopicPartition, standing: Standing) -> None:
        """Report the loss that a standing means, if any."""
        end = standing.end
        if standing.finding is Finding.TRIMMED:
            self.trimmed(partition, standing.position, standing.next_offset)
        elif standing.finding is Finding.CUT:
            self.cut(partition, standing.position, end)
        elif standing.finding is Finding.ANEW:
            self.recreated(partition, standing.position, end)

    def cut(self, partition: TopicPartition, wanted: int, end: int) -> None:
        """The log lost its end: ``[end, wanted)`` was read, or was to be read."""
        self._report(
            DataLossError(
                "PARTITION_OFFSET_CHANGED",
                f"Partition {partition} offset was changed from {wanted} to {end}: its"
                " log ends below what was read or planned already, or other records"
                " follow there. Brokers lost its end (an unclean leader election), or"
                " the start offset is set too high, or the topic was deleted and"
                f" created again. With failOnDataLoss=false reading goes on at {end}.",
                topic=partition.topic,
                partition=partition.partition,
                wanted=wanted,
                available=end,
            ),
            {(partition, LossReason.CUT): wanted - end},
        )

    def trimmed(self, partition: TopicPartition, wanted: int, log_start: int) -> None:
        """Report ``[wanted, log_start)``, which retention removed."""
        self._report(
            DataLossError(
                "START_OFFSET_RESET",
                f"Starting offset for {partition} was {wanted} but consumer reset to"
                f" {log_start}.",
                topic=partition.topic,
                partition=partition.partition,
                wanted=wanted,
                available=log_start,
            ),
            {(partition, LossReason.TRIMMED): log_start - wanted},
        )

    def skipped(
        self, partition: TopicPartition, first: int, end: int, reason: LossReason
    ) -> None:
        """Count ``[first, end)`` if ``failOnDataLoss`` is false."""
        if end > first:
            self._skipped[partition, reason] += end - first
            logger.warning("%s: [%d, %d) is gone and skipped", partition, first, end)

    def recreated(self, partition: TopicPartition, wanted: int, end: int) -> None:
        """The topic has another id: it was created again, or is in another cluster."""
        self._report(
            DataLossError(
                "PARTITION_OFFSET_CHANGED",
                f"Partition {partition} offset was changed from {wanted} to {end}: the"
                " topic was deleted and created again, or this is another cluster, and"
                " some data may have been missed. With failOnDataLoss=false the new"
                " topic is read from its beginning: what it has from the former one"
                " comes twice.",
                topic=partition.topic,
                partition=partition.partition,
                wanted=wanted,
                available=end,
            ),
            {},
        )

    def deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions do not exist any more."""
        gone = sorted(partitions)
        if gone:
            names = ", ".join(map(str, gone))
            self._report(
                DataLossError(
                    "PARTITIONS_DELETED",
                    f"Partitions {names} have been deleted.",
                    partitions=[str(partition) for partition in gone],
                ),
                {},
            )

    def added_late(self, partition: TopicPartition, log_start: int) -> None:
        """A partition that appeared during the run does not begin at 0."""
        self._report(
            DataLossError(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                f"Added partition {partition} starts from {log_start} instead of 0.",
                topic=partition.topic,
                partition=partition.partition,
                available=log_start,
            ),
            {(partition, LossReason.TRIMMED): log_start},
        )

    def _report(self, loss: DataLossError, skipped: dict[Skip, int]) -> None:
        if self._fails:
            raise loss
        self._skipped.update(skipped)
        logger.warning("%s", loss)
