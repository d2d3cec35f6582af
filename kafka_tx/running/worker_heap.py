"""Keeps Python workers from looking at all their modules after each task.

PySpark's worker runs a full collection of cycles after every task. With pyarrow, pandas
and librdkafka's bindings loaded, that is 30 to 45 ms of CPU, more than a small batch
costs otherwise. What stays for ever need not be looked at again.
"""

from __future__ import annotations

import gc
from itertools import count

_FREEZE_AFTER = (1, 2, 8, 64)
"""Tasks after which the heap is frozen: modules are loaded by the first ones."""

_tasks = count(1)


def task_done() -> None:
    """Exempt what is alive from later collections, after the first tasks of a process.

    Called in a worker, when everything of the task is released. What is frozen is still
    freed when its last reference goes; only cycles of it are not found any more, so
    garbage is collected first.
    """
    if next(_tasks) in _FREEZE_AFTER:
        gc.collect()
        gc.freeze()
