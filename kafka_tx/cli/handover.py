"""Committed offsets for other readers: ``kafka-tx offsets show --format``.

The other reader goes on behind the last committed batch, and at least once behind the
records below which all are completed. So it misses nothing; notes say what it repeats.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_tx.cli.kafka_logs import Logs
from kafka_tx.cli.lag import row_of
from kafka_tx.cli.positions import (
    KnownId,
    at_least_once_id,
    doors_of,
    only_one,
    refuse_copied,
)
from kafka_tx.cli.stores import opened, url_or_file
from kafka_tx.errors import ConfigError, KafkaError, StateError, UnknownTopicError
from kafka_tx.model import (
    CommittedOffset,
    LogBounds,
    LogPosition,
    QueryShape,
    TopicPartition,
    Unavailable,
    few,
)
from kafka_tx.offsets.position_checks import Finding, check_position
from kafka_tx.planning.log_bounds import Bounds
from kafka_tx.planning.new_checkpoints import REMEMBERED, lost_with_checkpoint
from kafka_tx.planning.offset_json import EARLIEST, nested
from kafka_tx.store_place import StoreKind, kind_of
from kafka_tx.transactions.layout.txid_layout import Door
from kafka_tx.transactions.ledger.ledger_reading import LedgerState


class OffsetFormat(StrEnum):
    """The reader that takes the offsets."""

    SPARK = "spark"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Handover:
    """The next offset of each partition, and notes for the person who moves the job.

    A partition that was never read has the offset ``EARLIEST``, and its start of the
    log is in ``log_starts``.
    """

    offsets: Mapping[TopicPartition, int]
    notes: Sequence[str] = ()
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)

    def text(self, format_: OffsetFormat) -> str:
        """``startingOffsets`` of Spark's source, or a file for Kafka's group tool."""
        if format_ is OffsetFormat.SPARK:
            return json.dumps(nested(self.offsets))
        numbers = {**self.offsets, **self.log_starts}
        return "\n".join(
            f"{p.topic},{p.partition},{numbers[p]}" for p in sorted(numbers)
        )


def handover_of(
    url: str, id_: str, topics: Sequence[str], logs: Logs | None
) -> Handover:
    """The position of an id, compared with the logs; without ``logs``, as stored.

    Args:
        url: The store; ``kafka:`` if the id is a consumer group.
        id_: The job.
        topics: Those that the other reader reads; empty: all that the id has read.
        logs: The brokers; None: nobody is asked.

    Raises:
        ConfigError: A topic is not of the id, or brokers would have to be asked.
        StateError: The id has no position, was copied to another store, or reads
            something else than Kafka.
        KafkaError: Brokers do not answer, do not know a topic, or do not confirm a
            position.
    """
    known = _known(url, id_, logs)
    position = known.state.known_position
    assert position is not None, "_known refuses an id without a position"
    positions = position.positions()
    if logs is None:
        found = _as_stored(positions, topics)
    else:
        found = _compared(positions, topics, logs)
    kept = {p.topic for p in found.offsets}
    notes = [*_notes_on(known, kept)]
    if known.door is Door.SOURCE:
        notes += _notes_on_query(id_, known.state.query)
    return Handover(found.offsets, [*notes, *found.notes], found.log_starts)


def _known(url: str, id_: str, logs: Logs | None) -> KnownId:
    if kind_of(url_or_file(url)) is StoreKind.GROUP:
        return _of_group(id_, logs)
    with opened(url, id_) as store:
        found = doors_of(url, store)
        for one in found:
            refuse_copied(id_, one.state, "offsets show")
        known = [one for one in found if one.state.known_position is not None]
        one = only_one(known, store)
        position = one.state.known_position
        if position is None or not position.offsets:
            raise StateError(
                f"id '{id_}' in {store.url} reads something else than Kafka: it has"
                " no offsets to hand over",
                store=store.url,
                id=id_,
            )
        return one


def _of_group(group: str, logs: Logs | None) -> KnownId:
    if logs is None:
        raise ConfigError(
            "the offsets of --store kafka: are in a consumer group: add"
            " --bootstrap-servers",
            option="--bootstrap-servers",
        )
    found = logs.group(group)
    if not found:
        raise StateError(
            f"the consumer group '{group}' has no committed offsets. The id of a"
            " topology with store='kafka:' is the name of its group",
            store="kafka:",
            id=group,
        )
    return at_least_once_id(0, found)


def _as_stored(
    positions: Mapping[TopicPartition, LogPosition], topics: Sequence[str]
) -> Handover:
    stored = {p.topic for p in positions}
    for topic in topics:
        if topic not in stored:
            names = ", ".join(sorted(stored))
            raise ConfigError.illegal("--topic", topic, f"a topic of the id: {names}")
    offsets = {
        p: at.offset for p, at in positions.items() if not topics or p.topic in topics
    }
    note = (
        "no broker was asked. Partitions that were never read are missing: give Spark's"
        " source -2 for each of them, and a consumer auto.offset.reset=earliest"
    )
    return Handover(offsets, [note])


def _compared(
    positions: Mapping[TopicPartition, LogPosition], topics: Sequence[str], logs: Logs
) -> Handover:
    wanted = topics or sorted({p.topic for p in positions})
    existing = logs.partitions(wanted)
    if missing := [topic for topic in wanted if topic not in existing]:
        raise UnknownTopicError(
            f"the brokers do not know the topics {', '.join(missing)}: they were"
            " deleted, the user has no right to describe them, or these are the brokers"
            " of another cluster. If they were deleted, name the other topics with"
            " --topic"
        )
    partitions = [p for of_topic in existing.values() for p in of_topic]
    unread = LogPosition(0, None)
    bounds = logs.poll({"": {p: positions.get(p, unread) for p in partitions}})[""]
    found = _Comparison(positions, bounds)
    for partition in partitions:
        found.add(partition)
    for partition in sorted(positions.keys() - partitions):
        if partition.topic in existing:
            found.notes.append(f"{partition}: left out, because it does not exist")
    return found.result()


class _Comparison:
    """Positions and logs, partition by partition."""

    def __init__(
        self, positions: Mapping[TopicPartition, LogPosition], bounds: Bounds
    ) -> None:
        self._positions, self._bounds = positions, bounds
        self._offsets: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._wrong: list[str] = []
        self.notes: list[str] = []

    def add(self, partition: TopicPartition) -> None:
        """Compare one partition."""
        at = self._positions.get(partition)
        log = self._bounds.get(partition, Unavailable("the brokers do not know it"))
        if isinstance(log, Unavailable):
            self._wrong.append(f"{partition}: {log.reason}")
        elif at is None:
            why = "it was never read, so it is read from the start of its log"
            self._from_start(partition, log, why)
        else:
            self._compare(partition, at, log)

    def _compare(
        self, partition: TopicPartition, at: LogPosition, log: LogBounds
    ) -> None:
        check = check_position(at, log)
        row = row_of(partition, at, log)
        note = str(row.get("error") or row.get("note") or "")
        is_beyond = check.finding is Finding.CUT and not check.is_certain
        if is_beyond or check.finding is Finding.UNANSWERED:
            self._wrong.append(f"{partition}: {note}")
        elif check.finding is Finding.ANEW:
            self._from_start(partition, log, note)
        else:
            is_cut = check.finding is Finding.CUT
            self._offsets[partition] = check.next_offset if is_cut else at.offset
            self.notes += [f"{partition}: {note}"] if note else []

    def _from_start(self, partition: TopicPartition, log: LogBounds, why: str) -> None:
        self._offsets[partition] = EARLIEST
        self._log_starts[partition] = log.log_start
        self.notes.append(f"{partition}: {why}: {log.log_start}")

    def result(self) -> Handover:
        """All of it; raises KafkaError if a position is not that of its log."""
        if self._wrong:
            raise KafkaError(
                f"these offsets cannot be handed over. {'; '.join(self._wrong)}."
                " If brokers are away, run the command again later"
            )
        return Handover(self._offsets, self.notes, self._log_starts)


def _notes_on(known: KnownId, topics: set[str]) -> Iterator[str]:
    """Which position it is, and which records are read again."""
    if known.door is Door.AT_LEAST_ONCE:
        yield (
            "each offset is the lowest one of its partition that is not completed: all"
            " records from there on are read, also those that are completed already"
        )
        yield from _completed_above(known.offsets, topics)
        return
    txid = known.state.txid
    if known.state.committed is None:
        yield "no txid is committed: the offsets are those where txid 1 starts"
    elif not txid:
        yield "no txid is committed: the offsets are those where the job started"
    else:
        yield f"the offsets are those after txid {txid}, the last committed one"
    yield from _unfinished(known.state, topics)


def _completed_above(
    offsets: Mapping[TopicPartition, CommittedOffset], topics: Iterable[str]
) -> Iterator[str]:
    for partition, at in sorted(offsets.items()):
        if at.completed and partition.topic in topics:
            runs = few(f"[{start}, {end})" for start, end in at.completed)
            yield (
                f"{partition}: offset {at.offset} is not completed; of those above it,"
                f" the store knows as completed: {runs}"
            )


def _unfinished(state: LedgerState, topics: set[str]) -> Iterator[str]:
    found = {
        txid: [r for r in batch.ranges if len(r) and r.topic_partition.topic in topics]
        for txid, batch in state.unfinished.items()
    }
    for txid, ranges in found.items():
        if ranges:
            yield (
                f"txid {txid} is not committed, so its records are read again, also if"
                f" a sink holds them already: {few(ranges)}"
            )
    if any(found.values()):
        yield (
            "to repeat nothing, let the job commit these txids first: start it once"
            " more, stop it, and run this command again"
        )


def _notes_on_query(id_: str, query: QueryShape | None) -> Iterator[str]:
    """What else the query reads, and what it loses with its checkpoint."""
    if query is not None and query.has_several_sources:
        names = ", ".join(repr(name) for name in query.numbered if name != id_)
        if names:
            yield f"the query has other sources: hand over the offsets of {names}, too"
    lost = lost_with_checkpoint(query)
    if query is not None:
        lost += REMEMBERED  # the other reader's sinks may go by Spark's batch ids
    yield lost.strip()
