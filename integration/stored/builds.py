"""Other builds of the package: what a later version may change in what it stores.

A build is a folder like the project's, with links to all beside it. Python
started in it imports the build's package, and so do the processes of its Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from kafka_tx import stored

REPOSITORY = Path(__file__).parents[2]

Changes = Mapping[str, Sequence[tuple[str, str]]]
"""By file of the package: texts, and what they are replaced by."""

MORE: Changes = {
    "stored.py": [
        (
            "return {_MEMBER: self.number, **fields}",
            "more = {'later': {'more': [1, {'x': None}]}}\n"
            "        return {_MEMBER: self.number, **fields, **more}",
        )
    ],
    "transactions/layout/records.py": [
        (
            "        data = _compact(payload)\n",
            "        if isinstance(payload, dict):\n"
            '            payload = {**payload, "later": {"more": [1]}}\n'
            "        data = _compact(payload)\n",
        )
    ],
    "kafka/group_offsets.py": [
        ("    plain, deflated =", '    body += b"\\x01\\x02"\n    plain, deflated =')
    ],
    "kafka/dead_letter_form.py": [
        (
            "        FORMAT: LETTERS.number,\n",
            '        FORMAT: LETTERS.number,\n        f"{PREFIX}later": 1,\n',
        )
    ],
}
"""Each record has a member more than this version knows."""


def build(place: Path, changes: Changes) -> Path:
    """Make a build in a folder, with these changes of the package."""
    place.mkdir(parents=True)
    for item in REPOSITORY.iterdir():
        if item.name not in {"kafka_tx", "build", ".git"}:
            (place / item.name).symlink_to(item)
    package = place / "kafka_tx"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "kafka_tx", package, ignore=ignored)
    for name, pairs in changes.items():
        file = package / name
        text = file.read_text()
        for old, new in pairs:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        file.write_text(text)
    return place


# --- in this process ----------------------------------------------------------------

LATER = stored.FIRST + 1


@contextmanager
def numbers(number: int, *reads: int) -> Iterator[None]:
    """Be a version that writes this number everywhere, and also reads others."""
    former = [(each, each.number, each.reads) for each in stored.EVERY]
    try:
        for each in stored.EVERY:
            _renumber(each, number, (number, *reads))
        yield
    finally:
        for kind, written, read in former:
            _renumber(kind, written, read)


def _renumber(kind: stored.Format, number: int, reads: tuple[int, ...]) -> None:
    object.__setattr__(kind, "number", number)
    object.__setattr__(kind, "reads", reads)


@contextmanager
def more_members() -> Iterator[None]:
    """Be a version that stores a member more."""
    stamped = stored.Format.stamped

    def more(kind: stored.Format, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {**stamped(kind, fields), "later": {"more": [1]}}

    with mock.patch.object(stored.Format, "stamped", more):
        yield
