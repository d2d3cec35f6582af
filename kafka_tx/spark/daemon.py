"""Starts Spark's Python workers with what they need already in memory.

``spark.python.daemon.module=kafka_tx.spark.daemon``. Spark forks every Python worker
from a process of this module instead of ``pyspark.daemon``. A worker whose rows nobody
wants to the last, as after ``limit``, ``first`` and ``isEmpty``, is ended by Spark, and
another one is forked, which would import everything again. The package has to be
installed where workers run: shipped files come too late for this process.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from zipimport import zipimporter

from pyspark import daemon

_NEEDED = (
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.types",
    "pyspark.sql.worker.plan_data_source_read",
    "kafka_tx.spark.source.batch",
    "kafka_tx.spark.source.data_source",
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
    _forget_zip_files()
    gc.collect()
    gc.freeze()


def _forget_zip_files() -> None:
    """Let go of what is known of the zip files on the path, as of PySpark's own.

    A worker's first task makes Python read each of them again, once for each package in
    it: 200 to 300 ms. What is imported later finds its file again.
    """
    cache = sys.path_importer_cache
    for path in [p for p, found in cache.items() if isinstance(found, zipimporter)]:
        del cache[path]


if __name__ == "__main__":
    load()
    daemon.manager()
