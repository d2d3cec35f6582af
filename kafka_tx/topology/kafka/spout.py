"""Kafka as transactional and as opaque spout, over the protocols of the brokers' room.

The driver plans a batch, whose metadata is a ``BatchMetadata`` as in the source; tasks
read its ranges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from kafka_tx.config import Mode, SourceConfig
from kafka_tx.errors import (
    FailedException,
    KafkaTxError,
    OffsetOutOfRangeError,
    OtherTopicError,
    ReplayImpossibleError,
)
from kafka_tx.model import (
    BatchMetadata,
    Earliest,
    Latest,
    LogBounds,
    LogPosition,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
    Unavailable,
)
from kafka_tx.offsets.discovery import is_another, subscribed
from kafka_tx.offsets.loss import OF_SPOUTS, Losses, OutOfRange
from kafka_tx.planning.batch_starts import Lasts, choose_starts
from kafka_tx.planning.cached_cluster import CachedCluster
from kafka_tx.planning.deleted_topics import DeletedTopics
from kafka_tx.planning.log_bounds import Bounds
from kafka_tx.planning.replays import replay_impossible
from kafka_tx.planning.retention import RetentionEdges
from kafka_tx.planning.split import RecordSize, limited_ends
from kafka_tx.planning.start_positions import StartAnswers, first_offsets
from kafka_tx.protocols import Clock, ClusterView, RangeReader
from kafka_tx.topology.declare.spouts import Json, Spout
from kafka_tx.topology.kafka.progress import PlanProgress
from kafka_tx.topology.rows.blocks import Block
from kafka_tx.topology.rows.schemes import Scheme, StringScheme

_UNPLANNED = Unavailable("no batch has read it yet")


class Fingerprint:
    """Count, size and checksum of Kafka records.

    The same records give the same fingerprint however they are cut into batches. It
    covers offsets, keys and values; a null differs from empty bytes.
    """

    def __init__(self) -> None:
        self.records = 0
        """Number of records."""
        self.bytes = 0
        """Bytes of keys and values."""
        self._offsets = 0
        self._columns = {"key": (0, 0), "value": (0, 0)}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next records, in offset order."""
        self.records += batch.num_rows
        self._offsets = crc32(
            batch.column("offset").to_numpy().tobytes(), self._offsets
        )
        for name, (lengths, data) in self._columns.items():
            sizes, content = _lengths_and_data(batch.column(name))
            self.bytes += len(content)
            self._columns[name] = crc32(sizes, lengths), crc32(content, data)

    @property
    def checksum(self) -> str:
        """Five checksums as one text."""
        parts = [self._offsets, *self._columns["key"], *self._columns["value"]]
        return "".join(f"{part:08x}" for part in parts)

    def facts(self) -> dict[str, Any]:
        """The fingerprint as JSON."""
        return {"records": self.records, "bytes": self.bytes, "checksum": self.checksum}


def _lengths_and_data(column: pa.Array) -> tuple[bytes, memoryview | bytes]:
    """The length of each value, -1 for null, and all their bytes in one piece."""
    if not len(column):
        return b"", b""
    _, offsets, data = column.cast(pa.binary()).buffers()
    ends = np.frombuffer(offsets, np.int32)
    ends = ends[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(ends)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    if data is None:
        return lengths.tobytes(), b""
    return lengths.tobytes(), memoryview(data)[ends[0] : ends[-1]]


@dataclass(frozen=True, slots=True)
class KafkaBatch:
    """A ``BatchSource`` that reads ranges of Kafka's logs.

    Attributes:
        reader: Reads one range.
        scheme: Makes rows from records.
        txid: Named in errors.
        ranges: All ranges of the batch; task ``i`` of ``n`` reads ``i, i + n, …``.
        is_exact: Whether every attempt must read the same records.
        seen: By partition, the facts of the last read, if they are known.
    """

    reader: RangeReader
    scheme: Scheme
    txid: int
    ranges: tuple[OffsetRange, ...] = ()
    is_exact: bool = True
    seen: Mapping[str, Json] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of offsets."""
        return sum(map(len, self.ranges))

    def read(self, task: int, tasks: int, facts: dict[str, Json]) -> Iterator[Block]:
        """Yield this task's rows; add the facts of each range.

        Raises:
            ReplayImpossibleError: Exact, and the records are gone or differ, or the
                topic was re-created.
            FailedException: Not exact, and the records are gone, or the topic was
                re-created.
            FetchError: No progress in time.
            AuthenticationError: Credentials, permission or TLS.
        """
        for wanted in self.ranges[task::tasks]:
            name, read = str(wanted.topic_partition), Fingerprint()
            if len(wanted):
                try:
                    for batch in self.reader.read(wanted):
                        read.add(batch)
                        yield self.scheme.decode(batch).rows
                except OffsetOutOfRangeError as error:
                    raise self._gone(wanted, error) from error
            facts[name] = read.facts()
            self._check(wanted, facts[name], self.seen.get(name))

    def _gone(self, wanted: OffsetRange, error: OffsetOutOfRangeError) -> KafkaTxError:
        if not self.is_exact:
            return FailedException(f"{wanted} cannot be read any more: {error.message}")
        available = None
        if not isinstance(error, OtherTopicError):
            available = (error.fields.get("log_start"), error.fields.get("log_end"))
        return _cannot_be_replayed(self.txid, wanted, available, f"{error.message}.")

    def _check(self, wanted: OffsetRange, read: Json, seen: Json | None) -> None:
        if seen is not None and read != seen:
            reason = f"It held {seen} the last time and holds {read} now."
            available = (wanted.start, wanted.end)
            raise _cannot_be_replayed(self.txid, wanted, available, reason)


def _cannot_be_replayed(
    txid: int,
    wanted: OffsetRange,
    available: tuple[object, object] | None,
    reason: str,
) -> ReplayImpossibleError:
    """The error for a batch whose records cannot be read again."""
    return replay_impossible(
        f"txid {txid} holds {wanted}, and these records cannot be read as they were."
        f" {reason}",
        wanted,
        txid=txid,
        available=available,
        advice="Where all sinks are opaque, an opaque spout under the same id goes on"
        " with what is left. Otherwise begin anew: a new id, the option startingOffsets"
        " of the spout where it shall begin, and empty sinks.",
    )


def check_topics(
    txid: int, ranges: Iterable[OffsetRange], ids: Mapping[str, str]
) -> None:
    """Compare the topics of a planned batch with the present topics.

    An empty range reads nothing, so its topic does not matter; the next batch decides
    where to begin.

    Raises:
        ReplayImpossibleError: A topic was re-created under its name.
    """
    for wanted in ranges:
        was, now = wanted.topic_id, ids.get(wanted.topic_partition.topic)
        if len(wanted) and is_another(was, now):
            reason = f"The topic was re-created: its id was {was}, now {now}."
            raise _cannot_be_replayed(txid, wanted, None, reason)


class KafkaBatchSpout(Spout):
    """Numbered batches of Kafka records, in either mode.

    Planning costs a few requests however many partitions there are.

    Transactional: a replay holds exactly the same records. One that cannot read its
    records any more, or finds a re-created topic, stops with ``ReplayImpossibleError``,
    also after a restart. So does a replay that reads other records than the attempt
    before: this process holds the count and checksum of a batch until the batch is
    committed. They are not stored, because they are known only after the read, and
    storing them would be one more write for each batch before its commit.

    Opaque: a partition that cannot be reached contributes an empty range, and catches
    up later. If a read finds records gone, its attempt fails and the batch is planned
    anew.

    Args:
        config: What is read, where the first batch starts, and the limits of a batch.
        cluster: Used on the driver only.
        reader: Pickled and sent to the tasks.
        clock: Used on the driver only.
        scheme: Makes rows from records.
        out_of_range: The policy at planning for a partition whose next offset is not in
            the log any more. None: a transactional spout fails, an opaque one goes on
            at the earliest offset and counts the skipped offsets.
        poll_ms: Pause between polls of the brokers while there is nothing to read;
            shorter at first.
        refresh_ms: Pause between polls for new partitions while nothing is to be read.

    Source: storm-contrib, TransactionalKafkaSpout (deviates: reads until the end of the
    range, with as many fetches as that takes; holes are no error).
    """

    mode: Mode = "transactional"

    def __init__(
        self,
        config: SourceConfig,
        cluster: ClusterView,
        reader: RangeReader,
        clock: Clock,
        *,
        scheme: Scheme | None = None,
        out_of_range: OutOfRange | None = None,
        poll_ms: int = 100,
        refresh_ms: int = 5_000,
    ) -> None:
        self.config = config
        """What is read, with the settings of Kafka clients."""
        self._scheme = scheme or StringScheme()
        self.fields = self._scheme.fields
        self._cluster = cluster
        self._cached = CachedCluster(cluster, config.subscription, clock)
        self._edges = RetentionEdges(cluster, clock)
        self._reader = reader
        self._clock = clock
        self._pauses_ms = poll_ms, refresh_ms
        usual = OutOfRange.of(self._is_exact)
        self._losses = Losses(out_of_range or usual, OF_SPOUTS)
        self._size = RecordSize()
        self.open()

    @property
    def _is_exact(self) -> bool:
        return self.mode == "transactional"

    def open(self) -> None:
        """Drop plans and results of reads; keep learned sizes and counts."""
        self._seen: dict[int, Mapping[str, Json]] = {}
        self._cached.forget()
        self._planned_txid = self._handed_out_txid = 0
        self._starts = StartAnswers(self._cluster)
        deleted = DeletedTopics(self._cluster, self._clock)
        self._progress = PlanProgress(
            *(self.config, self._cached, deleted, self._clock), *self._pauses_ms
        )

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

        ``previous`` of txid 1: None, or where the first plan of an opaque txid 1
        begins, with what that plan has skipped.

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
            self._cached.forget()
        self._planned_txid = txid
        found = self._cached.found()  # first: bounds of a later topic are recognised
        is_start = previous is not None and not previous.txid
        known = previous.positions() if previous else {}
        if is_start and not subscribed(self.config.subscription, known):
            previous, known = None, {}  # it was given other topics before any commit
        lasts: dict[TopicPartition, LogPosition | None] = {**known}
        lasts |= {p: None for p in found.partitions if p not in lasts}
        is_any = self._losses.policy is not OutOfRange.FAIL
        for partition in self._progress.gone(lasts, and_unread=is_any):
            del lasts[partition]
        goes_on = previous is not None and any(lasts.values())
        awaited = previous.awaited if previous and goes_on else tuple(lasts)
        plan = self._plan(txid, lasts, awaited, found.topic_ids())
        if previous is None or not is_start:
            return plan
        return replace(plan, skipped=Counter(previous.skipped) + Counter(plan.skipped))

    def _plan(
        self,
        txid: int,
        lasts: Lasts,
        awaited: Collection[TopicPartition],
        former_ids: Mapping[str, str],
    ) -> BatchMetadata:
        first, claimed = self._first_offsets(lasts, former_ids)
        lasts = {**lasts, **claimed}
        bounds = self._cached.logs.completed(
            self._cached.bounds(lasts), {p: at for p, at in lasts.items() if at}
        )
        known = {
            p: found
            for p in lasts
            if isinstance(found := bounds.get(p), LogBounds)
            and (first is None or found.topic_id == former_ids.get(p.topic))
        }
        self._losses.take()
        starts = choose_starts(
            *(lasts, known, self._losses, first, self._progress.believes), awaited
        )
        limits, size = self.config.limits, self._size.average_bytes
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
            *(txid, ranges, ids),
            mode=self.mode,
            skipped=self._losses.take(),
            awaited=tuple(sorted(p for p in awaited if p not in after)),
        )

    def _first_offsets(
        self, lasts: Lasts, ids: Mapping[str, str]
    ) -> tuple[Mapping[TopicPartition, int] | None, dict[TopicPartition, LogPosition]]:
        """Where the very first batch starts, if not at the earliest offsets.

        It also returns the positions of a group whose leader epochs are known: they are
        checked as if an earlier batch had ended there. Partitions that came after a
        poll without any start at the earliest offsets instead of the latest. Each
        repeated plan starts at the offsets that were first found.
        """
        is_first = bool(lasts) and not any(lasts.values())
        start = self.config.start
        begins_late = self._progress.began_without and isinstance(start, Latest)
        if not is_first or begins_late or isinstance(start, Earliest):
            return None, {}
        found: dict[TopicPartition, LogPosition] = {}

        def of_group(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            found.update(self.committed_offsets(partitions))
            return {p: at.offset for p, at in found.items()}

        self._starts.renew(ids)
        first = first_offsets(self.config, self._starts, list(lasts), of_group)
        claimed = {
            p: replace(at, topic_id=ids[p.topic])
            for p, at in found.items()
            if at.leader_epoch is not None and p.topic in ids
        }
        return first, claimed

    def committed_offsets(
        self,
        partitions: list[TopicPartition],  # noqa: ARG002 - of no group
    ) -> Mapping[TopicPartition, LogPosition]:
        """The positions of a Kafka group, for the start ``committed``."""
        return {}

    def is_empty(self, metadata: BatchMetadata) -> bool:
        """Whether all ranges are empty."""
        return not any(map(len, metadata.ranges))

    def bounds(self) -> Mapping[TopicPartition, LogBounds | Unavailable]:
        """The log bounds of the last poll, or of a new one if that is too old.

        Unavailable: a partition that no batch has read yet, or one without a leader.
        Empty while no batch was planned or read. While there is nothing to read, the
        spout polls more and more rarely. Called on the driver, by the thread that
        plans; may take as long as a request to the brokers.

        Raises:
            BrokerUnavailableError: No broker answers.
            AuthenticationError: Credentials, permission or TLS.
        """
        bounds = self._progress.bounds()
        if not bounds:
            return {}
        partitions = self._cached.last_found().partitions
        return {**dict.fromkeys(partitions, _UNPLANNED), **bounds}

    def edges(
        self,
        bounds: Bounds,
        committed: Callable[[], Mapping[TopicPartition, LogPosition]],
    ) -> Bounds:
        """As ``RetentionEdges.completed``; on the thread that plans."""
        return self._edges.completed(bounds, committed)

    # --- the life of a batch (driver) ---

    def batch(self, attempt: TransactionAttempt, metadata: BatchMetadata) -> KafkaBatch:
        """The batch for tasks: the reader, the scheme, facts of the last read.

        Raises:
            ReplayImpossibleError: Exact, and a topic was re-created since the batch was
                planned.
            BrokerUnavailableError: Exact, and the topics' ids cannot be fetched now.
        """
        txid, ranges, seen = attempt.txid, metadata.ranges, None
        if self._is_exact:
            seen = self._seen.get(txid)
            if txid != self._planned_txid or txid <= self._handed_out_txid:
                ids = self._cached.found().topic_ids() if ranges else {}
                check_topics(txid, ranges, ids)
            self._handed_out_txid = max(self._handed_out_txid, txid)
        self._progress.reads(txid, ranges)
        return KafkaBatch(
            *(self._reader, self._scheme, txid, ranges, self._is_exact), seen or {}
        )

    def empty_batch(self) -> KafkaBatch:
        """A batch without partitions."""
        return KafkaBatch(self._reader, self._scheme, 0)

    def observed(
        self,
        attempt: TransactionAttempt,
        metadata: BatchMetadata,  # noqa: ARG002 - the facts suffice
        facts: Mapping[str, Json],
    ) -> None:
        """Remember the facts of the batch's records, and learn their size."""
        self._seen.setdefault(attempt.txid, facts)
        records = sum(read["records"] for read in facts.values())
        self._size.observe(records, sum(read["bytes"] for read in facts.values()))

    def committed(
        self,
        txid: int,
        metadata: BatchMetadata,  # noqa: ARG002 - the txid suffices
    ) -> None:
        """Drop the facts of the batch; the next one may begin."""
        self._progress.committed(txid)
        self._starts = StartAnswers(self._cluster)
        self._seen = {t: facts for t, facts in self._seen.items() if t > txid}

    def close(self) -> None:
        """Release connections."""
        self._cluster.close()
