"""The markers and the plan of one Kafka sink, as records and group offsets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.sink_parts import (
    OF_OLD_VERSIONS,
    Marker,
    SinkPlan,
    compact,
    group_of,
    name_of,
)
from kafka_tx.stored import MARKERS

_PLAN, _PART = "plan", "part"
NOT_OURS = (
    *(ValueError, LookupError, TypeError),
    *(AttributeError, OverflowError, RecursionError),
)
"""Errors of reading a record that no sink wrote."""


def starts_of_keys(sink: str) -> tuple[bytes, ...]:
    """How all keys of a sink begin, to skip other records fast."""
    return tuple(compact([kind, sink])[:-1].encode() for kind in (_PART, _PLAN))


@dataclass(frozen=True, slots=True)
class Entry:
    """A marker of a part, or the plan of a sink, committed in two forms.

    One transaction commits a record of the marker topic and the offset of a group.

    A writer of a part without a marker *announces* it: its transaction begins with such
    a record, of txid 0. If the writer dies, the next run finds the record and ends the
    transaction, for which readers of the sink would wait.
    """

    sink: str
    kept: Marker | SinkPlan

    @property
    def name(self) -> str:
        """The transactional id that writes the entry."""
        kept = self.kept
        return name_of(self.sink, kept.index if isinstance(kept, Marker) else _PLAN)

    @property
    def group(self) -> str:
        """The group whose offset is the second form."""
        kept = self.kept
        return group_of(self.name, kept.life) if isinstance(kept, Marker) else self.name

    @property
    def txid(self) -> int:
        """The group's offset: a part's last written txid, or a plan's first txid."""
        kept = self.kept
        return kept.txid if isinstance(kept, Marker) else kept.since

    @property
    def is_announcement(self) -> bool:
        """Whether the entry only announces a writer; never a group's offset."""
        return self.txid == 0

    def announced(self) -> Entry:
        """The announcement of a marker."""
        assert isinstance(self.kept, Marker)
        attempt = replace(self.kept.attempt, txid=0)
        return replace(self, kept=replace(self.kept, attempt=attempt))

    @property
    def metadata(self) -> str:
        """The metadata of the group's offset, and the value of the record."""
        kept = self.kept
        return kept.metadata if isinstance(kept, Marker) else compact(kept.as_fields())

    @property
    def key(self) -> bytes:
        """The key of the record: the topic keeps the newest record of each key."""
        kept = self.kept
        if isinstance(kept, Marker):
            return compact([_PART, self.sink, kept.life, kept.index]).encode()
        return compact([_PLAN, self.sink]).encode()

    @property
    def value(self) -> bytes:
        """The value of the record."""
        return self.metadata.encode()

    @classmethod
    def of_key(cls, key: bytes) -> Self | None:
        """The entry of a record's key, without its values; None: no sink wrote it."""
        try:
            kind, sink, *which = json.loads(key)
            if kind == _PLAN:
                entry = cls(sink, SinkPlan(0, 0, 0))
            else:
                life, index = which
                is_whole = type(index) is int and isinstance(life, str)
                nothing = TransactionAttempt(0, 0)
                entry = cls(sink, Marker(index if is_whole else -1, nothing, life=life))
            return entry if isinstance(sink, str) and entry.key == key else None
        except NOT_OURS:
            return None

    def of_value(self, value: bytes) -> Entry:
        """The entry with the values of its record.

        Raises ValueError: It is none of ours. FormatError: Of another version.
        """
        try:
            said = json.loads(value)
            if isinstance(said, list) and OF_OLD_VERSIONS.match(said[-1]):
                MARKERS.check(None, self._what)
            if "v" in said:
                MARKERS.check_members(said, self._what)
            txid = said["txid" if isinstance(self.kept, Marker) else "since"]
            if type(txid) is int and txid >= 0:
                return self.of_group(txid, value.decode())
        except NOT_OURS as error:
            raise ValueError(f"{type(error).__name__}: {error}"[:100]) from None
        raise ValueError("it has no txid")

    def of_group(self, txid: int, metadata: str) -> Entry:
        """The entry with the values of its group's offset.

        Raises FormatError, or one of ``NOT_OURS``.
        """
        kept = self.kept
        if isinstance(kept, Marker):
            given = kept.index, txid, metadata, kept.life
            marker = Marker.of_metadata(*given, what=self._what)
            return Entry(self.sink, marker)
        fields = json.loads(metadata)
        return Entry(self.sink, SinkPlan.of_fields(fields, self._what))

    @property
    def _what(self) -> str:
        kept = self.kept
        which = f"marker of part {kept.index}" if isinstance(kept, Marker) else _PLAN
        return f"the {which} of the Kafka sink '{self.sink}'"


class Memory:
    """The markers of one sink, the newest last, and its plan.

    Attributes:
        end: End of the part of the marker topic that was read; all before is final.
        topic_id: Id of the marker topic; None: not known.
    """

    def __init__(self) -> None:
        self._markers: dict[tuple[str, int], Marker] = {}
        self.plan: SinkPlan | None = None
        self.end = 0
        self.topic_id: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the topic has nothing of the sink."""
        return self.plan is None and not self._markers

    @property
    def markers(self) -> list[Marker]:
        """The newest marker of each part and life, in the order of writing."""
        return list(self._markers.values())

    def entries(self, sink: str) -> list[Entry]:
        """All as entries of ``sink``: the newest marker first, the plan last."""
        entries = [Entry(sink, marker) for marker in reversed(self.markers)]
        return entries if self.plan is None else [*entries, Entry(sink, self.plan)]

    def own(self, life: str, index: int) -> Marker | None:
        """The marker of one part."""
        return self._markers.get((life, index))

    def take(self, entry: Entry) -> None:
        """Add an entry that was committed after all others."""
        kept = entry.kept
        if isinstance(kept, SinkPlan):
            self.plan = kept
            return
        if entry.is_announcement:  # the announced marker follows
            return
        self._markers.pop((kept.life, kept.index), None)  # to be last in order
        self._markers[kept.life, kept.index] = kept

    def drop(self, entry: Entry) -> None:
        """Forget the entry of a key whose newest record is no marker."""
        kept = entry.kept
        if isinstance(kept, SinkPlan):
            self.plan = None
        else:
            self._markers.pop((kept.life, kept.index), None)

    @property
    def text(self) -> str:
        """All entries as text, for tasks."""
        parts = [[m.life, m.index, m.txid, m.metadata] for m in self.markers]
        plan = None if self.plan is None else self.plan.as_fields()
        log = {"end": self.end, "topic_id": self.topic_id}
        return compact({**log, "plan": plan, "parts": parts})

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read the result of ``text``; also used to copy."""
        memory, fields = cls(), json.loads(text)
        memory.end, memory.topic_id = fields["end"], fields["topic_id"]
        plan = fields["plan"]
        memory.plan = None if plan is None else SinkPlan.of_fields(plan)
        memory._markers = dict(_parts(fields["parts"]))
        return memory


def _parts(given: Iterable[Any]) -> Iterable[tuple[tuple[str, int], Marker]]:
    for life, index, txid, metadata in given:
        yield (life, index), Marker.of_metadata(index, txid, metadata, life)
