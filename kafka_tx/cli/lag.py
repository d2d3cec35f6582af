"""``kafka-tx lag``: how far behind the log, and how far from being overtaken by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kafka_tx import assembly
from kafka_tx.cli.status import no_ledger
from kafka_tx.cli.stores import STORE, IdOption, JsonOption, StoreOption, opened
from kafka_tx.config import SourceConfig
from kafka_tx.errors import ConfigError
from kafka_tx.model import (
    Assigned,
    Earliest,
    LogBounds,
    TopicPartition,
    Unavailable,
)
from kafka_tx.transactions.ledger import Ledger

TIMEOUT_MS = 10_000

KafkaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help="More kafka.* options, without the prefix; may be given several times.",
    ),
]


def kafka_options(bootstrap_servers: str, more: list[str] | None) -> dict[str, str]:
    """The clients' options from the command line.

    Raises:
        ConfigError: One has no ``=``.
    """
    options = {"bootstrap.servers": bootstrap_servers}
    for text in more or []:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ConfigError.illegal(
                "--kafka", text, "NAME=VALUE, as in --kafka security.protocol=SSL"
            )
        options[name.removeprefix("kafka.")] = value
    return options


def look(
    kafka: Mapping[str, str], partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, LogBounds | Unavailable]:
    """What the brokers hold of these partitions now.

    Raises:
        BrokerUnavailableError: No broker answered within 10 s.
        AuthenticationError: Credentials, permission or TLS.
        ConfigError: An option cannot be used.
    """
    config = SourceConfig(
        subscription=Assigned(partitions),
        kafka=kafka,
        start=Earliest(),
        poll_timeout_ms=TIMEOUT_MS,
        num_retries=1,
    )
    view = assembly.cluster_view(config)
    try:
        return view.bounds(partitions)
    finally:
        view.close()


def lag(
    id_: IdOption,
    bootstrap_servers: Annotated[str, typer.Option(help="host:port,host:port")],
    store: StoreOption = STORE,
    kafka: KafkaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show committed offset, log start, end, lag and headroom of each partition.

    Lag is end minus committed; headroom is committed minus log start: negative when
    retention took records that were not read. Offsets count, also where the log has
    holes.
    """
    with opened(store, id_) as state:
        committed = Ledger(state).load().committed
        if committed is None:
            raise no_ledger(id_, state)
    offsets = dict(sorted(committed.offsets.items()))
    bounds = look(kafka_options(bootstrap_servers, kafka), tuple(offsets))
    rows = [_row(p, offset, bounds.get(p)) for p, offset in offsets.items()]
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        _print(rows)


def _row(
    partition: TopicPartition, committed: int, found: LogBounds | Unavailable | None
) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": committed,
    }
    if not isinstance(found, LogBounds):
        return row | {"error": found.reason if found else "the brokers do not know it"}
    return row | {
        "log_start": found.log_start,
        "end": found.end,
        "lag": max(0, found.end - committed),
        "headroom": committed - found.log_start,
    }


def _print(rows: list[dict[str, object]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("partition")
    figures = ("committed", "log_start", "end", "lag", "headroom")
    for name in figures:
        table.add_column(name.replace("_", " "), justify="right")
    errors = []
    for row in rows:
        where = f"{row['topic']}-{row['partition']}"
        table.add_row(where, *[str(row.get(name, "?")) for name in figures])
        if "error" in row:
            errors.append(f"{where}: {row['error']}")
    console = Console(highlight=False, markup=False)
    console.print(table)
    total = sum(int(str(row.get("lag", 0))) for row in rows)
    console.print(f"lag in total: {total}{' at least' if errors else ''}")
    for error in errors:
        console.print(error, soft_wrap=True)
