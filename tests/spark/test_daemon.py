"""The process that Spark forks its Python workers from."""

import subprocess
import sys

ASK = """
import sys
from kafka_tx.spark import daemon
daemon.load()
needed = {"pyarrow", "pyspark.worker", "kafka_tx.spark.source.batch"}
print(sorted(needed - {*sys.modules}))
print(sorted({"confluent_kafka", "pandas", "sqlalchemy"} & {*sys.modules}))
"""


def test_it_loads_what_a_worker_needs_to_read_and_nothing_heavy_else():
    told = subprocess.check_output([sys.executable, "-c", ASK], text=True)

    assert told.split() == ["[]", "[]"]
