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
from kafka_tx.transactions.layout.commit_stats import CommitStats

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
        stats = [
            each for one in doors_of(store, state) for each in one.state.commit_stats
        ]
    found = [_row(each) for each in stats]
    for before, row in pairwise(found):
        row["after_ms"] = row["committed_ms"] - before["committed_ms"]
    if as_json:
        typer.echo(json.dumps(found))
    elif found:
        Console().print(_table(found))
    else:
        typer.echo(f"the store keeps no transactions of '{id_}'")


def _row(stats: CommitStats) -> dict[str, Any]:
    return {
        "txid": stats.txid,
        "epoch": stats.epoch,
        "committed_ms": stats.committed_ms,
        "after_ms": None,
        "phases_ms": dict(stats.from_tasks.phases_ms),
        "attempts": stats.attempts,
        "records": stats.from_tasks.records,
        "bytes": stats.from_tasks.bytes,
        "newest_record_ms": stats.from_tasks.newest_ms,
        "skipped": sum(stats.all_skipped(stats.from_tasks).values()),
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
