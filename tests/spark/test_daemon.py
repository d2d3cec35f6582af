"""The process that Spark forks its Python workers from."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

ASK = """
import sys
from kafka_tx.spark.versions import workers
workers.preload()
from zipimport import zipimporter
needed = {"pyarrow", "pyspark.worker", "kafka_tx.spark.source.batch"}
print(sorted(needed - {*sys.modules}))
print(sorted({"confluent_kafka", "pandas", "sqlalchemy"} & {*sys.modules}))
zips = [p for p, f in sys.path_importer_cache.items() if isinstance(f, zipimporter)]
print(zips)
before = {*sys.modules}
import kafka_tx.spark.source.data_source
print(sorted({*sys.modules} - before))
"""


ZIPPED = Path(pyspark.__file__).parent / "python" / "lib"


def test_it_loads_what_a_worker_needs_to_read_and_nothing_heavy_else():
    as_spark_starts_it = os.pathsep.join(map(str, sorted(ZIPPED.glob("*.zip"))))
    modules = subprocess.check_output(
        [sys.executable, "-c", ASK],
        text=True,
        env={**os.environ, "PYTHONPATH": as_spark_starts_it},
    )

    assert modules.split() == ["[]"] * 4
