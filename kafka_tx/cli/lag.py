"""``kafka-tx lag``: lag behind the log end, and headroom above the log start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kafka_tx.cli.kafka_logs import (
    KafkaConfigOption,
    KafkaOption,
    Logs,
    kafka_options,
    positions_of,
)
from kafka_tx.cli.stores import STORE, JsonOption, StoreOption
from kafka_tx.errors import ConfigError
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.offsets.position_checks import Finding, PositionCheck, check_position

_FIGURES = ("committed", "log_start", "end", "lag", "headroom")


def lag(
    bootstrap_servers: Annotated[str, typer.Option(help="host:port,host:port")],
    id_: Annotated[
        str | None, typer.Option("--id", help="Show only this tx.id.")
    ] = None,
    store: StoreOption = STORE,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    serve: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Serve the figures for Prometheus at this port until you end the"
            " command: the same metrics as the endpoint of a driver.",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address for --serve; 0.0.0.0 admits other machines.")
    ] = "127.0.0.1",
    as_json: JsonOption = False,
) -> None:
    """Show committed offset, log start, end, lag and headroom of each partition.

    Lag is end minus committed; headroom is committed minus log start: negative if
    retention removed unread records. Offsets count, also where the log has holes. A
    topic that was deleted and created again was not read yet: all of it is lag. Where
    brokers lost the end of a log, lag counts from where other records follow.

    The exit code is 1 if a topic does not exist, if an offset is outside of its log, if
    brokers do not report them, or if a record of an id cannot be read. Ids that `store
    copy` has moved to another store are left out. With --store kafka:, the id is the
    name of the group.
    """
    if serve is not None and as_json:
        why = "--serve prints no JSON: it serves Prometheus"
        raise ConfigError(why, option="--serve")
    options = kafka_options(bootstrap_servers, kafka, kafka_config)
    if serve is not None:
        from kafka_tx.cli.exporter import export

        export(store, id_, options, serve, address)
        return
    with closing(Logs(options)) as logs:
        positions, unreadable = positions_of(store, id_, logs)
        bounds = logs.poll(positions)
    rows = [
        {"id": name} | row_of(p, at, bounds[name].get(p))
        for name, of_id in positions.items()
        for p, at in of_id.items()
    ]
    errors = [{"id": id_, "error": str(error)} for id_, error in unreadable.items()]
    if as_json:
        typer.echo(json.dumps([*rows, *errors]))
    else:
        if rows or not errors:
            _print(rows)
        for error in errors:
            typer.echo(f"id {error['id']}: {error['error']}")
    if errors or any(_is_trouble(row) for row in rows):
        raise typer.Exit(1)


def _is_trouble(row: Mapping[str, object]) -> bool:
    return "error" in row or bool(row.get("is_outside"))


def row_of(
    partition: TopicPartition,
    committed: LogPosition,
    found: LogBounds | Unavailable | None,
) -> dict[str, object]:
    """A partition's row: its figures, or why they are unknown."""
    row: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": committed.offset,
    }
    if not isinstance(found, LogBounds):
        return row | {"error": found.reason if found else "the brokers do not know it"}
    check = check_position(committed, found)
    if check.finding is Finding.UNANSWERED:
        reason = f"no broker tells whether its topic still has id {committed.topic_id}"
        if found.topic_id is not None:
            reason += f", and its log still goes on from epoch {committed.leader_epoch}"
        return row | {"error": reason}
    if note := _note(committed, found, check):
        row["note"] = note
    if check.finding in {Finding.CUT, Finding.TRIMMED}:
        row["is_outside"] = True
    return row | {
        "log_start": found.log_start,
        "end": found.end,
        "lag": max(0, found.end - check.reached),
        "headroom": check.reached - found.log_start,
    }


def lag_of(
    partition: TopicPartition,
    committed: LogPosition,
    found: LogBounds | Unavailable | None,
) -> int | None:
    """A partition's lag; None if it is unknown, as its row tells."""
    lag = row_of(partition, committed, found).get("lag")
    return lag if isinstance(lag, int) else None


def _note(committed: LogPosition, found: LogBounds, check: PositionCheck) -> str:
    match check.finding:
        case Finding.ANEW:
            return (
                f"offset {committed.offset} is of a topic that was deleted; all there"
                " is now is lag"
            )
        case Finding.TRIMMED:
            return (
                f"{check.lost} offsets that were not read are gone: the log starts"
                f" at {found.log_start} (retention, or records were deleted)"
            )
        case Finding.CUT if check.is_certain:
            return (
                f"the log that was read to {committed.offset} ends at"
                f" {check.reached}: records were lost (unclean leader election), and"
                " all that follows there is lag"
            )
        case Finding.CUT:
            return (
                f"offset {committed.offset} is beyond the end of the log, {found.end}:"
                " brokers lost records, or this is another cluster than the job's"
            )
        case _:
            return ""


def _print(rows: list[dict[str, object]]) -> None:
    console = Console(highlight=False, markup=False)
    for name, of_id in groupby(rows, key=lambda row: str(row["id"])):
        if any(row["id"] != name for row in rows):
            console.print(f"id {name}", style="bold", soft_wrap=True)
        _print_id(console, list(of_id))
    if not rows:
        console.print("no id goes on in this store and has committed offsets")


def _print_id(console: Console, rows: list[dict[str, object]]) -> None:
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
