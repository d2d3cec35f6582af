"""Starts Spark's Python workers with what they need already in memory.

``spark.python.daemon.module=kafka_tx.spark.daemon``. Spark forks every Python worker
from a process of this module instead of ``pyspark.daemon``. A worker whose rows nobody
wants to the last, as after ``limit``, ``first`` and ``isEmpty``, is ended by Spark, and
another one is forked, which would import everything again. The package has to be
installed where workers run: shipped files come too late for this process.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark import daemon

_NEEDED = (
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.types",
    "pyspark.sql.worker.plan_data_source_read",
    "kafka_tx.spark.source.batch",
    "kafka_tx.native.reader",
)


def load() -> None:
    """Import what a worker that reads needs, and exempt it from collections.

    Nothing of it opens a connection. The threads of numpy and of Arrow's allocator are
    made for forks, and no others are started.
    """
    for name in _NEEDED:
        import_module(name)
    import_module("kafka_tx.native.library").load()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load()
    daemon.manager()
