"""A query with several sources whose checkpoint is lost after the sink has a batch."""

from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import read_out
from integration.test_numbering import DeadError
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap


class TwoSources:
    """Counts records by value, from a topic ``a`` and from others, into one map."""

    def __init__(self, spark, kafka, work, mode, numbers):
        self._spark, self._kafka, self._work, self._mode = spark, kafka, work, mode
        self._numbers = numbers
        kind = OpaqueMap if mode == "opaque" else TransactionalMap
        self.map = kind(f"sqlite:///{work}/map.db", "counts")
        self.dies = False
        self.txids = []

    def source(self, topic, tx_id=None):
        options = {
            "kafka.bootstrap.servers": self._kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        if tx_id is not None:
            options["tx.id"] = tx_id
            options["tx.mode"] = self._mode
            options["tx.store"] = f"sqlite:///{self._work}/store.db"
        read = self._spark.readStream.format("kafka_tx").options(**options).load()
        return read.selectExpr("string(value) AS key")

    def run(self, df, checkpoint):
        def count(df, attempt):
            kafka_tx.update_map(df, attempt, self.map, reducer="count")
            self.txids.append(attempt.txid)
            if self.dies:
                raise DeadError

        function = kafka_tx.for_each_transaction(count, self._numbers)
        writer = df.writeStream.foreachBatch(function)
        read_out(writer.option("checkpointLocation", str(self._work / checkpoint)))

    def dies_after_the_sink(self, df, checkpoint):
        self.dies = True
        with pytest.raises(StreamingQueryException, match="DeadError"):
            self.run(df, checkpoint)
        self.dies = False

    def counted(self):
        rows = self.map.to_arrow().to_pylist()
        return {row["key"]: row["value"] for row in rows}


@pytest.fixture
def two(spark, kafka, tmp_path, request):
    made = TwoSources(spark, kafka, tmp_path, *request.param)
    yield made
    made.map.close()


def once(**counts):
    return {f"{name}{n}": 1 for name, count in counts.items() for n in range(count)}


def some(name, *numbers):
    return [f"{name}{n}" for n in range(*numbers)]


@pytest.mark.parametrize(
    "two",
    [
        ("transactional", "a"),
        ("transactional", "b"),
        pytest.param(("opaque", "a"), marks=pytest.mark.all),
        ("opaque", "b"),
    ],
    indirect=True,
)
def test_a_new_checkpoint_counts_records_of_both_sources_once(two, topic, produce):
    """The sink has a batch that only one of them had records for, then one of both."""
    a, b = topic(1), topic(1)
    df = two.source(a, "a").union(two.source(b, "b"))
    produce(a, some("a", 5))
    produce(b, some("b", 3))
    two.run(df, "one")
    produce(a, some("a", 5, 9))
    two.dies_after_the_sink(df, "one")
    produce(b, some("b", 3, 9))

    two.run(df, "two")
    assert two.counted() == once(a=9, b=9)
    produce(a, some("a", 9, 11))
    produce(b, some("b", 9, 11))
    two.dies_after_the_sink(df, "two")
    produce(a, some("a", 11, 13))
    two.run(df, "three")

    assert two.counted() == once(a=13, b=11)
    assert two.txids[:6] == [1, 2, 2, 3, 4, 4]  # opaque, the last one takes the rest


@pytest.mark.parametrize("two", [("transactional", "a")], indirect=True)
def test_beside_a_source_without_tx_id_a_new_checkpoint_waits_for_the_unfinished_batch(
    two, topic, produce, tmp_path
):
    """It is refused by name; the former one finishes, and the text says what then."""
    a, plain, files = topic(1), topic(1), tmp_path / "files"
    files.mkdir()
    text = two._spark.readStream.text(str(files)).toDF("key")
    df = two.source(a, "a").union(two.source(plain)).union(text)
    produce(a, some("a", 5))
    produce(plain, some("p", 3))
    two.dies_after_the_sink(df, "one")
    produce(plain, some("p", 3, 6))
    (files / "f.txt").write_text("f0")

    with pytest.raises(StreamingQueryException, match="CHECKPOINT_DISAGREES") as told:
        two.run(df, "two")
    assert f"'FileStreamSource[file:{files}]'" in str(told.value)
    assert f"'topic {plain}'" in str(told.value)
    assert "In a new checkpoint" in str(told.value)
    two.run(df, "one")
    assert two.counted() == once(a=5, p=6, f=1)
    produce(a, some("a", 5, 7))
    two.run(df, "three")

    again = Counter(once(a=7, p=6, f=1)) + Counter(once(p=6, f=1))
    assert two.counted() == again
