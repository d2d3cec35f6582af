"""Jobs on the executors of a standalone cluster, with the package shipped to them.

Its Python lacks the package. In ``make test-all`` one driver runs three jobs, one after
the other; else only the one whose workers are killed, with the executor in the driver.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

import kafka_tx
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import NotReadyError
from integration.sizes import EVERYTHING
from integration.topologies import tally, topology_job
from integration.topologies.tally import PARTITIONS
from integration.topologies.topology_job import kept, recount

pytestmark = pytest.mark.timeout(1200)  # the first test has the jobs of all

WHERE = """
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


@pytest.mark.all
def test_two_executors_run_the_package_from_the_shipped_zip(spark_standalone, tmp_path):
    script, result = tmp_path / "job.py", tmp_path / "found.json"
    script.write_text(WHERE)

    spark_standalone.run_driver(script, str(result))

    tasks = json.loads(result.read_text())
    assert len({task["directory"] for task in tasks}) == 2
    assert all(".zip/kafka_tx/" in task["package"] for task in tasks)


@pytest.mark.all
def test_a_failing_driver_is_told_with_its_traceback(spark_standalone, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("raise ValueError('the reason')")

    with pytest.raises(NotReadyError, match="ValueError: the reason"):
        spark_standalone.run_driver(script)


# --- jobs ---

DRIVER = """
import json, runpy, sys
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession


def run_to_its_end(writer):
    while True:
        try:
            return writer.start().awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise


stop, SparkSession.stop = SparkSession.stop, lambda session: None
given = {"run_to_its_end": run_to_its_end}
for script, *words in json.loads(sys.argv[1]):
    sys.argv = [script, *words]
    runpy.run_path(script, given, run_name="__main__")
stop(SparkSession.builder.getOrCreate())
"""
"""Runs scripts as one program each, but for the session, which they share.

Spark gives a planner ten seconds to start, also on a busy machine: one that came late
is started again.
"""


COUNTING = """
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

writer = (
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
)
run_to_its_end(writer)
Path(work, "found.json").write_text(json.dumps(found))
spark.stop()
"""


KILLED = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
import kafka_tx

servers, topic, work = sys.argv[1:]
spark = SparkSession.builder.appName("killed").getOrCreate()
spark.dataSource.register(kafka_tx.KafkaTxDataSource)


def killed_once(name):
    def rows(batches):
        for batch in batches:
            yield batch
            try:
                (Path(work) / f"killed-{name}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    return rows


def run(name, options, handler, keep=None):
    def write(df, attempt):
        rows = df.select("value").mapInArrow(killed_once(name), "value binary")
        if keep is not None:  # the worker dies in the job of update_map
            keep(rows.selectExpr("string(value) AS key"), attempt)
        with Path(work, name).open("a") as file:
            file.write("v" * rows.count())

    stream = spark.readStream.format("kafka_tx").options(**options)
    run_to_its_end(
        stream.option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(handler(write))
        .option("checkpointLocation", f"{work}/checkpoint-{name}")
        .trigger(availableNow=True)
    )


def counts_into(state):
    def keep(df, attempt):
        kafka_tx.update_map(df, attempt, state, reducer="count")

    return keep


run("plain", {}, lambda write: write)
maps = {"transactional": kafka_tx.TransactionalMap, "opaque": kafka_tx.OpaqueMap}
for mode, kind in maps.items():
    told = {"tx.id": mode, "tx.mode": mode, "tx.store": f"sqlite:///{work}/store.db"}
    keep = counts_into(kind(f"sqlite:///{work}/map.db", mode))
    run(mode, told, kafka_tx.for_each_transaction, keep)
spark.stop()
"""


@dataclass(frozen=True)
class Ran:
    """What the jobs were given, and where they left what; each has a directory."""

    work: Path
    places: list[tuple[int, int]]
    ends: dict[int, int]

    def of(self, job: str) -> Path:
        return self.work / job


@pytest.fixture(scope="module")
def ran(spark_standalone, kafka, produce, tmp_path_factory):
    work = tmp_path_factory.mktemp("jobs")

    def topic(partitions):
        name = fresh_name("topic")
        kafka.create_topic(name, partitions)
        return name

    counted, copy, killed, tallied = topic(4), topic(1), topic(2), topic(PARTITIONS)
    places = produce(counted, [f"v{n}" for n in range(300)])
    produce(killed, ["v"] * 20)
    ends = tally.even(produce, tallied, 600)
    for name, text in {"counting": COUNTING, "killed": KILLED}.items():
        (work / f"{name}.py").write_text(text)
        (work / name).mkdir()
    (work / "topology").mkdir()
    (work / "driver.py").write_text(DRIVER)
    servers = kafka.bootstrap_servers
    commands: list[tuple[object, ...]] = [
        (work / "killed.py", servers, killed, work / "killed")
    ]
    if EVERYTHING:
        commands += [
            (work / "counting.py", servers, counted, copy, work / "counting"),
            (
                *(topology_job.__file__, "--work", work / "topology"),
                *("--servers", servers, "--topic", tallied, "--mode", "transactional"),
                *("--store", f"sqlite:///{work}/topology/state.db"),
            ),
        ]
    words = json.dumps([[str(word) for word in words] for words in commands])
    spark_standalone.run_driver(work / "driver.py", words, timeout_s=900)
    return Ran(work, places, ends)


@pytest.mark.all
def test_a_streaming_job_runs_on_two_executors(ran):
    work = ran.of("counting")
    seen = json.loads((work / "seen.json").read_text())
    assert seen == {"written": 5, "lacking": ["True", "True"]}
    batches = json.loads((work / "found.json").read_text())
    assert sorted(map(int, batches)) == list(range(1, len(batches) + 1))
    assert len(batches) >= 3
    found = sorted(tuple(place) for rows in batches.values() for place in rows)
    assert found == sorted(ran.places)
    for place, status in json.loads((work / "readers.json").read_text()):
        assert ".zip/" in place
        assert status.startswith("native reader: "), status


def test_a_worker_that_dies_takes_nothing_with_it(ran):
    work = ran.of("killed")
    for run in ("plain", "transactional", "opaque"):
        assert (work / f"killed-{run}").exists()
        assert (work / run).read_text() == "v" * 20
    for kind in (kafka_tx.TransactionalMap, kafka_tx.OpaqueMap):
        mode = kind.kind.partition(" ")[0]
        with closing(kind(f"sqlite:///{work}/map.db", mode)) as state:
            assert state.get(["v"]) == {"v": 20}


@pytest.mark.all
def test_a_topology_runs_on_the_executors_of_a_standalone_cluster(ran):
    work = ran.of("topology")
    assert (work / "finished").exists()
    assert kept(work / "sink.db") == recount(ran.ends)
