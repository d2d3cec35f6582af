"""Other builds of the package: what a later version may change in what it stores.

A build is a folder like the project's, with links to all that is the same. Python
started in it imports the build's package, and so do the processes of its Spark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    "transactions/records.py": [
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
    shutil.copytree(
        REPOSITORY / "kafka_tx", package, copy_function=os.link, ignore=ignored
    )
    for name, pairs in changes.items():
        file = package / name
        text = file.read_text()
        for old, new in pairs:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        file.unlink()
        file.write_text(text)
    return place
