"""Kafka as transactional and as opaque spout, over the seams of the brokers' room.

Metadata of a partition: ``{"start": 5, "end": 9}``, the offsets [5, 9); also ``"id"``,
the topic's id, where brokers tell it, and ``"lost"``, the offsets given up by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kafka_tx.config import Mode
from kafka_tx.model import (
    Earliest,
    LogBounds,
    LogPosition,
    TopicPartition,
    TransactionAttempt,
    Unavailable,
)
from kafka_tx.offsets.loss import LossReason, OutOfRange
from kafka_tx.planning.batch_starts import Answers, choose_starts, position_after
from kafka_tx.planning.cached_cluster import CachedCluster
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.planning.split import RecordSize, limited_ends
from kafka_tx.protocols import Clock, ClusterView, RangeReader
from kafka_tx.topology.declare.spouts import (
    Json,
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    PartitionEmitter,
)
from kafka_tx.topology.kafka.kafka_progress import KafkaBatches, PlanProgress
from kafka_tx.topology.kafka.kafka_reading import (
    KafkaEmitter,
    check_topics,
    partition_of,
)


class KafkaBatchSpout(PartitionedTransactionalSpout):
    """Numbered batches of Kafka records; a replay holds exactly the same ones.

    Planning costs a few requests however many partitions there are. A replay that
    cannot read its records any more, or finds a re-created topic, stops with
    ``ReplayImpossibleError``, also after a restart. So does one that reads other
    records than the attempt before it: count and checksum of what a batch held are
    remembered until it is committed, but by this process only. They are known once the
    batch was read; to store them would be one more write for each batch, in the way of
    the commits.

    Args:
        batches: What and how much.
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
        self.lost: Counter[tuple[TopicPartition, LossReason]] = Counter()
        """Offsets that committed batches gave up, by partition and reason."""
        self._batches = batches
        self._cluster = cluster
        self._looks = CachedCluster(cluster, batches.subscription, clock)
        self._reader = reader
        self._clock = clock
        self._policy = batches.out_of_range or self._usual_policy()
        self._former_ids: dict[str, str] = {}
        """Of topics, told before anything else was asked for the plan."""
        self._size = RecordSize()
        self.open()

    def _usual_policy(self) -> OutOfRange:
        return OutOfRange.FAIL

    def open(self) -> None:
        """Forget what was planned and read; keep what was learned and counted."""
        self._seen: dict[int, Mapping[str, Json]] = {}
        self._looks.forget()
        self._planned_txid = self._handed_out_txid = 0
        deleted = DeletedTopics(self._cluster, self._clock)
        self._progress = PlanProgress(self._batches, self._looks, deleted, self._clock)

    # --- planning (driver) ---

    def is_ready(self) -> bool:
        """While partitions hold enough that no batch holds yet, or new ones appeared.

        May take as long as a request to the brokers; asks them again after 5 ms, and
        less and less often the longer there is nothing: every ``poll_ms``, and with
        many partitions down to once in 4 ms for each (100: every 400 ms; 5,000: every
        20 s). While they do not answer, or there is no partition yet, the spout is not
        ready; nor for a small batch while another one is being read.
        """
        return self._progress.is_ready()

    def is_drained(self) -> bool:
        """Whether all there is now is planned, by a look at all topics and logs.

        Not while a broker does not answer or a partition has no leader: nobody knows
        what is there. Of a deleted topic nothing is. Records that ``min_records`` holds
        back do not count.
        """
        return self._progress.is_drained()

    def partitions(self) -> Sequence[str]:
        """By topic name, then number.

        Raises:
            BrokerUnavailableError: No broker answers.
            AuthenticationError: Credentials, permission or TLS.
        """
        found = self._looks.found()
        self._former_ids = found.topic_ids()
        return [str(partition) for partition in found.partitions]

    def initialize_transaction(
        self, txid: int, previous: Mapping[str, Json] | None
    ) -> Mapping[str, Json]:
        """See ``PartitionedTransactionalSpout``; a plan that is made again looks anew.

        Raises: as ``partitions`` and ``offers``.
        """
        if txid <= self._planned_txid:
            self._looks.forget()
        self._planned_txid = txid
        return super().initialize_transaction(txid, previous)

    def offers(
        self, lasts: Mapping[str, Json | None]
    ) -> Mapping[str, Json | Unavailable | None]:
        """Ranges of all partitions, within the limits of the batch.

        Partitions of deleted topics are left out from now on: with the policy to fail
        those only that were seen to be read to their ends.

        Raises:
            FetchError: A partition of the very first batch has no start position yet;
                the same call may succeed later.
            OffsetOutOfRangeError: The next offset of a partition is not in the log, and
                the policy is to fail; or its topic was re-created.
            BrokerUnavailableError: No broker answers.
            AuthenticationError: Credentials, permission or TLS.
        """
        by_partition = {partition_of(name): last for name, last in lasts.items()}
        gone = self._progress.gone(
            by_partition, and_unread=self._policy is not OutOfRange.FAIL
        )
        for partition in gone:
            del by_partition[partition]
        first = self._first_offsets(by_partition)
        bounds = self._looks.completed(
            self._looks.bounds(by_partition),
            {p: position_after(last) for p, last in by_partition.items() if last},
        )
        known = {
            p: found
            for p in by_partition
            if isinstance(found := bounds.get(p), LogBounds)
            and (first is None or found.topic_id == self._former_ids.get(p.topic))
        }
        starts, lost = choose_starts(
            by_partition,
            known,
            self._policy,
            first,
            self._progress.believes,
        )
        limits, size = self._batches.limits, self._size.average_bytes
        ends = limited_ends(starts, {p: known[p].end for p in starts}, limits, size)
        planned = {
            p: LogPosition(end, known[p].topic_id, known[p].leader_epoch)
            for p, end in ends.items()
        }
        self._progress.planned(by_partition, planned, known)
        return dict.fromkeys(map(str, gone)) | {
            str(p): _metadata(starts[p], planned[p], lost.get(p))
            if p in starts
            else Unavailable(getattr(bounds.get(p), "reason", "no answer"))
            for p in by_partition
        }

    def _first_offsets(
        self, lasts: Mapping[TopicPartition, Json | None]
    ) -> Answers | None:
        is_first = bool(lasts) and not any(lasts.values())
        if not is_first or isinstance(self._batches.start, Earliest):
            return None
        return self.first_offsets(list(lasts))

    def first_offsets(self, partitions: list[TopicPartition]) -> Answers:
        """Where the partitions of the very first batch start; None: at the end.

        Not asked where that is the earliest. Raises: as ``offers``.
        """
        start = self._batches.start
        assert start is not None, "a spout without a start looks them up itself"
        return self._cluster.offsets(dict.fromkeys(partitions, start))

    def empty_after(self, metadata: Json) -> Json:
        """The empty range at the end of this one."""
        kept = {name: metadata[name] for name in ("id", "epoch") if name in metadata}
        return {"start": metadata["end"], "end": metadata["end"], **kept}

    def is_empty(self, metadata: Mapping[str, Json]) -> bool:
        """All ranges are empty."""
        return all(part["start"] == part["end"] for part in metadata.values())

    # --- the life of a batch (driver) ---

    def emitter(
        self, attempt: TransactionAttempt, metadata: Mapping[str, Json]
    ) -> PartitionEmitter:
        """What tasks need: the reader, the scheme, what was read the last time.

        Raises:
            ReplayImpossibleError: A topic was re-created since the batch was planned.
            BrokerUnavailableError: That cannot be known now.
        """
        txid = attempt.txid
        if txid != self._planned_txid or txid <= self._handed_out_txid:
            ids = self._looks.found().topic_ids() if metadata else {}
            check_topics(txid, metadata, ids)
        self._handed_out_txid = max(self._handed_out_txid, txid)
        self._progress.reads(txid, metadata)
        return KafkaEmitter(
            self._reader, self._batches.scheme, txid, True, self._seen.get(txid, {})
        )

    def observed(
        self,
        attempt: TransactionAttempt,
        metadata: Mapping[str, Json],  # noqa: ARG002 - the facts say it all
        facts: Mapping[str, Json],
    ) -> None:
        """Remember what the batch held, and how large its records were."""
        self._progress.has_read(attempt.txid)
        self._seen.setdefault(attempt.txid, facts)
        records = sum(reported["records"] for reported in facts.values())
        self._size.observe(
            records, sum(reported["bytes"] for reported in facts.values())
        )

    def committed(self, txid: int, metadata: Mapping[str, Json]) -> None:
        """Count what was given up; forget what the batch held."""
        self._seen = {t: facts for t, facts in self._seen.items() if t > txid}
        for name, part in metadata.items():
            for reason, offsets in part.get("lost", {}).items():
                self.lost[partition_of(name), LossReason(reason)] += offsets

    def close(self) -> None:
        """Release connections."""
        self._cluster.close()


class OpaqueKafkaBatchSpout(KafkaBatchSpout, OpaquePartitionedTransactionalSpout):
    """The opaque twin: goes on when a broker is lost.

    A partition that cannot be reached contributes an empty range, and catches up later.
    What is gone when a batch is read fails that attempt; it is then planned anew.
    """

    mode: Mode = "opaque"

    def _usual_policy(self) -> OutOfRange:
        return OutOfRange.EARLIEST

    def emitter(
        self,
        attempt: TransactionAttempt,
        metadata: Mapping[str, Json],
    ) -> PartitionEmitter:
        """What tasks need: the reader and the scheme."""
        self._progress.reads(attempt.txid, metadata)
        return KafkaEmitter(self._reader, self._batches.scheme, attempt.txid, False, {})


def _metadata(start: int, end: LogPosition, lost: Mapping[str, int] | None) -> Json:
    metadata: dict[str, Json] = {"start": start, "end": end.offset}
    if end.topic_id is not None:
        metadata["id"] = end.topic_id
    if end.leader_epoch is not None:
        metadata["epoch"] = end.leader_epoch
    if lost:
        metadata["lost"] = dict(lost)
    return metadata
