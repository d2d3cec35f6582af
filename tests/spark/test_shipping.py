"""What Spark hands on is rebuilt in a process that does not have the package."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from pyspark.cloudpickle import dumps, loads

from kafka_tx.spark.source.data_source import KafkaTxDataSource

OPTIONS = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
ROOT = Path(__file__).parents[2]

PACK = """
import sys
from pyspark.cloudpickle import dumps
from kafka_tx.spark.source.data_source import KafkaTxDataSource
sys.stdout.buffer.write(dumps(KafkaTxDataSource({options})))
"""
UNPACK = """
import sys
from importlib.util import find_spec
assert find_spec("kafka_tx") is None
import pickle
made = pickle.load(sys.stdin.buffer)
import kafka_tx
print(type(made).__name__, sorted(made.options), kafka_tx.__file__)
"""


def test_it_is_the_same_where_the_package_is_installed():
    made = loads(dumps(KafkaTxDataSource(OPTIONS)))

    assert type(made) is KafkaTxDataSource
    assert made.options == OPTIONS


def test_it_finds_the_package_in_the_zip_it_came_from(tmp_path):
    shipped = tmp_path / "kafka_tx.zip"
    with zipfile.ZipFile(shipped, "w") as archive:
        for file in (ROOT / "kafka_tx").rglob("*.py"):
            archive.write(file, file.relative_to(ROOT))

    def run(code, path, given=b""):
        # -S: no .pth files, so that an editable installation stays unseen
        done = subprocess.run(
            [sys.executable, "-S", "-c", code],
            env={"PYTHONPATH": path},
            cwd=tmp_path,
            input=given,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    packages = sysconfig.get_path("purelib")
    packed = run(PACK.format(options=OPTIONS), f"{shipped}:{packages}")
    told = run(UNPACK, packages, packed).decode()

    assert told.split()[0] == "KafkaTxDataSource"
    assert str(shipped) in told
