"""Which worker runs which file of tests and when, also after one of them crashed."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from integration.sizes import EVERYTHING

LONGEST_FILES = Path(__file__).with_name(
    "longest_files_of_all.json" if EVERYTHING else "longest_files.json"
)
"""Seconds of each file that takes some, longest first: `make test-cost RECORD=1`."""


def most_with_spark(workers: int) -> int:
    """Two thirds of the workers, and two where there are as many.

    Each that has a session computes for half a minute until the session is warm. With
    fewer sessions all others are done long before the files that need one.
    """
    return max(workers * 2 // 3, min(workers, 2))


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


@cache
def takes_spark(file: str) -> bool:
    """Whether tests of a file have the argument ``spark``."""
    if not file.startswith("integration/"):
        return False
    text = Path(file).read_text(encoding="utf-8")
    return re.search(r"(\(|,\s|^    )spark[,)]|\"spark\"\)", text, re.M) is not None


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """``--dist loadfile``, in which few workers have a session of Spark.

    Those that have one take the files that need it before all others; the rest of the
    workers takes none.

    A crashed worker leaves its tests to others.

    With xdist 3.8 such a run never ends: it hands on files of which everything has run,
    too, and waits for their results; and a worker that is given a single test waits for
    a second one. Or it ends with an error: it gives files to a worker that has started
    and not collected its tests yet.
    """

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._with_spark: set[Any] = set()

    def schedule(self) -> None:
        """As xdist's; a new worker gets a second file, or hears that there is none."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """Put back what a worker had not run; the test in which it crashed, or None."""
        work = self.assigned_work.pop(node)
        self._with_spark.discard(node)
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
        if node not in self.registered_collections:
            return
        if self.workqueue and self._next_for(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Give it the next file of its kind."""
        file = self._next_for(node)
        if file is None:
            return
        if takes_spark(file):
            self._with_spark.add(node)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: Any) -> str | None:
        most = most_with_spark(self.numnodes)
        may = node in self._with_spark or len(self._with_spark) < most
        waiting = {takes_spark(file): file for file in reversed(self.workqueue)}
        return (waiting.get(True) if may else None) or waiting.get(False)
