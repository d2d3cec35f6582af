"""Which dead letters of a partition were sent back: a record, and a group's offset."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Self

from kafka_tx.offsets.runs import OffsetRuns
from kafka_tx.sinks.sink_parts import compact
from kafka_tx.stored import SENT_LETTERS

_KIND = "letters"
_OWNER = "dead letters of {}"
"""No id of a sink has blanks: readers of its markers pass over these records."""


@dataclass(frozen=True, slots=True)
class SentLetters:
    """The dead letters of one partition that were sent back, or skipped for good.

    Attributes:
        next_offset: All below were, except ``left``.
        left: Runs below ``next_offset`` that were not: they could not be sent.
        leader_epoch: Of the leader that reported the log's end; None: not known.
        serial: Number of the last transaction that stored it; 0: none has.
    """

    next_offset: int = 0
    left: tuple[tuple[int, int], ...] = ()
    leader_epoch: int | None = None
    serial: int = 0

    def waiting(self, log_start: int, end: int) -> list[tuple[int, int]]:
        """The runs of ``[log_start, end)`` that were not sent."""
        left = OffsetRuns(*self.left).overlap(log_start, end)
        first = max(self.next_offset, log_start)
        return [*left, (first, end)] if first < end else left

    def settled(
        self, start: int, end: int, left: Iterable[int], log_start: int
    ) -> SentLetters:
        """After ``[start, end)``, a run that waited, was sent, except ``left``."""
        runs = OffsetRuns(*self.left)
        runs.remove(start, end)
        runs.remove(0, log_start)
        for offset in left:
            runs.add(offset, offset + 1)
        next_offset = max(self.next_offset, end)
        return replace(self, next_offset=next_offset, left=tuple(runs))

    def sent_below(self, offset: int) -> SentLetters:
        """With all below an offset, as a group says that knows of none that is left."""
        runs = OffsetRuns(*self.left)
        runs.remove(0, offset)
        next_offset = max(self.next_offset, offset)
        return replace(self, next_offset=next_offset, left=tuple(runs))

    def cut(self, end: int) -> SentLetters:
        """After the log lost ``end`` and all above: other letters follow there."""
        left = OffsetRuns(*self.left).overlap(0, end)
        next_offset = min(self.next_offset, end)
        return replace(self, next_offset=next_offset, left=tuple(left))

    @property
    def value(self) -> bytes:
        """The value of the record."""
        return compact(SENT_LETTERS.stamped(asdict(self))).encode()

    @classmethod
    def of_value(cls, value: bytes, what: str = "a record") -> Self:
        """Read ``value``; ``what`` is the record in words.

        A record without value means that nothing is known. Raises FormatError, or one
        of ``NOT_OURS``.
        """
        if value == b"null":
            return cls()
        said = json.loads(value)
        if isinstance(said, list) and len(said) == len(fields(cls)):
            SENT_LETTERS.check(None, what)
        if "v" in said:
            SENT_LETTERS.check_members(said, what)
        epoch = said["leader_epoch"]
        return cls(
            int(said["next_offset"]),
            tuple((int(start), int(end)) for start, end in said["left"]),
            None if epoch is None else int(epoch),
            int(said["serial"]),
        )


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """A partition of a dead-letter topic.

    ``topic_id`` is empty if brokers report none. A topic that was made anew has another
    one: none of its letters was sent.
    """

    topic: str
    topic_id: str
    partition: int

    @property
    def key(self) -> bytes:
        """The key of the record: the marker topic keeps the newest of each key."""
        whose = _OWNER.format(self.topic)
        return compact([_KIND, whose, self.topic_id, self.partition]).encode()

    def metadata(self, serial: int) -> str:
        """The metadata of the group's offset, committed with the record."""
        said = {"kind": _KIND, "topic_id": self.topic_id, "serial": serial}
        return compact(SENT_LETTERS.stamped(said))

    def serial_of(self, metadata: str | None) -> int | None:
        """The serial in the metadata of the group's offset.

        0: a person set the offset. None: it is of a former topic of the same name.
        Raises FormatError.
        """
        try:
            said = json.loads(metadata or "")
        except (ValueError, RecursionError):
            return 0
        what = f"the group's offset of dead letters of '{self.topic}'"
        if isinstance(said, list) and said[:1] == [_KIND]:
            SENT_LETTERS.check(None, what)
        if not isinstance(said, dict) or said.get("kind") != _KIND:
            return 0
        SENT_LETTERS.check_members(said, what)
        return int(said["serial"]) if said["topic_id"] == self.topic_id else None
