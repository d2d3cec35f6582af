"""``kafka-tx lag``: how far behind the log, and how far from being overtaken by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kafka_tx import assembly
from kafka_tx.cli.positions import committed_of
from kafka_tx.cli.stores import (
    STORE,
    IdOption,
    JsonOption,
    StoreOption,
    opened,
    text_or_file,
)
from kafka_tx.config import SourceConfig
from kafka_tx.errors import ConfigError
from kafka_tx.model import (
    Assigned,
    Earliest,
    LogBounds,
    LogPosition,
    TopicPartition,
    Unavailable,
)
from kafka_tx.planning.log_bounds import Bounds, EpochEnds
from kafka_tx.planning.standing import Finding, stand

TIMEOUT_MS = 10_000
_FIGURES = ("committed", "log_start", "end", "lag", "headroom")

KafkaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help="One more kafka.* option, without the prefix. Repeat it for several"
        " options. NAME=@FILE reads the value from a file.",
    ),
]
KafkaConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        envvar="KAFKA_TX_KAFKA_CONFIG",
        help="A file with one kafka.* option a line, NAME=VALUE, as for"
        " --command-config of Kafka's tools. --kafka overrides it.",
    ),
]


def kafka_options(
    bootstrap_servers: str, more: list[str] | None, file: Path | None = None
) -> dict[str, str]:
    """The clients' options from the command line and from a file.

    Raises:
        ConfigError: One has no ``=``, or a file cannot be read.
    """
    options = {}
    for text in _lines(file) if file is not None else ():
        name, value = _pair("--kafka-config", text)
        options[name] = value
    options["bootstrap.servers"] = bootstrap_servers
    for text in more or []:
        name, value = _pair("--kafka", text)
        options[name] = text_or_file(value)
    return options


def _lines(file: Path) -> list[str]:
    found = [line.strip() for line in text_or_file(f"@{file}").splitlines()]
    return [line for line in found if line and not line.startswith(("#", "!"))]


def _pair(option: str, text: str) -> tuple[str, str]:
    """Name and value; the value may be a secret and is never shown."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ConfigError.illegal(
            option, name, f"NAME=VALUE, as in {option} security.protocol=SSL"
        )
    return name.strip().removeprefix("kafka."), value.strip()


def look(
    kafka: Mapping[str, str], positions: Mapping[TopicPartition, LogPosition]
) -> Bounds:
    """What the brokers hold of these partitions now, to judge the positions by.

    Raises:
        BrokerUnavailableError: No broker answered within 10 s.
        AuthenticationError: Credentials, permission or TLS.
        ConfigError: An option cannot be used.
    """
    config = SourceConfig(
        subscription=Assigned(tuple(positions)),
        kafka=kafka,
        start=Earliest(),
        poll_timeout_ms=TIMEOUT_MS,
        num_retries=1,
    )
    view = assembly.cluster_view(config)
    try:
        return EpochEnds(view).completed(view.bounds(positions), positions)
    finally:
        view.close()


def lag(
    id_: IdOption,
    bootstrap_servers: Annotated[str, typer.Option(help="host:port,host:port")],
    store: StoreOption = STORE,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show committed offset, log start, end, lag and headroom of each partition.

    Lag is end minus committed; headroom is committed minus log start: negative when
    retention took records that were not read. Offsets count, also where the log has
    holes. Of a topic that was deleted and made anew nothing was read: all of it is lag.
    Where brokers lost the end of a log, lag counts from where other records follow.
    """
    with opened(store, id_) as state:
        _, committed = committed_of(store, state)
    positions = dict(sorted(committed.positions().items()))
    bounds = look(kafka_options(bootstrap_servers, kafka, kafka_config), positions)
    rows = [_row(p, at, bounds.get(p)) for p, at in positions.items()]
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        _print(rows)


def _row(
    partition: TopicPartition,
    committed: LogPosition,
    found: LogBounds | Unavailable | None,
) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": committed.offset,
    }
    if not isinstance(found, LogBounds):
        return row | {"error": found.reason if found else "the brokers do not know it"}
    standing = stand(committed, found)
    if standing.finding is Finding.UNANSWERED:
        reason = f"no broker tells whether its topic still has id {committed.topic_id}"
        if found.topic_id is not None:
            reason += f", and its log still goes on from epoch {committed.leader_epoch}"
        return row | {"error": reason}
    if standing.finding is Finding.ANEW:
        row["note"] = (
            f"offset {committed.offset} is of a topic that was deleted; all there is"
            " now is lag"
        )
    if standing.finding is Finding.CUT:
        row["note"] = (
            f"the log that was read to {committed.offset} ends at {standing.reached}:"
            " records were lost (unclean leader election), and all that follows there"
            " is lag"
        )
    return row | {
        "log_start": found.log_start,
        "end": found.end,
        "lag": max(0, found.end - standing.reached),
        "headroom": standing.reached - found.log_start,
    }


def _print(rows: list[dict[str, object]]) -> None:
    console = Console(highlight=False, markup=False)
    errors, notes = [], []
    for topic, of_topic in groupby(rows, key=lambda row: str(row["topic"])):
        console.print(topic, style="bold", soft_wrap=True)
        table = _table()
        for row in of_topic:
            names = ("partition", *_FIGURES)
            table.add_row(*[str(row.get(name, "?")) for name in names])
            partition = f"{topic}-{row['partition']}"
            if "error" in row:
                errors.append(f"{partition}: {row['error']}")
            if "note" in row:
                notes.append(f"{partition}: {row['note']}")
        console.print(table)
    total = sum(int(str(row.get("lag", 0))) for row in rows)
    console.print(f"lag in total: {total}{' at least' if errors else ''}")
    for line in errors + notes:
        console.print(line, soft_wrap=True)


def _table() -> Table:
    """Columns as wide for every topic; offsets of 11 digits fit 80 columns."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("partition", *_FIGURES):
        width = 0 if name == "partition" else 11
        label = name.replace("_", " ")
        table.add_column(label, justify="right", min_width=width, no_wrap=True)
    return table
