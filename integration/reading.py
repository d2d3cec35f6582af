"""Short ways to run the source in tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from integration.bounded import read_out


def reader(
    spark: SparkSession, servers: str, *, streaming: bool = True, **options: Any
) -> Any:
    """A DataFrameReader of ``kafka_tx``; ``tx__id`` is the option ``tx.id``."""
    made = (spark.readStream if streaming else spark.read).format("kafka_tx")
    made = made.option("kafka.bootstrap.servers", servers)
    if streaming:
        made = made.option("startingOffsets", "earliest")
    for name, value in options.items():
        made = made.option(name.replace("__", "."), value)
    return made


class Run:
    """One run of a streaming query over everything there is."""

    def __init__(self, spark: SparkSession, servers: str, **options: Any) -> None:
        self.values: list[bytes] = []
        if "tx__id" in options:  # a list remembers no batch ids
            options = {"tx__sinkBatchIds": "ignored", **options}
        self._writer = (
            reader(spark, servers, **options)
            .load()
            .writeStream.foreachBatch(self._take)
        )

    def _take(self, df: DataFrame, _: int) -> None:
        self.values += [bytes(row.value) for row in df.select("value").collect()]

    def start(self, checkpoint: Path) -> Any:
        """Go on reading until it is stopped."""
        writer = self._writer.option("checkpointLocation", str(checkpoint))
        return writer.trigger(processingTime="200 milliseconds").start()

    def until_done(
        self, checkpoint: Path, done: Callable[[], bool] = lambda: True
    ) -> list[bytes]:
        """Read all that is there now; raises what the query raised."""
        writer = self._writer.option("checkpointLocation", str(checkpoint))
        read_out(writer, done=done)
        return self.values
