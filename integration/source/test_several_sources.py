"""A query with several sources whose checkpoint is lost after the sink has a batch."""

import shutil
from collections import Counter
from itertools import product

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import DeadError, read_out
from integration.sizes import in_all
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap


class TwoSources:
    """Counts records by value, from a topic ``a`` and from others, into one map."""

    def __init__(self, spark, kafka, work, mode, numbers):
        self._spark, self._kafka, self._work, self._mode = spark, kafka, work, mode
        self._numbers = numbers
        self.store = "store"
        self.more = {}
        self.map = self._map("counts")
        self.dies = False
        self.txids = []

    def _map(self, name):
        kind = OpaqueMap if self._mode == "opaque" else TransactionalMap
        return kind(f"sqlite:///{self._work}/map.db", name)

    def source(self, topic, tx_id=None):
        options = {
            "kafka.bootstrap.servers": self._kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        if tx_id is not None:
            options["tx.id"] = tx_id
            options["tx.mode"] = self._mode
            options["tx.store"] = f"sqlite:///{self._work}/{self.store}.db"
            options |= self.more
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

    def both(self, a, b, suffix="", **more):
        """The union of both topics, with more options of this run."""
        self.more = {name.replace("__", "."): value for name, value in more.items()}
        return self.source(a, f"a{suffix}").union(self.source(b, f"b{suffix}"))

    def refused(self, df, checkpoint):
        with pytest.raises(StreamingQueryException, match="CHECKPOINT_DISAG") as error:
            self.run(df, checkpoint)
        return str(error.value)

    def begins_anew(self):
        """Other ids and another, empty sink."""
        self.map.close()
        self.map, self._numbers = self._map("anew"), f"{self._numbers}2"

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
    [("opaque", "b"), *in_all(*product(["transactional"], "ab"), ("opaque", "a"))],
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

    with pytest.raises(StreamingQueryException, match="CHECKPOINT_DISAGREES") as error:
        two.run(df, "two")
    assert f"'FileStreamSource[file:{files}]'" in str(error.value)
    assert f"'topic {plain}'" in str(error.value)
    assert "With a new checkpoint" in str(error.value)
    two.run(df, "one")
    assert two.counted() == once(a=5, p=6, f=1)
    produce(a, some("a", 5, 7))
    two.run(df, "three")

    again = Counter(once(a=7, p=6, f=1)) + Counter(once(p=6, f=1))
    assert two.counted() == again


@pytest.mark.all
@pytest.mark.parametrize("two", [("opaque", "a")], indirect=True)
def test_an_older_checkpoint_is_left_by_both_sources(two, topic, produce, tmp_path):
    """A batch of one source is in the sink; ``store`` would decide for that one."""
    a, b = topic(1), topic(1)
    produce(b, some("b", 1))
    two.run(two.both(a, b), "one")
    shutil.copytree(tmp_path / "one", tmp_path / "older")
    produce(b, some("b", 1, 2))
    two.run(two.both(a, b), "one")
    produce(b, some("b", 2, 5))
    two.dies_after_the_sink(two.both(a, b), "one")

    refusal = two.refused(two.both(a, b, tx__onDisagreement="store"), "older")
    assert "tx.onDisagreement decides nothing" in refusal
    assert (
        "To continue where the store is, start with a new checkpointLocation" in refusal
    )
    two.run(two.both(a, b), "new")

    assert two.counted() == once(b=5)


@pytest.mark.all
@pytest.mark.parametrize("two", [("opaque", "a")], indirect=True)
def test_a_lost_store_is_not_replaced_by_the_checkpoint_of_one_source(
    two, topic, produce
):
    """The last batch held records of the source alone that does not number."""
    a, b = topic(1), topic(1)
    for partition, name in ((a, "a"), (b, "b")):
        produce(partition, some(name, 3))
        two.run(two.both(a, b), "one")
    two.store = "another"
    produce(a, some("a", 3, 5))

    assert "begin anew: give each source another tx.id" in two.refused(
        two.both(a, b), "one"
    )
    decided = two.both(a, b, tx__onDisagreement="checkpoint")
    assert "tx.onDisagreement decides nothing" in two.refused(decided, "one")
    assert "begin anew: give each source" in two.refused(two.both(a, b), "one")
    assert two.counted() == once(a=3, b=3)
    two.begins_anew()
    two.run(two.both(a, b, suffix="2"), "two")

    assert two.counted() == once(a=5, b=3)
