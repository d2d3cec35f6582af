"""What the guarantees table says of a driver's faults, cell by cell."""

from __future__ import annotations

import shutil
from functools import cache

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.cluster.topics import fresh_name
from integration.reading import reader
from kafka_tx import OpaqueMap, TransactionalMap
from tests.doc_pages import tables

TABLE = tables("guarantees.md", "fault")[0]
BATCH = 3
COUNTED = {
    "once": 2 * BATCH,
    "twice": 3 * BATCH,
    "refused; then the unfinished batch twice": 3 * BATCH,
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


class Blind:
    """A sink that ignores the txid."""

    def __init__(self, work):
        self.total = 0

    def write(self, df, attempt):
        self.total += df.count()


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


QUERIES: dict[str, dict[str, type[Blind]]] = {
    "": {"no `tx.id`": Blind},
    "transactional": {
        "`transactional`, sink stores the txid": Stored,
        "any mode, sink ignores the txid": Blind,
    },
    "opaque": {"`opaque`, sink stores txid and previous value": Opaque},
}
"""The sinks of one query, by its mode and by their columns."""


class Job:
    """Copies a topic in batches of three into sinks."""

    def __init__(self, spark, servers, topic, work, mode):
        options = {"subscribe": topic, "maxOffsetsPerTrigger": str(BATCH)}
        numbered = {"tx__id": "told", "tx__store": f"sqlite:///{work}/store.db"}
        if mode:
            options |= {**numbered, "tx__mode": mode}
        self._stream = reader(spark, servers, **options)
        self._handler = kafka_tx.for_each_transaction if mode else lambda write: write
        self._sinks = {column: kind(work) for column, kind in QUERIES[mode].items()}
        self.checkpoint = work / "checkpoint"

    def run(self, dies=""):
        """Read to the end; ``dies``: before or after the second batch is written."""
        seen = []

        def write(df, attempt):
            seen.append(attempt)
            if dies == "before" and len(seen) == 2:
                raise RuntimeError("killed")
            for sink in self._sinks.values():
                sink.write(df, attempt)
            if dies == "after" and len(seen) == 2:
                raise RuntimeError("killed")

        (
            self._stream.load()
            .writeStream.foreachBatch(self._handler(write))
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

    def totals(self):
        return {column: sink.total for column, sink in self._sinks.items()}


@pytest.fixture(scope="module")
def counted(spark, kafka, produce, tmp_path_factory):
    """What the sinks of a query count where it meets a fault, by their columns."""

    @cache
    def totals(fault, mode):
        name, work = fresh_name("guarantees"), tmp_path_factory.mktemp("guarantees")
        kafka.create_topic(name, 1)
        produce(name, ["v"] * (2 * BATCH))
        job = Job(spark, kafka.bootstrap_servers, name, work, mode)

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
        return job.totals()

    return totals


@pytest.mark.parametrize(
    ("mode", "column"),
    [(mode, column) for mode, columns in QUERIES.items() for column in columns],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_batch_is_counted_as_the_table_says(counted, fault, mode, column):
    assert counted(fault, mode)[column] == COUNTED[TABLE[fault][column]]
