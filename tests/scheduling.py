"""Which worker runs which file of tests and when, also after one of them crashed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

LONGEST_FILES = Path(__file__).with_name("longest_files.json")
"""Seconds of each file that takes some, longest first: `make test-cost RECORD=1`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: all workers wait for what is begun last."""
    recorded = json.loads(LONGEST_FILES.read_text())
    turns = {file: turn for turn, file in enumerate(recorded)}

    def turn_of(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        is_unknown = file.startswith("integration/")  # one that is new may take long
        return turns.get(file, -1 if is_unknown else len(turns))

    items.sort(key=turn_of)


@pytest.hookimpl(optionalhook=True)  # with -p no:xdist there is none
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The one below in place of xdist's own."""
    is_by_file = config.getoption("dist") == "loadfile"
    return FileScheduling(config, log) if is_by_file else None


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """``--dist loadfile``, in which a crashed worker leaves its tests to others.

    With xdist 3.8 such a run never ends: it hands on files of which everything has run,
    too, and waits for their results; and a worker that is given a single test waits for
    a second one. Or it ends with an error: it gives files to a worker that has started
    and not collected its tests yet.
    """

    def schedule(self) -> None:
        """As xdist's; a new worker gets a second file, or hears that there is none."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Put back what a worker had not run; the test in which it crashed, or None."""
        work = self.assigned_work.pop(node)
        left: list[str] = [
            test
            for tests in work.values()
            for test, has_run in tests.items()
            if not has_run
        ]
        for test in left[1:]:
            self.workqueue.setdefault(self._split_scope(test), {})[test] = False
        return left[0] if left else None

    def _reschedule(self, node: Any) -> None:
        """Give a worker more to do, a new one not before it has collected its tests."""
        if node in self.registered_collections:
            super()._reschedule(node)
