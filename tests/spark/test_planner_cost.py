"""What a process that plans holds beside Spark's own runner."""

import json
import os
import subprocess
import sys

import pytest

from kafka_tx.testing.mock import MockCluster

PLANS = """
import json, os, sys

def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(x.split()[1]) for x in lines if x.startswith("Private_")) / 1024

import pyspark.sql.streaming.python_streaming_source_runner
runner = private()
from kafka_tx.spark.source.data_source import KafkaTxDataSource

source = KafkaTxDataSource(json.loads(sys.argv[1]))
reader = source.streamReader(source.schema())
reader = getattr(reader, "reader", reader)
from kafka_tx.spark.versions.streams import ReadAllAvailable
start = reader.initialOffset()
end = reader.latestOffset(start, ReadAllAvailable())
assert reader.partitions(start, end)
unused = (
    "prometheus_client http.server pyarrow.compute sqlalchemy.dialects.mysql"
    " kafka_tx.schemas.avro kafka_tx.options.sink"
)
loaded = [name for name in unused.split() if name in sys.modules]
print(json.dumps([private() - runner, loaded, len(os.listdir("/proc/self/task"))]))
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def cluster():
    with MockCluster() as made:
        made.create_topic("t", 4)
        made.produce("t", b"v")
        made.flush()
        yield made


@pytest.mark.parametrize(("is_durable", "megabytes"), [(False, 20), (True, 40)])
def test_a_planner_loads_only_what_it_uses(cluster, tmp_path, is_durable, megabytes):
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "t",
        "startingoffsets": "earliest",
    }
    if is_durable:
        options |= {"tx.id": "job", "tx.store": f"sqlite:///{tmp_path}/store.db"}
    result = subprocess.run(
        [sys.executable, "-c", PLANS, json.dumps(options)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy's, one a core
    )

    above, loaded, threads = json.loads(result.stdout.splitlines()[-1])
    assert loaded == []
    assert above < megabytes
    assert threads <= 8
