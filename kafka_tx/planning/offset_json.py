"""The JSON of offsets: Spark's form, and ours inside it.

Spark's Kafka source writes ``{"orders": {"0": 250}}``. With ``tx.id`` the same object
has one more member, ``_kafka_tx``, the mark: it says in the checkpoint and in progress
reports which transaction ended at the offset. A note holds the topic ids and leader
epochs of the positions (with ``tx.id`` the mark holds them), and the start of a batch
that did not begin at the end of the one before. The note is the *name* of a member
whose value is empty: Spark's own source ignores it, so it can go on with such a
checkpoint. No topic has such a name; one that is called as the mark is refused. Options
for offsets ignore mark and note, so a copied offset is legal in ``startingOffsets``.
Their parsers raise ConfigError for another form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from operator import itemgetter
from typing import Any, Self, TypeVar

from kafka_tx.errors import ConfigError
from kafka_tx.model import (
    AtOffset,
    Earliest,
    Latest,
    LogPosition,
    Position,
    QueryShape,
    TopicPartition,
    located,
    short_digest,
)
from kafka_tx.offsets.leader_epochs import packed, unpacked
from kafka_tx.own_topics import RESERVED
from kafka_tx.stored import CHECKPOINTS

_T = TypeVar("_T")

MARK = RESERVED
_NOTE = f"{MARK} "
_BEGINS, _TOPIC_IDS, _EPOCHS = "begins", "topic_ids", "leader_epochs"
_OF_OLD_VERSIONS = f"{MARK}_begins"
_WHAT = "an offset in the checkpoint of this query"
_UNSEEN, _QUERY = "unseen", "query"

LATEST, EARLIEST = -1, -2

PER_PARTITION = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMESTAMPS = '{"topicA":{"0":1700000000000},"topicB":{"0":1700000000000}}'
ASSIGN = '{"topicA":[0,1],"topicB":[0,1]}'


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """The transaction that ends at an offset, and its owner.

    Attributes:
        id: The query's ``tx.id``.
        txid: The last transaction at or before this offset; 0 before the first.
        epoch: The owner's epoch at the time of the plan.
        start: This is the query's start: ``txid`` ended here, before its first batch.
        topic_ids, leader_epochs: The known ones of the positions.
        unseen: Positions of partitions that were read before and are not found now.
            Otherwise only the store has them.
        numbering: The numbering of ``txid``; see ``txid_layout``.
        query: Shape of the query, if it is known to have several sources: an older copy
            of the store may lack it.
        schemas: With which the transaction is decoded; see ``BatchMetadata``.
    """

    id: str
    txid: int
    epoch: int
    start: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict, compare=False)
    unseen: Mapping[TopicPartition, int] = field(default_factory=dict, compare=False)
    numbering: str = ""
    leader_epochs: Mapping[TopicPartition, int] = field(
        default_factory=dict, compare=False
    )
    query: QueryShape | None = field(default=None, compare=False)
    schemas: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the result of ``to_json``."""
        CHECKPOINTS.check_members(data, _WHAT)
        names = {each.name for each in fields(cls)}
        known = {name: value for name, value in data.items() if name in names}
        unseen, epochs = flat(data.get(_UNSEEN, {})), unpacked(data.get(_EPOCHS, {}))
        size = len(fields(QueryShape))
        query = QueryShape(*map(tuple, data[_QUERY][:size])) if _QUERY in data else None
        return cls(**{**known, _UNSEEN: unseen, _EPOCHS: epochs, _QUERY: query})

    def to_json(self) -> dict[str, Any]:
        """A dict without empty members."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        data |= {_UNSEEN: nested(self.unseen), _EPOCHS: packed(self.leader_epochs)}
        if self.query is not None:
            data[_QUERY] = [list(names) for names in astuple(self.query)]
        always = ("id", "txid", "epoch")
        return CHECKPOINTS.stamped(
            {name: value for name, value in data.items() if value or name in always}
        )


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """One offset of the source: the next position of every partition, and its mark.

    Attributes:
        mark: The transaction that ends here.
        begins: Start of the batch that ends here, if not the end of the batch before.
        noted_ids, noted_epochs: Known topic ids and leader epochs of the positions;
            empty with a mark, which has them.
    """

    positions: Mapping[TopicPartition, int]
    mark: TransactionMark | None = None
    begins: Mapping[TopicPartition, int] = field(default_factory=dict, compare=False)
    noted_ids: Mapping[str, str] = field(default_factory=dict, compare=False)
    noted_epochs: Mapping[TopicPartition, int] = field(
        default_factory=dict, compare=False
    )

    @property
    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """Leader epochs of the positions; unknown ones are left out."""
        return self.mark.leader_epochs if self.mark else self.noted_epochs

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Known ids of the positions' topics; Spark's own source knows none."""
        return self.mark.topic_ids if self.mark else self.noted_ids

    def located(self) -> dict[TopicPartition, LogPosition]:
        """The positions, each with what is known of its log."""
        return located(self.positions, self.topic_ids, self.leader_epochs)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the result of ``to_json``, or an offset of Spark's own source.

        Raises FormatError: Mark or note have a format that this version does not read.
        """
        mark, note = data.get(MARK), _noted(data)
        return cls(
            flat(only_offsets(data)),
            TransactionMark.from_json(mark) if mark else None,
            flat(note.get(_BEGINS, {})),
            note.get(_TOPIC_IDS, {}),
            unpacked(note.get(_EPOCHS, {})),
        )

    def to_json(self) -> dict[str, Any]:
        """The dict Spark stores; topics and partitions ascending, as Spark's source."""
        data: dict[str, Any] = nested(self.positions)
        if self.mark is not None:
            data[MARK] = self.mark.to_json()
        note: dict[str, Any] = {
            _BEGINS: nested(self.begins),
            _TOPIC_IDS: dict(sorted(self.noted_ids.items())),
            _EPOCHS: packed(self.noted_epochs),
        }
        if any(note.values()):
            said = {name: value for name, value in note.items() if value}
            data[_NOTE + json.dumps(CHECKPOINTS.stamped(said))] = {}
        return data

    def is_same(self, other: SourceOffset) -> bool:
        """Whether the other offset has the same JSON, which is what Spark compares."""
        return self is other or (self == other and self.to_json() == other.to_json())

    def digest(self) -> str:
        """Digest of the positions."""
        return short_digest(json.dumps(nested(self.positions)))


def only_offsets(data: Mapping[str, Any]) -> dict[str, Any]:
    """The members of an offset that Spark's own source would write."""
    return {t: v for t, v in data.items() if t != MARK and not t.startswith(_NOTE)}


def _noted(data: Mapping[str, Any]) -> dict[str, Any]:
    if any(isinstance(at, dict) for at in data.get(_OF_OLD_VERSIONS, {}).values()):
        CHECKPOINTS.check(None, _WHAT)
    name = next((name for name in data if name.startswith(_NOTE)), None)
    if name is None:
        return {}
    note = dict(json.loads(name.removeprefix(_NOTE)))
    CHECKPOINTS.check_members(note, _WHAT)
    return note


def nested(values: Mapping[TopicPartition, _T]) -> dict[str, dict[str, _T]]:
    """``{"topic": {"0": value}}``, topics and partitions ascending."""
    data: dict[str, dict[str, _T]] = {}
    for (topic, number), value in sorted(values.items(), key=itemgetter(0)):
        data.setdefault(topic, {})[str(number)] = value
    return data


def flat(data: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Undo ``nested``."""
    return {
        TopicPartition(topic, int(number)): int(value)
        for topic, values in data.items()
        for number, value in values.items()
    }


def parse_positions(option: str, text: str) -> dict[TopicPartition, Position]:
    """Read ``startingOffsets``/``endingOffsets`` JSON (-1 latest, -2 earliest)."""
    positions: dict[TopicPartition, Position] = {}
    for partition, offset in _parse_numbers(option, text, PER_PARTITION).items():
        if offset == LATEST:
            positions[partition] = Latest()
        elif offset == EARLIEST:
            positions[partition] = Earliest()
        elif offset >= 0:
            positions[partition] = AtOffset(offset)
        else:
            raise ConfigError.illegal(
                option,
                offset,
                f"an offset >= 0, -1 (latest) or -2 (earliest) for {partition}",
            )
    return positions


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """Read a JSON of epoch milliseconds per partition."""
    return _parse_numbers(option, text, TIMESTAMPS)


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Read the ``assign`` JSON, of one partition at least."""
    if not text.strip().startswith("{"):
        raise ConfigError(
            "No topicpartitions to assign as specified value for option 'assign' is"
            f" '{text}'; expected e.g. {ASSIGN}",
            option="assign",
            value=text,
        )
    data = _load("assign", text, ASSIGN)
    try:
        found = [
            TopicPartition(topic, _number(number))
            for topic, numbers in data.items()
            for number in numbers
        ]
    except (TypeError, ValueError):
        raise _expected("assign", text, ASSIGN) from None
    if not found or any(partition.partition < 0 for partition in found):
        raise _expected("assign", text, ASSIGN)
    return tuple(sorted(set(found)))


def _parse_numbers(option: str, text: str, example: str) -> dict[TopicPartition, int]:
    data = only_offsets(_load(option, text, example))
    try:
        found = {
            TopicPartition(topic, int(number)): _number(value)
            for topic, partitions in data.items()
            for number, value in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise _expected(option, text, example) from None
    if any(partition.partition < 0 for partition in found):
        raise _expected(option, text, example)
    return found


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    if not -(2**63) <= value < 2**63:
        raise ValueError(value)
    return value


def _load(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        raise _expected(option, text, example) from None
    if not isinstance(data, dict):
        raise _expected(option, text, example)
    return data


def _expected(option: str, text: str, example: str) -> ConfigError:
    return ConfigError(
        f"option '{option}': Expected e.g. {example}, got {text}",
        option=option,
        value=text,
    )
