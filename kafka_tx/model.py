"""Frozen values shared by every room.

Offsets follow one rule: a range is half-open ``[start, end)`` and a position is the
*next* offset. An empty range (``start == end``) is legal and keeps the position.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from kafka_tx.errors import ConfigError, StateCorruptedError
from kafka_tx.own_topics import is_left_out
from kafka_tx.stored import ATTEMPTS

ATTEMPTS_PER_EPOCH = 10**12
"""Attempt 12 of epoch 3 is 3000000000012: readable, rising, below 2**63."""

Mode = Literal["transactional", "opaque"]
"""Whether every replay of a txid holds the same records, or may hold others."""


def short_digest(text: str) -> str:
    """16 hexadecimal digits: equal for equal texts, and for no others."""
    return sha256(text.encode()).hexdigest()[:16]


def few(things: Iterable[object]) -> str:
    """For logs: the first 20 items, and the number of others."""
    texts = [str(thing) for thing in things]
    more = f" and {len(texts) - 20:,} more" if len(texts) > 20 else ""
    return ", ".join(texts[:20]) + more or "none"


def host_port(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address that has none."""
    is_bare = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare else f"{host}:{port}"


def with_port(address: str, port: int) -> str:
    """The address; ``host_port`` if it names a host only."""
    has_port = re.fullmatch(r"(\[.*\]|[^:]*):[^:]*", address)
    return address if has_port else host_port(address, port)


class SchemaText(NamedTuple):
    """A schema, and the schemas that it refers to, each after those that it needs.

    ``id`` is that of the registry; None: it comes from no registry.
    """

    text: str
    id: int | None = None
    references: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What a plan stores: the id, otherwise a digest of the text."""
        if self.id is not None:
            return str(self.id)
        return f"text-{short_digest(repr((self.text, self.references)))}"


class TopicPartition(NamedTuple):
    """A partition of a topic. Everything is keyed by it, never by a broker.

    Sorts by topic, then partition number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``[start, end)`` of one partition.

    ``topic_id`` is the id of the planned topic: reading from a topic with another id
    fails. None if brokers report no ids, or if a person gave the offsets.
    ``leader_epoch`` is that of the leader that reported the end: a record of a
    later epoch is not the planned one.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: str | None = field(default=None, compare=False)
    leader_epoch: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ConfigError(
                f"offset range of {self.topic_partition} is [{self.start}, {self.end});"
                " legal: 0 <= start <= end",
                option="range",
                value=(self.start, self.end),
            )

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"

    def __len__(self) -> int:
        """Number of offsets; an upper bound of the records (the log may have holes)."""
        return self.end - self.start

    def between(self, start: int, end: int) -> OffsetRange:
        """Other offsets of the same partition of the same topic."""
        return replace(self, start=start, end=end)

    def of_topic(self, topic_id: str | None) -> OffsetRange:
        """The same offsets, planned of the topic with this id."""
        return replace(self, topic_id=topic_id)

    @property
    def option(self) -> str:
        """The offsets as options and commands take them; see ``of_option``."""
        id_ = f"@{self.topic_id}" if self.topic_id else ""
        return f"{self.topic_partition}:{self.start}-{self.end}{id_}"

    @classmethod
    def of_option(cls, name: str, text: str) -> OffsetRange:
        """Read ``orders-0:17-18``, which is offset 17; raises ConfigError.

        With the id of the topic behind ``@`` only the offsets of this topic are meant.
        """
        found = _RECORDS.fullmatch(text.strip())
        if found is None or int(found[3]) >= int(found[4]):
            legal = "TOPIC-PARTITION:FROM-TO, such as orders-0:17-18 for offset 17"
            raise ConfigError.illegal(name, text, legal)
        partition = TopicPartition(found[1], int(found[2]))
        return cls(partition, int(found[3]), int(found[4]), found[5])

    def without(self, others: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The parts outside of these ranges, of the same topic or one without an id."""
        left, start = [], self.start
        for other in sorted(filter(self._meets, others)):
            if other.start > start:
                left.append(self.between(start, min(other.start, self.end)))
            start = min(max(start, other.end), self.end)
        return left if start == self.end else [*left, self.between(start, self.end)]

    def _meets(self, other: OffsetRange) -> bool:
        is_same = None in (other.topic_id, self.topic_id) or (
            other.topic_id == self.topic_id
        )
        return (
            is_same
            and other.topic_partition == self.topic_partition
            and other.start < self.end
            and self.start < other.end
        )


_RECORDS = re.compile(
    r"([^:@]+)-(\d{1,9}):(\d{1,18})-(\d{1,18})(?:@([\w=+/-]+))?", re.ASCII
)


def epochs_of(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Leader epochs of ranges; unknown ones are left out."""
    return {
        r.topic_partition: r.leader_epoch for r in ranges if r.leader_epoch is not None
    }


@dataclass(frozen=True, slots=True, order=True)
class TransactionAttempt:
    """One try at processing one batch. Source: Storm, TransactionAttempt.

    ``txid`` names the batch: 1 for the first, the same on every replay. ``attempt_id``
    is new on every try; a greater one is newer, also across owners. Everything
    downstream is keyed by the pair, so that rows of an older attempt never count in a
    newer one.

    Sources and topologies fill in all that a sink must know. If you make attempts by
    hand, you number the batches: sinks then compare txid and epoch only. Set
    ``mode="opaque"`` if a replay may hold other records.
    """

    txid: int
    attempt_id: int
    source: str = field(default="", compare=False, repr=False)
    """``tx.id`` of the source, or id of the topology; empty: unknown."""
    plan: str = field(default="", compare=False, repr=False)
    """Stands for what the batch holds; the same on every replay. Empty: not known, or a
    replay may hold other records."""
    numbering: str = field(default="", compare=False, repr=False)
    """Name of the sequence of txids: a store that begins again with txid 1 has another.
    Empty: unknown."""
    mode: Mode = field(default="transactional", compare=False, repr=False)
    """``opaque`` where a replay may hold other records."""

    @classmethod
    def of(cls, txid: int, *, epoch: int, number: int) -> TransactionAttempt:
        """The attempt with this number under an owner."""
        return cls(txid, epoch * ATTEMPTS_PER_EPOCH + number)

    @property
    def epoch(self) -> int:
        """Of the owner that made the attempt; 0 for one made without an owner."""
        return self.attempt_id // ATTEMPTS_PER_EPOCH

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt_id}"

    @classmethod
    def parse(cls, text: str) -> TransactionAttempt:
        """Read the text form ``txid:attempt_id``."""
        txid, _, attempt_id = text.partition(":")
        return cls(int(txid), int(attempt_id))

    def as_json(self) -> str:
        """The text that a sink of yours stores beside the rows; one line."""
        named = {"source": self.source, "numbering": self.numbering, "plan": self.plan}
        return json.dumps(ATTEMPTS.stamped({"attempt": str(self), **named}))

    @classmethod
    def of_json(cls, text: str) -> TransactionAttempt:
        """Read the text of ``as_json``. The mode is not stored.

        Raises:
            StateCorruptedError: It is another text.
            FormatError: It has a format that this version does not read.
        """
        try:
            stored = json.loads(text)
            if "v" in stored or {"attempt", "source"} <= stored.keys():
                ATTEMPTS.check_members(stored, f"the attempt {text!r:.200} of a sink")
            return replace(
                cls.parse(stored["attempt"]),
                source=str(stored["source"]),
                numbering=str(stored["numbering"]),
                plan=str(stored["plan"]),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StateCorruptedError(
                f"an attempt is stored as {text!r:.200}; legal: the text that as_json"
                " gave. Nothing was written. Something else has changed it: put the"
                " stored text back, for example from a copy of the sink",
                value=text,
            ) from error


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end: high watermark, or last stable offset under ``read_committed``."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """A given next offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record whose timestamp is at or after ``timestamp_ms`` (Unix epoch)."""

    timestamp_ms: int


Position = Earliest | Latest | AtOffset | AtTime


@dataclass(frozen=True, slots=True)
class Topics:
    """These topics, all partitions; a topic that is absent is picked up later."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Every topic whose whole name matches the regular expression (Python's ``re``).

    Topics of kafka_tx's own and those inside Kafka never match, except ``also``: those
    that the job has read already.
    """

    pattern: str
    also: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # it would match something else
                re.compile(self.pattern)
        except (re.error, Warning) as error:
            raise ConfigError.illegal(
                "pattern",
                self.pattern,
                "a regular expression as Python's re understands it",
                f"It says: {error}.",
            ) from None

    def matching(self, names: Iterable[str]) -> list[str]:
        """The matching ones of these names, in their order."""
        pattern = re.compile(self.pattern)
        return [
            name
            for name in names
            if pattern.fullmatch(name) and (name in self.also or not is_left_out(name))
        ]


@dataclass(frozen=True, slots=True)
class Assigned:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription = Topics | TopicPattern | Assigned


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """A broker's address; ``node_id`` is -1 where only the address is known."""

    host: str
    port: int = 9092
    node_id: int = -1

    def __str__(self) -> str:
        return host_port(self.host, self.port)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic as one metadata answer shows it.

    ``leaders`` has an entry for every partition; None where it has no leader now.
    ``topic_id`` is None if the broker does not report it.
    """

    name: str
    leaders: Mapping[int, Broker | None]
    topic_id: str | None = None

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions, ascending, also those without a leader."""
        return [TopicPartition(self.name, number) for number in sorted(self.leaders)]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of a partition's log now: ``[log_start, end)`` of one topic.

    ``end`` is the high watermark, or the last stable offset under ``read_committed``.
    ``topic_id`` was reported both before and after the bounds; None if brokers report
    no ids. ``leader_epoch``: of the leader that reported the end; None if it reports
    none. ``epoch_ends``: where older leader epochs ended (``ClusterView.epoch_ends``).
    ``edge``: the first offset that retention keeps for hours (``RetentionEdges``); None
    if nobody asked. For people only: bounds with other edges are equal.
    """

    log_start: int
    end: int
    topic_id: str | None = None
    leader_epoch: int | None = None
    epoch_ends: Mapping[int, int] = field(default_factory=dict, hash=False)
    edge: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Retention:
    """What limits a topic's logs: an age in ms, None: no age; whether a size does."""

    ms: int | None
    is_by_size: bool


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The next offset in the log of one topic: an offset alone means nothing.

    ``topic_id`` is None where it was not known when the position was learnt.
    ``leader_epoch`` is that of the leader whose log held it; None: not known.
    """

    offset: int
    topic_id: str | None
    leader_epoch: int | None = None

    def is_end_of(self, bounds: object) -> bool:
        """Whether a log was read to its end, and nothing is known to have happened."""
        return (
            isinstance(bounds, LogBounds)
            and bounds.end == self.offset
            and bounds.topic_id == self.topic_id
            and bounds.leader_epoch == self.leader_epoch
        )


def known_epochs(
    positions: Mapping[TopicPartition, LogPosition],
) -> dict[TopicPartition, int]:
    """The leader epochs of positions; unknown ones are left out."""
    epochs = {p: at.leader_epoch for p, at in positions.items()}
    return {p: epoch for p, epoch in epochs.items() if epoch is not None}


def located(
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    leader_epochs: Mapping[TopicPartition, int],
) -> dict[TopicPartition, LogPosition]:
    """These offsets, each with what is known of its log."""
    return {
        p: LogPosition(offset, topic_ids.get(p.topic), leader_epochs.get(p))
        for p, offset in offsets.items()
    }


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why the answer for a partition is unavailable now. Not data loss.

    ``topic_id`` is its topic's id, if reported nevertheless.
    """

    reason: str
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The stored progress of one partition.

    Attributes:
        offset: The next offset to process: everything below it is done.
        completed: Runs ``(start, end)`` beyond ``offset`` that are done too; ascending,
            disjoint, not touching ``offset``. Stores that cannot keep them drop them.
        topology_id: The deployment that wrote it; empty when unknown.
        topology_name: Its name; empty when unknown.
        broker: The leader when it was written, for tools that show it.
        topic_id: Of the topic whose offsets these are; empty when unknown.
        failures: Runs ``(start, end, times)`` of unfinished records that failed so
            often; ascending, the lowest ones only.
        leader_epoch: Of the leader whose log held ``offset``; None when unknown.
        committed_ms: Unix time of the commit, for people; None when unknown.
    """

    offset: int
    completed: tuple[tuple[int, int], ...] = ()
    topology_id: str = ""
    topology_name: str = ""
    broker: Broker | None = None
    topic_id: str = ""
    failures: tuple[tuple[int, int, int], ...] = ()
    leader_epoch: int | None = None
    committed_ms: int | None = field(default=None, compare=False)

    @property
    def position(self) -> LogPosition:
        """``offset``, and the log that it is of."""
        return LogPosition(self.offset, self.topic_id or None, self.leader_epoch)

    @property
    def reached(self) -> LogPosition:
        """Behind the last offset that it tells of, and the log that must go so far."""
        ends = (end for _, end, *_ in (*self.completed, *self.failures))
        return replace(self.position, offset=max([self.offset, *ends]))


class JointPart(NamedTuple):
    """One source's part of a joint batch.

    Attributes:
        txid: Its own; 0 without ``tx.id``.
        end: Stands for the positions where it ended.
        numbering: Which sequence ``txid`` is of; empty without ``tx.id``.
    """

    txid: int
    end: str
    numbering: str = ""

    def is_same(self, other: JointPart) -> bool:
        """Whether the txid is the same; 0 is none."""
        return self.txid == other.txid > 0 and self.numbering == other.numbering


@dataclass(frozen=True, slots=True)
class JointBatch:
    """One batch of Spark as all streaming sources of its query have it.

    Each source with a ``tx.id`` stores the whole of it, under its own txid.

    Attributes:
        numbers: The ``tx.id`` whose txid and epoch the user's function gets.
        parts: Of each source, by ``tx.id`` or by what Spark calls it.
    """

    numbers: str
    parts: Mapping[str, JointPart]

    @property
    def number(self) -> int:
        """The txid that sinks know it by."""
        return self.parts[self.numbers].txid

    @property
    def without_id(self) -> list[str]:
        """Sources that nothing is stored of."""
        return [name for name, part in self.parts.items() if not part.txid]

    def is_same(self, other: JointBatch | None) -> bool:
        """Whether both hold the same records, as far as their sources tell.

        A part is the same under the same txid. Where a checkpoint overruled a store,
        the same end has another txid, except in the source that numbers.
        """
        if other is None or self.numbers != other.numbers:
            return False
        return self.parts.keys() == other.parts.keys() and all(
            part.is_same(other.parts[name])
            or (name != self.numbers and part.end == other.parts[name].end)
            for name, part in self.parts.items()
        )


@dataclass(frozen=True, slots=True)
class QueryShape:
    """What a query keeps beside the offsets of one source.

    Attributes:
        numbered: The ``tx.id`` of its sources, ascending.
        others: Its streaming sources without ``tx.id``, as Spark calls them.
        states: Spark's operators that keep state, such as ``StateStoreSave``.
        numberings: Those of ``numbered``, if there are several sources; empty: unknown.
    """

    numbered: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    numberings: tuple[str, ...] = ()

    @property
    def has_several_sources(self) -> bool:
        """Whether a batch of the query is more than one source's part."""
        return len(self.numbered) + len(self.others) > 1

    def counting(self, joint: JointBatch | None) -> QueryShape:
        """The same query with the numberings of this batch of it."""
        parts = joint.parts if joint else {}
        known = [parts[id_].numbering for id_ in self.numbered if id_ in parts]
        return replace(self, numberings=tuple(known))

    def begun_anew(self, former: QueryShape | None) -> list[str]:
        """The ``tx.id`` of sources that counted in other numberings before."""
        if former is None:
            return []
        before = dict(zip(former.numbered, former.numberings, strict=False))
        now = dict(zip(self.numbered, self.numberings, strict=False))
        return [id_ for id_, name in now.items() if before.get(id_, name) != name]


Skip = tuple[TopicPartition, str]
"""A partition and the reason why offsets of it were jumped over without being read."""

Skipped = Mapping[Skip, int]
"""How many offsets were."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """What a txid holds: a range for each partition known when it was planned.

    A replay never reads a partition that was added later.

    Attributes:
        topic_ids: Tell a recreated topic from the planned one.
        spark_batch: Name of a batch of Spark without new records; all ranges are empty.
        logged: Ends in Spark's log beyond the log's; ``ranges`` have what is left.
        logged_as: The txid and epoch under which Spark's log has the plan.
        joint: Set, before any sink sees the batch, if its query has several sources.
        mode: Of the owner that stored it.
        skipped: Offsets that the plan jumps over to reach its ranges.
        attempts: 1, and one more for each owner that gave it out again.
        was_opaque: Stored as opaque before: sinks may have it with other records.
        awaited: Partitions that existed at the first batch and that no batch could
            reach so far: their start is the earliest offset, and nothing is lost.
        unproven: Epochs of the entries in Spark's log where batch ids start again, and
            nobody has asked for the txid: a sink that remembers batch ids drops the
            batch. The end of such an entry does not commit it.
        schemas: Names of the readers' schemas, for ``key`` and ``value`` where they are
            typed: every replay is decoded with these.
    """

    txid: int
    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    spark_batch: str = ""
    logged: Mapping[TopicPartition, int] = field(default_factory=dict)
    logged_as: str = ""
    joint: JointBatch | None = None
    mode: Mode = "transactional"
    skipped: Skipped = field(default_factory=dict)
    attempts: int = 1
    was_opaque: bool = False
    awaited: tuple[TopicPartition, ...] = ()
    unproven: tuple[int, ...] = ()
    schemas: Mapping[str, str] = field(default_factory=dict)

    def ends(self) -> dict[TopicPartition, int]:
        """The position after this batch, per partition."""
        return {r.topic_partition: r.end for r in self.ranges}

    def leader_epochs(self) -> dict[TopicPartition, int]:
        """Leader epochs that the ends were planned under; unknown ones are left out."""
        return epochs_of(self.ranges)

    def logged_ends(self) -> dict[TopicPartition, int]:
        """The position after this batch as Spark's log has it."""
        return {**self.ends(), **self.logged}

    def fingerprint(self) -> str:
        """A digest of logged ends and topic ids; a joint batch's is without a name."""
        ends = [
            (p.topic, self.topic_ids.get(p.topic), p.partition, at)
            for p, at in sorted(self.logged_ends().items())
        ]
        name = "" if self.joint else self.spark_batch
        return short_digest(f"{name} {ends}")

    def starts(self) -> dict[TopicPartition, int]:
        """The position before this batch, per partition."""
        return {r.topic_partition: r.start for r in self.ranges}

    def positions(self) -> dict[TopicPartition, LogPosition]:
        """As ``ends``, each with the log that it is of."""
        ids = self.topic_ids
        return {
            at: LogPosition(r.end, r.topic_id or ids.get(at.topic), r.leader_epoch)
            for r in self.ranges
            for at in (r.topic_partition,)
        }


@dataclass(frozen=True, slots=True)
class SpoutBatch(BatchMetadata):
    """The plan of a user's own spout: JSON of any shape instead of ranges."""

    json: Any = None
