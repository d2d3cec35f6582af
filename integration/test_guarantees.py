"""What the README's guarantees table says of a driver's faults, cell by cell."""

from __future__ import annotations

import shutil

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.reading import reader
from kafka_tx import OpaqueMap, TransactionalMap
from tests.readme_tables import tables

TABLE = tables("fault")[0]
BATCH = 3
COUNTED = {
    "once": 2 * BATCH,
    "twice": 3 * BATCH,
    "the unfinished batch twice": 3 * BATCH,
    "from `startingOffsets`": 4 * BATCH,
}
"""How many of two batches end up in the sink, the second one being hit."""

FAULTS = {
    "driver dies before the sink's commit": "before",
    "driver dies after the sink's commit, before Spark's commit log": "after",
    "driver dies after Spark's commit log": "",
    "checkpoint deleted": "after",
    "newest entry of the commit log lost": "",
}
"""Where the second batch ends with an error: Spark's log and the sink are then as a
driver leaves them that dies there (``test_crashes`` kills real ones)."""


class Plain:
    """A sink that ignores the txid."""

    def __init__(self, work):
        self.total = 0
        self.options = {}

    def handler(self, function):
        return function

    def write(self, df, attempt):
        self.total += df.count()


class Blind(Plain):
    def __init__(self, work):
        super().__init__(work)
        self.options = {"tx__id": "told", "tx__store": f"sqlite:///{work}/store.db"}

    def handler(self, function):
        return kafka_tx.for_each_transaction(function)


class Stored(Blind):
    """A sink that stores the txid with what it counts."""

    made = TransactionalMap

    def __init__(self, work):
        super().__init__(work)
        self._map = self.made(f"sqlite:///{work}/counts.db", "counts")

    def write(self, df, attempt):
        kafka_tx.update_map(df, attempt, self._map, key="topic", reducer="count")
        self.total = sum(self._map.to_arrow()["value"].to_pylist())


class Opaque(Stored):
    made = OpaqueMap

    def __init__(self, work):
        super().__init__(work)
        self.options |= {"tx__mode": "opaque"}


COLUMNS = {
    "no `tx.id`": Plain,
    "`transactional`, sink stores the txid": Stored,
    "`opaque`, sink stores txid and previous value": Opaque,
    "any mode, sink ignores the txid": Blind,
}


class Job:
    """Copies a topic in batches of three into a sink."""

    def __init__(self, spark, servers, topic, work, sink):
        options = {"subscribe": topic, "maxOffsetsPerTrigger": str(BATCH)}
        self._stream = reader(spark, servers, **options, **sink.options)
        self._sink, self.checkpoint = sink, work / "checkpoint"

    def run(self, dies=""):
        """Read to the end; ``dies``: before or after the second batch is written."""
        seen = []

        def write(df, attempt):
            seen.append(attempt)
            if dies == "before" and len(seen) == 2:
                raise RuntimeError("killed")
            self._sink.write(df, attempt)
            if dies == "after" and len(seen) == 2:
                raise RuntimeError("killed")

        (
            self._stream.load()
            .writeStream.foreachBatch(self._sink.handler(write))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    def forget_newest_commit(self):
        commits = self.checkpoint / "commits"
        newest = max(int(file.name) for file in commits.iterdir() if file.suffix == "")
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink()


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_batch_is_counted_as_the_table_says(
    spark, kafka, topic, produce, tmp_path, fault, column
):
    name = topic(1)
    produce(name, ["v"] * (2 * BATCH))
    sink = COLUMNS[column](tmp_path)
    job = Job(spark, kafka.bootstrap_servers, name, tmp_path, sink)

    if FAULTS[fault]:
        with pytest.raises(StreamingQueryException, match="killed"):
            job.run(dies=FAULTS[fault])
    else:
        job.run()
    if fault == "checkpoint deleted":
        shutil.rmtree(job.checkpoint)
    if fault == "newest entry of the commit log lost":
        job.forget_newest_commit()
    job.run()

    assert sink.total == COUNTED[TABLE[fault][column]]
