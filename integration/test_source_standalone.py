"""The source and sink on a standalone cluster whose Python lacks the package."""

from __future__ import annotations

import json

JOB = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import kafka_tx

servers, topic, copy, work = sys.argv[1:]
spark = SparkSession.builder.appName("counting").getOrCreate()
spark.dataSource.register(kafka_tx.KafkaTxDataSource)
attached = kafka_tx.attach(spark, metrics_port=None)
found = {}


def copy_to_sink(spark, servers, topic, work):
    # a stream of Spark's own, which no source of ours has prepared
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", "5")
        .load()
        .selectExpr("CAST(value AS string) AS value")
        .writeStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", f"{work}/sink")
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    written = (
        spark.read.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .load()
    )
    return written.count()


def take(df, attempt):
    rows = df.select("partition", "offset").collect()
    found.setdefault(attempt.txid, []).extend([r.partition, r.offset] for r in rows)


def reader_of_executor(_):
    from kafka_tx import native

    return native.__file__, str(native.status())


def lacks_it(_):
    import subprocess, sys

    asked = "import importlib.util as i; print(i.find_spec('kafka_tx') is None)"
    command = [sys.executable, "-c", asked]
    return subprocess.check_output(command, env={}, cwd="/", text=True).strip()


lacking = spark.sparkContext.parallelize([1, 2], 2).map(lacks_it).collect()
readers = spark.sparkContext.parallelize([1, 2], 2).map(reader_of_executor).collect()
Path(work, "readers.json").write_text(json.dumps(readers))
written = copy_to_sink(spark, servers, copy, work)
Path(work, "seen.json").write_text(json.dumps({"written": written, "lacking": lacking}))

query = (
    spark.readStream.format("kafka_tx")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "100")
    .option("tx.id", "standalone")
    .option("tx.store", f"sqlite:///{work}/state.db")
    .load()
    .writeStream.foreachBatch(kafka_tx.for_each_transaction(take))
    .option("checkpointLocation", f"{work}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
Path(work, "found.json").write_text(json.dumps(found))
spark.stop()
"""


def test_a_streaming_job_runs_on_two_executors(
    spark_standalone, kafka, topic, produce, tmp_path
):
    name, copy = topic(4), topic(1)
    places = produce(name, [f"v{n}" for n in range(300)])
    script = tmp_path / "job.py"
    script.write_text(JOB)

    spark_standalone.run_driver(
        *(script, kafka.bootstrap_servers, name, copy, str(tmp_path)), timeout_s=240
    )

    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen == {"written": 5, "lacking": ["True", "True"]}
    batches = json.loads((tmp_path / "found.json").read_text())
    assert sorted(map(int, batches)) == list(range(1, len(batches) + 1))
    assert len(batches) >= 3
    found = sorted(tuple(place) for rows in batches.values() for place in rows)
    assert found == sorted(places)
    for place, status in json.loads((tmp_path / "readers.json").read_text()):
        assert ".zip/" in place
        assert status.startswith("native reader: "), status
