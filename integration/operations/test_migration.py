"""From Spark's source to ours, to transactions, and back: keep the checkpoint."""

import re
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import DeadError
from integration.cluster.records import Record
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap


class Job:
    """One query: the same checkpoint, whatever reads and whatever writes."""

    def __init__(self, spark, kafka, topic, work):
        self.spark, self.topic, self.work = spark, topic, work
        self._options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        self.values = []
        url = f"sqlite:///{work}/maps.db"
        self.maps = [TransactionalMap(url, "once"), OpaqueMap(url, "opaque")]
        self.txids = []

    def run(self, source, function, **options):
        given = {name.replace("__", "."): value for name, value in options.items()}
        query = (
            self.spark.readStream.format(source)
            .options(**{**self._options, **given})
            .load()
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", f"{self.work}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def collect(self, source, *, dies=False, **options):
        """As before the change: a sink that knows no transactions."""

        def take(df, batch_id):
            if dies:
                raise DeadError
            self.values += [row.value for row in df.collect()]

        self.run(source, take, **options)

    def count(self, *, dies=False, **options):
        """After it: a sink that stores the txid."""

        def save(df, attempt):
            self.txids.append(attempt.txid)
            rows = df.selectExpr("string(value) AS key")
            for one in self.maps_for(options.get("tx__mode")):
                kafka_tx.update_map(rows, attempt, one, reducer="count")
            if dies:
                raise DeadError

        store = f"sqlite:///{self.work}/store.db"
        options = {"tx__id": "migrated", "tx__store": store, **options}
        self.run("kafka_tx", kafka_tx.for_each_transaction(save), **options)

    def maps_for(self, mode):
        """A map that never takes anything back is for batches that never differ."""
        return self.maps[1:] if mode == "opaque" else self.maps

    def close(self):
        for one in self.maps:
            one.close()


@pytest.fixture
def job(spark, kafka, topic, tmp_path):
    job = Job(spark, kafka, topic(2, name="migrated"), tmp_path)
    yield job
    job.close()


@pytest.mark.parametrize(
    ("before", "mode", "finished"),
    [
        ("kafka", "transactional", 0),
        pytest.param("kafka", "opaque", 1, marks=pytest.mark.all),
        pytest.param("kafka_tx", "opaque", 0, marks=pytest.mark.all),
        pytest.param("kafka_tx", "transactional", 1, marks=pytest.mark.all),
    ],
)
def test_a_checkpoint_goes_on_with_transactions(job, produce, before, finished, mode):
    """Its last batch is unfinished, and dies once more just after the sink."""
    for n in range(finished):
        produce(job.topic, [Record(f"old{n}")])
        job.collect(before)
    assert len(job.values) == finished
    produce(job.topic, [Record("logged")] * 3)
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.collect(before, dies=True)
    produce(job.topic, [Record("new")] * 2)
    options = {"tx__mode": mode}

    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.count(dies=True, **options)
    job.count(**options)
    produce(job.topic, [Record("newer")])
    job.count(**options)

    assert job.txids == [1, 1, 2, 3]
    expected = {"logged": 3, "new": 2, "newer": 1}
    for one in job.maps_for(mode):
        assert one.get(["old0", *expected]) == expected


@pytest.mark.all
def test_a_checkpoint_goes_to_and_fro_between_sparks_source_and_ours(job, produce):
    """Without tx.id. Each leaves a batch unfinished, and the other reads it."""
    written: list[str] = []
    for first, then in (("kafka_tx", "kafka"), ("kafka", "kafka_tx")) * 2:
        name = f"{first}{len(written)}"
        written += [name, f"{name}+"]
        produce(job.topic, [Record(name)])
        with pytest.raises(StreamingQueryException, match="DeadError"):
            job.collect(first, dies=True)
        produce(job.topic, [Record(f"{name}+")])
        job.collect(then)

    assert sorted(bytes(value).decode() for value in job.values) == sorted(written)


@pytest.mark.all
@pytest.mark.parametrize("way", ["begins", "finished"])
def test_a_first_batch_goes_back_to_spark_as_the_page_says(job, produce, way):
    """A query that began where the topic ended: at 0, as the topic was empty."""
    produce(job.topic, [Record("first")] * 3)
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.collect("kafka_tx", dies=True)
    produce(job.topic, [Record("then")])
    start = "latest"

    if way == "finished":
        job.collect("kafka_tx", startingOffsets="latest")
    else:
        assert not any(Path(job.work, "checkpoint/commits").iterdir())
        text = Path(job.work, "checkpoint/offsets/0").read_text().replace("\\", "")
        (start,) = re.findall(r'"begins": ({.*?}})', text)
    job.collect("kafka", startingOffsets=start)

    assert sorted(map(bytes, job.values)) == [*[b"first"] * 3, b"then"]


@pytest.mark.all
def test_a_finished_checkpoint_goes_on_with_transactions(job, produce):
    produce(job.topic, [Record("old")])
    job.collect("kafka")
    produce(job.topic, [Record("new")] * 2)

    job.count()

    assert job.txids == [1]
    assert job.maps[0].get(["old", "new"]) == {"new": 2}
