"""``kafka-tx history``: the last transactions of an id."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from kafka_tx.cli.positions import doors_of
from kafka_tx.cli.stores import STORE, IdOption, JsonOption, StoreOption, opened
from kafka_tx.transactions.held import Held

_COLUMNS = (
    "txid",
    "committed",
    "after s",
    "took s",
    "tries",
    "records",
    "bytes",
    "skipped",
)


def history(
    id_: IdOption, store: StoreOption = STORE, as_json: JsonOption = False
) -> None:
    """Show the last transactions of an id, the newest last.

    Stores keep as many as the option `tx.history` says, 100 by default; ZooKeeper keeps
    8. "After" is the time since the commit before. "Took" is the time from planning to
    commit.
    """
    with opened(store, id_) as state:
        held = [each for one in doors_of(store, state) for each in one.state.held]
    found = [_row(each) for each in held]
    for before, row in pairwise(found):
        row["after_ms"] = row["committed_ms"] - before["committed_ms"]
    if as_json:
        typer.echo(json.dumps(found))
    elif found:
        Console().print(_table(found))
    else:
        typer.echo(f"the store keeps no transactions of '{id_}'")


def _row(held: Held) -> dict[str, Any]:
    return {
        "txid": held.txid,
        "epoch": held.epoch,
        "committed_ms": held.committed_ms,
        "after_ms": None,
        "phases_ms": dict(held.reported.phases_ms),
        "attempts": held.attempts,
        "records": held.reported.records,
        "bytes": held.reported.bytes,
        "newest_record_ms": held.reported.newest_ms,
        "skipped": sum(held.all_skipped(held.reported).values()),
    }


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in found:
        when = datetime.fromtimestamp(row["committed_ms"] / 1000, UTC)
        after, took = row["after_ms"], sum(row["phases_ms"].values())
        cells = (
            *(row["txid"], f"{when:%Y-%m-%d %H:%M:%S}Z"),
            *(None if after is None else after / 1000, took / 1000 or None),
            row["attempts"],
            *(row["records"], row["bytes"], row["skipped"] or None),
        )
        table.add_row(*["" if cell is None else str(cell) for cell in cells])
    return table
