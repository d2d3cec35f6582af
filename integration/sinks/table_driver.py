"""A driver of its own that writes to tables, as the files of a directory tell it.

Each job waits, while its rows are computed, until it may go on: it has looked into the
table by then, and has not committed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from integration.cluster.spark_local import (
    delta_session,
    iceberg_session,
    local_session,
)
from kafka_tx.model import TransactionAttempt

_POLL_EVERY_S = 0.02


def lake(spark: SparkSession, given: dict[str, Any]) -> SparkSession:
    if given["format"] == "delta":
        return delta_session(spark)
    return iceberg_session(
        spark, given["warehouse"], kind=given["kind"], uri=given["uri"]
    )


def paused(df: DataFrame, job: Path) -> DataFrame:
    """The rows, once they may be had."""
    reached, go = job.with_suffix(".reached"), job.with_suffix(".go")

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reached.touch()
        while not go.exists():
            time.sleep(_POLL_EVERY_S)
        yield from batches

    return df.mapInArrow(wait, df.schema)


def merge(df: DataFrame, target: str) -> None:
    df.createOrReplaceTempView("batch")
    df.sparkSession.sql(
        f"MERGE INTO {target} t USING batch b ON t.key = b.key"
        " WHEN MATCHED THEN UPDATE SET n = t.n + b.n"
        " WHEN NOT MATCHED THEN INSERT *"
    )


def carry_out(spark: SparkSession, job: Path) -> str:
    given = json.loads(job.read_text())
    tried = TransactionAttempt.parse(given["attempt"])
    attempt = TransactionAttempt(tried.txid, tried.attempt_id, **given["named"])
    session = lake(spark, given)
    columns = "key string, n bigint" if given["merges"] else "key string"
    row = (lambda key: (key, 1)) if given["merges"] else (lambda key: (key,))
    rows = session.createDataFrame([row(key) for key in given["rows"]], columns)
    df, table = paused(rows.coalesce(1), job), given["table"]
    try:
        if given["merges"]:
            return str(kafka_tx.write_to_table(df, attempt, table, merge))
        return str(kafka_tx.append_to_table(df, attempt, table))
    except kafka_tx.KafkaTxError as error:
        print(error, flush=True)
        return type(error).__name__


def main() -> None:
    work = Path(sys.argv[1])
    spark = local_session(work, cores=1)
    done: set[Path] = set()
    while True:
        for job in sorted(set(work.glob("*.json")) - done):
            done.add(job)
            told = carry_out(spark, job)
            job.with_suffix(".told").write_text(told)
            job.with_suffix(".told").rename(job.with_suffix(".result"))
        time.sleep(_POLL_EVERY_S)


if __name__ == "__main__":
    main()
