"""A topology that copies a topic with ``KafkaBolt``, and can be killed in between.

Points: ``sent``, records of a batch are with the broker and their transaction is open;
``written``, the transaction is committed and the batch is not.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import kafka_tx
from integration.cluster.spark_local import local_session

RECORDS, PER_BATCH = 200, 40


class Place:
    """Where the process that comes to the chosen point waits to be killed."""

    def __init__(self, work: str, chosen: str) -> None:
        self._work, self._chosen = Path(work), chosen

    def come_to(self, point: str) -> None:
        if point == self._chosen:
            (self._work / "reached").touch()
            time.sleep(600)


class Slowly:
    """A mapper: one batch's records are sent half, then it comes to ``sent``."""

    def __init__(self, place: Place) -> None:
        self._place, self._rows = place, 0

    def __call__(self, row: Any) -> kafka_tx.KafkaMessage:
        self._rows += 1
        if self._rows == PER_BATCH // 4:
            self._place.come_to("sent")
        return kafka_tx.KafkaMessage(value=row.value, key=row.key)


class Afterwards(kafka_tx.Committer, kafka_tx.BatchBolt):
    """Commits after the Kafka bolt."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def execute_arrow(self, batch: Any) -> None:
        """Nothing."""

    def finish_batch(self) -> None:
        self._place.come_to("written")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("work", "servers", "source", "target", "point"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    place = Place(given.work, given.point)
    servers = {"kafka.bootstrap.servers": given.servers}
    reading = {"subscribe": given.source, "maxOffsetsPerTrigger": str(PER_BATCH)}
    spout = kafka_tx.TransactionalKafkaSpout(
        servers | reading, scheme=kafka_tx.KeyValueScheme()
    )
    builder = kafka_tx.TransactionalTopologyBuilder("copy", "spout", spout, 2)
    writing = {
        "topic": given.target,
        "tx.id": given.target,
        "kafka.linger.ms": "0",
        "tx.markerTopic": f"{given.target}-markers",
    }
    bolt = kafka_tx.KafkaBolt(servers | writing, mapper=Slowly(place))
    builder.set_bolt("out", bolt, 2).shuffle_grouping("spout")
    builder.set_bolt("afterwards", Afterwards(place)).global_grouping("spout")
    spark = local_session(Path(given.work))
    store = {"tx.store": f"sqlite:///{given.work}/store.db"}
    handle = builder.build().start(spark, store)
    assert handle.process_all_available(100)
    handle.stop()
    spark.stop()
    (Path(given.work) / "finished").touch()


if __name__ == "__main__":
    main()
