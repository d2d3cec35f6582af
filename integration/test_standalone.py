"""A job runs on a standalone cluster's executors, with the package shipped to them."""

from __future__ import annotations

import json

import pytest

from integration.cluster.waiting import NotReadyError

JOB = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession


def where(_):
    import os, time
    import kafka_tx

    time.sleep(0.5)  # long enough for the other executor to take the other task
    yield {"directory": os.getcwd(), "package": kafka_tx.__file__}


spark = SparkSession.builder.appName("where").getOrCreate()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
while executors.size() < 3:  # the driver and two executors
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
found = spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect()
Path(sys.argv[1]).write_text(json.dumps(found))
spark.stop()
"""


def test_two_executors_run_the_package_from_the_shipped_zip(spark_standalone, tmp_path):
    script, result = tmp_path / "job.py", tmp_path / "found.json"
    script.write_text(JOB)

    spark_standalone.run_driver(script, str(result))

    tasks = json.loads(result.read_text())
    assert len({task["directory"] for task in tasks}) == 2
    assert all(".zip/kafka_tx/" in task["package"] for task in tasks)


def test_a_failing_driver_is_told_with_its_traceback(spark_standalone, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("raise ValueError('the reason')")

    with pytest.raises(NotReadyError, match="ValueError: the reason"):
        spark_standalone.run_driver(script)
