"""What each kind of JVM does once, so that the classes it loads are archived.

``python -m integration.cluster.rehearsals`` makes the archives that are missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from integration.cluster.class_archives import MAKING, make
from integration.cluster.jars import JarsUnavailableError, jar_paths
from integration.cluster.java import JavaMissingError
from integration.cluster.processes import Processes
from integration.cluster.processes.java_server import archive_of
from integration.cluster.processes.kafka import SERVER as BROKER
from integration.cluster.processes.zookeeper import SERVER as ZOOKEEPER
from integration.cluster.records import Produce
from integration.cluster.running import running
from integration.cluster.spark_home import session_jars
from integration.cluster.spark_local import (
    ARCHIVE,
    SESSION_ARCHIVE,
    delta_session,
    local_session,
    more_jars,
    quick_start,
)
from integration.cluster.versions import DELTA, KAFKA_JARS, KAFKA_WITH_ZOOKEEPER_JARS
from integration.sinks.table_driver import merge
from kafka_tx import append_to_table, write_to_table
from kafka_tx.model import TransactionAttempt
from kafka_tx.testing.mock import MockCluster

TOPIC = "rehearsal"
TIMEOUT_S = 300
OLDER = KAFKA_WITH_ZOOKEEPER_JARS


def broker() -> None:
    """A broker takes a record and shuts down."""
    with running(Processes().kafka()) as cluster:
        cluster.create_topic(TOPIC, 1)
        Produce(cluster.bootstrap_servers)(TOPIC, ["a record"])
        cluster.shut_down(1)


def zookeeper() -> None:
    """A ZooKeeper starts and shuts down."""
    with running(Processes().zookeeper()) as server:
        server.restart()


def broker_on_zookeeper() -> None:
    """As ``broker``, registered in ZooKeeper."""
    servers = Processes()
    with (
        running(servers.zookeeper()) as zookeeper,
        running(servers.kafka_on_zookeeper(zookeeper, brokers=1)) as cluster,
    ):
        cluster.create_topic(TOPIC, 1)
        Produce(cluster.bootstrap_servers)(TOPIC, ["a record"])
        cluster.shut_down(1)


def spark() -> None:
    """A driver of its own does what most tests do, and ends.

    Its warnings and those of Spark's workers, which it ends, are shown if it fails.
    """
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work,
        tempfile.TemporaryFile() as output,  # a pipe may be held open by a worker
    ):
        try:
            subprocess.run(
                [sys.executable, "-m", "integration.cluster.rehearsals", work],
                check=True,
                timeout=TIMEOUT_S,
                stdout=output,
                stderr=output,
            )
        except subprocess.SubprocessError:
            output.seek(0)
            sys.stderr.write(output.read().decode(errors="replace"))
            raise


def batch_and_stream(work: Path) -> None:
    """Read a topic at once, and as a stream that counts; write it into tables."""
    has_tables = os.environ[MAKING] == SESSION_ARCHIVE
    session = local_session(work, java_options=None if has_tables else quick_start())
    with MockCluster() as cluster:
        cluster.create_topic(TOPIC, 2)
        for number in range(10):
            cluster.produce(TOPIC, value=str(number).encode())
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        kind = "kafka_tx"
        session.read.format(kind).options(**options).load().count()
        records = session.readStream.format(kind).options(**options).load()
        counts = records.groupBy("partition").count()
        query = (
            counts.writeStream.foreachBatch(lambda batch, _: batch.collect())
            .outputMode("update")
            .option("checkpointLocation", str(work / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    if has_tables and DELTA:
        into_a_table(delta_session(session))
    end_with_its_jvm(session)


def into_a_table(session: SparkSession) -> None:
    """Do with a table of Delta's what its tests do most."""
    name = f"{TOPIC}_counts"
    session.sql(f"CREATE TABLE {name} (key string, n bigint) USING delta")
    for txid in (1, 2):
        once = TransactionAttempt(txid, txid)
        rows = session.sql(f"SELECT 'a' AS key, {txid}L AS n")
        append_to_table(rows.coalesce(1), once, name)
        write_to_table(rows, once, name, merge, sink="merged")
    session.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.checkpointInterval'='1')"
    )
    session.sql(f"DELETE FROM {name} WHERE key = 'b'")
    session.sql(f"OPTIMIZE {name}")
    session.sql(f"DESCRIBE HISTORY {name}").collect()
    session.sql(f"DESCRIBE DETAIL {name}").collect()
    session.sql(f"RESTORE TABLE {name} TO VERSION AS OF 1")
    session.table(name).collect()
    session.sql(f"DROP TABLE {name}")


def end_with_its_jvm(session: SparkSession) -> None:
    """Stop a session, and wait until its JVM has written what it has learned."""
    gateway = session.sparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(TIMEOUT_S)


def main() -> None:
    """Make what is missing, two at a time; with a folder, be the driver of one."""
    if len(sys.argv) > 1:
        batch_and_stream(Path(sys.argv[1]))
        return
    longest_first = (
        (SESSION_ARCHIVE, _jars_of_all_sessions, spark),
        (ARCHIVE, session_jars, spark),
        (archive_of(OLDER, BROKER), partial(jar_paths, OLDER), broker_on_zookeeper),
        (archive_of(KAFKA_JARS, BROKER), partial(jar_paths, KAFKA_JARS), broker),
        (archive_of(OLDER, ZOOKEEPER), partial(jar_paths, OLDER), zookeeper),
    )
    with ProcessPoolExecutor(max_workers=2) as two:
        try:
            for made in [two.submit(timed, *one) for one in longest_first]:
                made.result()
        except (JavaMissingError, JarsUnavailableError):
            raise SystemExit("No archives of classes without the jars.") from None


def _jars_of_all_sessions() -> list[Path]:
    return [*session_jars(), *more_jars()]


def timed(name: str, jars: Callable[[], list[Path]], work: Callable[[], None]) -> None:
    """Make one archive in this process, which alone is told what is being made.

    Jars that are missing are fetched first; what another process fetches is awaited.
    """
    began = time.monotonic()
    make(name, jars(), work)
    print(f"classes of {name} ({time.monotonic() - began:.1f} s)", file=sys.stderr)


if __name__ == "__main__":
    main()
