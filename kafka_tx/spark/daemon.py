"""Starts Spark's Python workers with what they need already in memory.

``spark.python.daemon.module=kafka_tx.spark.daemon``. Spark forks every Python worker
from a process of this module instead of ``pyspark.daemon``. Spark ends a worker whose
rows are not all wanted, as after ``limit``, ``first`` and ``isEmpty``. Without this
module the next worker imports everything again. Install the package where workers run:
files from ``--py-files`` come too late for this process.
"""

from kafka_tx.spark.versions.workers import preload, run_daemon

if __name__ == "__main__":
    preload()
    run_daemon()
