"""Kafka as transactional and as opaque spout, over the protocols of the brokers' room.

The metadata of a batch is a ``BatchMetadata``, as in the source.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.config import Mode
from kafka_tx.model import (
    BatchMetadata,
    Earliest,
    LogBounds,
    LogPosition,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.offsets.loss import OF_SPOUTS, Losses, OutOfRange
from kafka_tx.planning.batch_starts import Answers, Lasts, choose_starts
from kafka_tx.planning.cached_cluster import CachedCluster
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.planning.split import RecordSize, limited_ends
from kafka_tx.protocols import Clock, ClusterView, RangeReader
from kafka_tx.topology.declare.spouts import Json, Spout
from kafka_tx.topology.kafka.kafka_progress import KafkaBatches, PlanProgress
from kafka_tx.topology.kafka.kafka_reading import KafkaBatch, check_topics


class KafkaBatchSpout(Spout):
    """Numbered batches of Kafka records; a replay holds exactly the same ones.

    Planning costs a few requests however many partitions there are. A replay that
    cannot read its records any more, or finds a re-created topic, stops with
    ``ReplayImpossibleError``, also after a restart. So does a replay that reads other
    records than the attempt before: this process holds the count and checksum of a
    batch until the batch is committed. They are not stored, because they are known only
    after the read, and storing them would be one more write for each batch before its
    commit.

    Args:
        batches: The records to read, and the limits of a batch.
        cluster: Used on the driver only.
        reader: Pickled and sent to the tasks.
        clock: Used on the driver only.

    Source: storm-contrib, TransactionalKafkaSpout (deviates: reads until the end of the
    range, with as many fetches as that takes; holes are no error).
    """

    mode: Mode = "transactional"

    def __init__(
        self,
        batches: KafkaBatches,
        cluster: ClusterView,
        reader: RangeReader,
        clock: Clock,
    ) -> None:
        self.fields = batches.scheme.fields
        self._batches = batches
        self._cluster = cluster
        self._looks = CachedCluster(cluster, batches.subscription, clock)
        self._reader = reader
        self._clock = clock
        policy = batches.out_of_range or self._usual_policy()
        self._losses = Losses(policy, OF_SPOUTS)
        self._size = RecordSize()
        self.open()

    def _usual_policy(self) -> OutOfRange:
        return OutOfRange.FAIL

    def open(self) -> None:
        """Drop plans and results of reads; keep learned sizes and counts."""
        self._seen: dict[int, Mapping[str, Json]] = {}
        self._looks.forget()
        self._planned_txid = self._handed_out_txid = 0
        deleted = DeletedTopics(self._cluster, self._clock)
        self._progress = PlanProgress(self._batches, self._looks, deleted, self._clock)

    # --- planning (driver) ---

    def is_ready(self) -> bool:
        """Whether partitions have enough records for a batch, or are new.

        May take as long as a request to the brokers. Polls again after 5 ms, and less
        often the longer there is nothing: every ``poll_ms``, or with many partitions
        every 4 ms for each of them (100: every 400 ms; 5,000: every 20 s). False while
        brokers do not answer or there is no partition yet. Also false for a small batch
        while another batch is read.
        """
        return self._progress.is_ready()

    def is_drained(self) -> bool:
        """Whether all present records are planned, by a poll of all topics and logs.

        False while a broker does not answer or a partition has no leader, because the
        records are unknown then. A deleted topic has no records. Records that
        ``min_records`` holds back do not count.
        """
        return self._progress.is_drained()

    def initialize_transaction(
        self, txid: int, previous: BatchMetadata | None
    ) -> BatchMetadata:
        """The ranges of all partitions, within the limits of the batch.

        A repeated plan polls anew. A partition that cannot be reached has an empty
        range, or none while it has no position. Partitions of deleted topics are left
        out from now on; with the policy to fail, only those that a poll has shown to be
        read to their ends.

        Raises:
            FetchError: A partition of the very first batch has no start position yet;
                the same call may succeed later.
            DataLossError: The next offset of a partition is not in the log, and the
                policy is to fail; or its topic was re-created.
            BrokerUnavailableError: No broker answers.
            AuthenticationError: Credentials, permission or TLS.
        """
        if txid <= self._planned_txid:
            self._looks.forget()
        self._planned_txid = txid
        found = self._looks.found()  # before anything else is asked
        lasts: dict[TopicPartition, LogPosition | None] = {}
        lasts |= previous.positions() if previous else {}
        lasts |= {p: None for p in found.partitions if p not in lasts}
        is_any = self._losses.policy is not OutOfRange.FAIL
        for partition in self._progress.gone(lasts, and_unread=is_any):
            del lasts[partition]
        return self._plan(txid, lasts, found.topic_ids())

    def _plan(
        self, txid: int, lasts: Lasts, former_ids: Mapping[str, str]
    ) -> BatchMetadata:
        first = self._first_offsets(lasts)
        bounds = self._looks.completed(
            self._looks.bounds(lasts), {p: at for p, at in lasts.items() if at}
        )
        known = {
            p: found
            for p in lasts
            if isinstance(found := bounds.get(p), LogBounds)
            and (first is None or found.topic_id == former_ids.get(p.topic))
        }
        self._losses.take()
        starts = choose_starts(
            lasts, known, self._losses, first, self._progress.believes
        )
        limits, size = self._batches.limits, self._size.average_bytes
        ends = limited_ends(starts, {p: known[p].end for p in starts}, limits, size)
        planned = {
            p: LogPosition(end, known[p].topic_id, known[p].leader_epoch)
            for p, end in ends.items()
        }
        self._progress.planned(lasts, planned, known)
        after = {p: at for p, at in {**lasts, **planned}.items() if at is not None}
        ranges = tuple(
            OffsetRange(p, starts.get(p, end), end, to.topic_id, to.leader_epoch)
            for p, to in sorted(after.items())
            for end in (to.offset,)
        )
        ids = {p.topic: to.topic_id for p, to in after.items() if to.topic_id}
        return BatchMetadata(
            txid, ranges, ids, mode=self.mode, skipped=self._losses.take()
        )

    def _first_offsets(self, lasts: Lasts) -> Answers | None:
        is_first = bool(lasts) and not any(lasts.values())
        if not is_first or isinstance(self._batches.start, Earliest):
            return None
        return self.first_offsets(list(lasts))

    def first_offsets(self, partitions: list[TopicPartition]) -> Answers:
        """Where the partitions of the very first batch start; None: at the end.

        Not called for the start ``Earliest``. Raises: as ``initialize_transaction``.
        """
        start = self._batches.start
        assert start is not None, "a spout without a start looks them up itself"
        return self._cluster.offsets(dict.fromkeys(partitions, start))

    def is_empty(self, metadata: BatchMetadata) -> bool:
        """Whether all ranges are empty."""
        return not any(map(len, metadata.ranges))

    # --- the life of a batch (driver) ---

    def batch(self, attempt: TransactionAttempt, metadata: BatchMetadata) -> KafkaBatch:
        """The batch for tasks: the reader, the scheme, facts of the last read.

        Raises:
            ReplayImpossibleError: A topic was re-created since the batch was planned.
            BrokerUnavailableError: The topics' ids cannot be fetched now.
        """
        txid, ranges = attempt.txid, metadata.ranges
        if txid != self._planned_txid or txid <= self._handed_out_txid:
            ids = self._looks.found().topic_ids() if ranges else {}
            check_topics(txid, ranges, ids)
        self._handed_out_txid = max(self._handed_out_txid, txid)
        self._progress.reads(txid, ranges)
        scheme, seen = self._batches.scheme, self._seen.get(txid, {})
        return KafkaBatch(self._reader, scheme, txid, ranges, seen=seen)

    def empty_batch(self) -> KafkaBatch:
        """A batch without partitions."""
        return KafkaBatch(self._reader, self._batches.scheme, 0)

    def observed(
        self,
        attempt: TransactionAttempt,
        metadata: BatchMetadata,  # noqa: ARG002 - the facts say it all
        facts: Mapping[str, Json],
    ) -> None:
        """Hold the facts of the batch's records, and learn their size."""
        self._seen.setdefault(attempt.txid, facts)
        records = sum(reported["records"] for reported in facts.values())
        self._size.observe(
            records, sum(reported["bytes"] for reported in facts.values())
        )

    def committed(
        self,
        txid: int,
        metadata: BatchMetadata,  # noqa: ARG002 - nothing of it is kept
    ) -> None:
        """Drop the facts of the batch; the next one may begin."""
        self._progress.committed(txid)
        self._seen = {t: facts for t, facts in self._seen.items() if t > txid}

    def close(self) -> None:
        """Release connections."""
        self._cluster.close()


class OpaqueKafkaBatchSpout(KafkaBatchSpout):
    """The opaque twin: goes on when a broker is lost.

    A partition that cannot be reached contributes an empty range, and catches up later.
    If a read finds records gone, its attempt fails and the batch is planned anew.
    """

    mode: Mode = "opaque"

    def _usual_policy(self) -> OutOfRange:
        return OutOfRange.EARLIEST

    def batch(self, attempt: TransactionAttempt, metadata: BatchMetadata) -> KafkaBatch:
        """The batch for tasks: the reader and the scheme."""
        txid, ranges = attempt.txid, metadata.ranges
        self._progress.reads(txid, ranges)
        scheme = self._batches.scheme
        return KafkaBatch(self._reader, scheme, txid, ranges, is_exact=False)
