"""The command around the demo: brokers, folder, screen, result."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kafka_tx.cli.demo import CRASHES, Demo
from kafka_tx.cli.demo_screen import Scene, screen_for
from kafka_tx.cli.java import find_java
from kafka_tx.cli.word_count import Comparison
from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.feed import Feed
from kafka_tx.kafka.mock import MockCluster

DEFAULT_RECORDS = 200_000
FEWEST_RECORDS = 200
MOST_EMBEDDED = 2_000_000
_PER_PARTITION = 50_000  # the embedded broker forgets beyond 5 MB or 100,000 records
_FEWEST_PARTITIONS = 4


def demo(
    records: Annotated[
        int, typer.Option(min=FEWEST_RECORDS, help="How many records to produce.")
    ] = DEFAULT_RECORDS,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="A real cluster instead of the embedded broker."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Count words exactly once while the job is killed three times in mid-batch.

    An embedded broker, a producer, a Spark job with durable transactions. The job is
    killed with SIGKILL while its tasks read, before the sink's commit, and after it;
    the last time its checkpoint is deleted too. Exit code 1 if the count is wrong.
    """
    find_java()
    if bootstrap_servers is None and records > MOST_EMBEDDED:
        raise typer.BadParameter(
            f"the embedded broker holds {MOST_EMBEDDED:,} records at most; give a"
            " cluster with --bootstrap-servers",
            param_hint="--records",
        )
    console = Console(stderr=as_json)
    work = Path(tempfile.mkdtemp(prefix="kafka-tx-"))
    try:
        scene, result = _play(console, bootstrap_servers, records, work)
    except KafkaTxError as error:
        error.message += f"\nEverything of this run is kept in {work}"
        raise
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    seconds = scene.seconds
    _report(console, result, len(scene.crashes), seconds, as_json=as_json)
    shutil.rmtree(work, ignore_errors=True)
    if not result.is_exact or result.produced != records:
        raise typer.Exit(1)


def _play(
    console: Console, bootstrap_servers: str | None, records: int, work: Path
) -> tuple[Scene, Comparison]:
    partitions = max(_FEWEST_PARTITIONS, -(-records // _PER_PARTITION))
    with _topic(bootstrap_servers, partitions) as (kafka, feed, broker):
        screen = screen_for(console)
        scene = Scene(broker=broker, records=records)
        with screen:
            result = Demo(kafka, feed, records, work, scene, screen).run()
            scene.phase = "done"
            screen.show(scene)
    return scene, result


@contextmanager
def _topic(
    bootstrap_servers: str | None, partitions: int
) -> Iterator[tuple[dict[str, str], Feed, str]]:
    """A new topic; on a real cluster it is deleted in the end."""
    name = f"kafka-tx-demo-{uuid.uuid4().hex[:8]}"
    if bootstrap_servers is None:
        with MockCluster() as cluster:
            cluster.create_topic(name, partitions)
            kafka = {"bootstrap.servers": cluster.bootstrap_servers}
            where = f"embedded, topic of {partitions} partitions"
            yield kafka, Feed(kafka, name, partitions), where
        return
    kafka = {"bootstrap.servers": bootstrap_servers}
    feed = Feed(kafka, name, partitions)
    feed.create_topic()
    try:
        yield kafka, feed, f"{bootstrap_servers}, topic {name}"
    finally:
        feed.delete_topic()


def _report(
    console: Console,
    result: Comparison,
    crashes: int,
    seconds: float,
    *,
    as_json: bool,
) -> None:
    rate = result.counted / seconds
    if as_json:
        told = {
            "produced": result.produced,
            "counted": result.counted,
            "lost": result.lost,
            "duplicated": result.duplicated,
            "crashes": crashes,
            "seconds": round(seconds, 1),
            "records_per_second": round(rate),
        }
        typer.echo(json.dumps(told))
        return
    console.print(
        f"{seconds:.1f} s, {rate:,.0f} records/s with {len(CRASHES) + 1} starts of"
        " Spark; counts compared word by word",
        highlight=False,
    )
    style = "bold green" if result.is_exact else "bold red"
    console.print(
        f"produced {result.produced} · counted {result.counted} · lost {result.lost}"
        f" · duplicated {result.duplicated} · crashes {crashes}",
        style=style,
        highlight=False,
        soft_wrap=True,
    )
