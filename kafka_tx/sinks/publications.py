"""Which files of a folder count, and which may be removed.

Each attempt at a batch writes files into a folder of its own, and then publishes it: a
*publication* is one small file that appears as a whole. Of each txid the publication of
the greatest attempt counts, unless a later txid has left it out. So a frozen driver
that wakes, and publishes an older attempt, changes nothing.

Files of publications have a line for each, and a name that tells the greatest attempt
in them. From time to time some of them are merged into one of the next level.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import TransactionAttempt
from kafka_tx.stored import PUBLICATIONS

PUBLISHED, ATTEMPTS = "_kafka_tx/published", "_kafka_tx/attempts"
"""Where publications and attempts' folders are, below the path."""
MERGED_AT = 100
"""Files of publications of one level that are merged into one of the next level."""
HIGHEST = 9
"""The level of all publications of a folder, merged by a clean-up."""

_ODD = ValueError, LookupError, TypeError, AttributeError
"""What reading raises where a line is another one's."""
_NAME = re.compile(r"(\d+)\.(-?\d+)\.(\d)\.([0-9a-f]{16})")


class Name(NamedTuple):
    """Name of a file of publications, and of the folder that an attempt writes.

    A greater one has the greater attempt. ``token`` is different for each file.
    """

    txid: int
    attempt_id: int
    level: int
    token: str

    def __str__(self) -> str:
        return f"{self.txid:019}.{self.attempt_id:019}.{self.level}.{self.token}"

    @classmethod
    def of(cls, text: str) -> Name | None:
        """Read a name; None: it is the name of something else."""
        match = _NAME.fullmatch(text)
        return match and cls(int(match[1]), int(match[2]), int(match[3]), match[4])


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What all batches of a folder have in common.

    Attributes:
        options: Those of the writer that a reader needs.
    """

    format: str
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        by = ", ".join(self.partition_by) or "nothing"
        return f"format {self.format}, by {by}, with options {dict(self.options)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The files of an attempt.

    Attributes:
        folder: Name of the folder that the attempt has written.
        files: Their places below it.
        schema: Spark's schema of the batch, as JSON; empty: that of the next txid in
            the same file.
        at_ms: Unix time of the publication, for clean-ups.
        follows: The txid that was published before this one; 0: none was. So a
            publication that is missing is noticed, and one that comes too late.
        is_floor: The files of this txid and of all earlier ones were removed.
        more: Members that this version does not know.
    """

    attempt: TransactionAttempt
    folder: str
    files: tuple[str, ...]
    form: Form
    schema: str
    at_ms: int
    follows: int = 0
    is_floor: bool = False
    more: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def order(self) -> tuple[int, int, str]:
        """Greater for a newer attempt."""
        return self.attempt.txid, self.attempt.attempt_id, self.folder

    def as_line(self) -> str:
        """As it is stored."""
        said = asdict(self)
        more = said.pop("more")
        said["attempt"] = json.loads(self.attempt.as_json())
        return json.dumps({**more, **PUBLICATIONS.stamped(said)})

    @classmethod
    def of_line(cls, line: str, what: str) -> Publication:
        """Read the result of ``as_line``; raises StateCorruptedError, FormatError."""
        try:
            stored = json.loads(line)
            if "v" in stored or {"attempt", "folder"} <= stored.keys():
                PUBLICATIONS.check_members(stored, f"a publication in {what}")
            attempt = TransactionAttempt.of_json(json.dumps(stored.pop("attempt")))
            form, _ = _split(Form, stored.pop("form"))
            form["partition_by"] = tuple(form["partition_by"])
            stored["files"] = tuple(stored["files"])
            known, more = _split(cls, stored)
            return cls(attempt=attempt, form=Form(**form), **known, more=more)
        except (*_ODD, StateCorruptedError) as error:
            raise StateCorruptedError(
                f"{what} has a publication that cannot be read: {line!r:.200}. Nothing"
                " was changed. Restore its file from a copy",
                value=line,
            ) from error


def _split(
    kind: type[Form] | type[Publication], stored: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The members that are fields of a kind, and the others."""
    names = {each.name for each in fields(kind)} - {"more"}
    known = {name: value for name, value in stored.items() if name in names}
    return known, {n: value for n, value in stored.items() if n not in {*names, "v"}}


def newest(names: Iterable[Name]) -> Name | None:
    """The file with the greatest attempt; None: nothing is published."""
    return max(names, default=None)


def counting(
    publications: Iterable[Publication], as_of: int | None = None
) -> list[Publication]:
    """The publications that count, in order of their txids, up to ``as_of``."""
    every = sorted(publications, key=attrgetter("order"))
    floor = _floor(every)
    found = {p.attempt.txid: p for p in every if p.attempt.txid > floor}
    counted: list[Publication] = []
    for p in reversed(found.values()):
        # 6 follows 4: a frozen driver has published 5, which was left out, after 6.
        # What follows 0 hides nothing: former publications may have been put back.
        if not counted or not 0 < counted[-1].follows < p.attempt.txid:
            counted.append(p)
    return [p for p in counted[::-1] if as_of is None or p.attempt.txid <= as_of]


def missing(publications: Iterable[Publication]) -> int | None:
    """The lowest txid that a batch follows, and whose publication is not there.

    One listing of a folder may have neither the files that are merged meanwhile nor
    the merged one.
    """
    every = list(publications)
    floor = _floor(every)
    there = {p.attempt.txid for p in every}
    gone = (p.follows for p in every if p.follows > floor and p.follows not in there)
    return min(gone, default=None)


def _floor(publications: Iterable[Publication]) -> int:
    return max((p.attempt.txid for p in publications if p.is_floor), default=0)


def merged(publications: Iterable[Publication]) -> str:
    """The text of a file that takes the place of those of these publications."""
    every = list(publications)
    floors = sorted((p for p in every if p.is_floor), key=attrgetter("order"))
    counted = counting(every)
    for n, (one, next_) in enumerate(pairwise(counted)):
        if one.schema == next_.schema:  # most of a line, and mostly the same
            counted[n] = replace(one, schema="")
    return "\n".join(p.as_line() for p in [*floors[-1:], *counted])


def with_schemas(publications: Iterable[Publication]) -> list[Publication]:
    """Those of one file, each with its own schema, in order of their txids."""
    found, schema = [], ""
    for p in sorted(publications, key=attrgetter("order"), reverse=True):
        schema = p.schema or schema
        found.append(p if p.schema else replace(p, schema=schema))
    return found[::-1]


def to_merge(names: Iterable[Name]) -> list[Name]:
    """Files that are merged next; empty: there are too few.

    The file with the greatest attempt stays: another driver may be reading it.
    """
    every = sorted(names)[:-1]
    for level in sorted({name.level for name in every}):
        same = [name for name in every if name.level == level]
        if len(same) >= MERGED_AT and level < HIGHEST:
            return same
    return []


def new_floor(
    publications: Iterable[Publication], before_ms: int
) -> Publication | None:
    """The floor that hides what was published before a time; None: nothing was.

    Txids go in their order, and the last one stays: it is the memory of the sink.
    """
    last = None
    for found in counting(publications)[:-1]:
        if found.at_ms >= before_ms:
            break
        last = found
    return last and replace(last, files=(), is_floor=True)


def left_over(
    folders: Iterable[Name], publications: Iterable[Publication], before_ms: int
) -> list[Name]:
    """Folders that no reader needs, and nobody may publish any more.

    A newer attempt was published before the time. A folder of an attempt above it may
    be published yet.
    """
    counted = counting(publications)
    last = max((p.order for p in counted if p.at_ms <= before_ms), default=None)
    needed = {p.folder for p in counted}
    if last is None:
        return []
    return [
        folder
        for folder in folders
        if (folder.txid, folder.attempt_id, str(folder)) < last
        and str(folder) not in needed
    ]
