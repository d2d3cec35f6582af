"""A query whose second batch hangs while a file says so; it serves the status page."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import kafka_tx
from integration.cluster.spark_local import local_session
from integration.reading import reader


def hanging_query(spark: Any, servers: str, work: Path, topic: str) -> Any:
    """Its writer; ``topic`` is its id, too."""

    def function(batch: object, batch_id: int) -> None:
        while batch_id == 1 and (work / "hangs").exists():
            time.sleep(0.1)

    source = reader(
        *(spark, servers),
        subscribe=topic,
        tx__id=topic,
        tx__store=f"sqlite:///{work}/query.db",
        maxOffsetsPerTrigger="10",
    )
    writer = source.load().writeStream.foreachBatch(function)
    return writer.option("checkpointLocation", f"{work}/c")


def main() -> None:
    work, servers, topic, port = Path(sys.argv[1]), *sys.argv[2:]
    spark = local_session(work)
    kafka_tx.attach(spark, metrics_port=int(port))
    hanging_query(spark, servers, work, topic).start().awaitTermination()


if __name__ == "__main__":
    main()
