"""``kafka-tx status``: what a store knows about its ids."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from kafka_tx.cli.stores import STORE, JsonOption, StoreOption, known_ids, opened
from kafka_tx.errors import StateCorruptedError, StateError
from kafka_tx.model import BatchMetadata
from kafka_tx.protocols import Store
from kafka_tx.spark.source.offset_json import nested
from kafka_tx.transactions.ledger import Ledger, LedgerState
from kafka_tx.transactions.ledger_records import COMMITTED, CURRENT

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class _Found:
    """One id: the ledger's state, or what else is stored, or what cannot be read."""

    id: str
    epoch: int
    state: LedgerState | None = None
    paths: tuple[str, ...] = ()
    error: StateCorruptedError | None = None


def status(
    store: StoreOption = STORE,
    id_: Annotated[str | None, typer.Option("--id", help="Only this tx.id.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show ids, owner's epoch, committed txid and offsets, and unfinished txids."""
    found = []
    for name in [id_] if id_ is not None else known_ids(store):
        with opened(store, name) as one:
            found.append(_look(one))
    if as_json:
        typer.echo(json.dumps([_as_json(one) for one in found]))
    else:
        _print(found, store)
    unreadable = [one.error for one in found if one.error is not None]
    if unreadable:
        raise unreadable[0]


def _look(store: Store) -> _Found:
    paths = tuple(store.read())
    if not {COMMITTED, CURRENT} & set(paths):
        return _Found(store.id, store.epoch(), paths=paths)
    try:
        state = Ledger(store).load()
    except StateCorruptedError as error:
        return _Found(store.id, store.epoch(), error=error)
    return _Found(store.id, state.epoch, state)


def _as_json(found: _Found) -> dict[str, Any]:
    told: dict[str, Any] = {"id": found.id, "epoch": found.epoch}
    if found.error is not None:
        return told | {"error": str(found.error)}
    if found.state is None:
        return told | {"records": list(found.paths)}
    committed = found.state.committed
    return told | {
        "committed_txid": found.state.txid,
        "committed_ms": committed.completed_ms if committed else None,
        "offsets": nested(committed.offsets) if committed else {},
        "unfinished": [
            {"txid": txid, "ranges": ranges(batch)}
            for txid, batch in found.state.unfinished.items()
        ],
    }


def ranges(batch: BatchMetadata) -> dict[str, dict[str, list[int]]]:
    """``{"topic": {"0": [start, end]}}``, without the empty ones."""
    data: dict[str, dict[str, list[int]]] = {}
    for wanted in sorted(batch.ranges):
        topic, number = wanted.topic_partition
        if len(wanted):
            data.setdefault(topic, {})[str(number)] = [wanted.start, wanted.end]
    return data


def _print(found: list[_Found], store: str) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if not found:
        console.print(f"{store} holds no ids")
    for one in found:
        console.print(one.id, style="bold")
        for label, text in _rows(one):
            console.print(f"  {label:<13}{text}")


def _rows(found: _Found) -> list[tuple[str, str]]:
    rows = [("epoch", str(found.epoch))]
    if found.error is not None:
        return [*rows, ("unreadable", str(found.error.fields["path"]))]
    if found.state is None:
        return [*rows, ("records", ", ".join(found.paths))]
    committed = found.state.committed
    if committed is None:
        return [*rows, ("committed", "nothing yet")]
    rows += [
        ("committed", f"txid {committed.txid}, {_ago(committed.completed_ms)}"),
        ("offsets", json.dumps(nested(committed.offsets))),
    ]
    for txid, batch in found.state.unfinished.items():
        rows.append(("unfinished", f"txid {txid} {json.dumps(ranges(batch))}"))
    return rows


def _ago(when_ms: int) -> str:
    if not when_ms:
        return "time not known"
    seconds = max(0, int(time.time() - when_ms / 1000))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds} s ago"


def no_ledger(id: str, store: Store) -> StateError:  # noqa: A002 - the word users know
    """The error for an id whose records are not those of a source."""
    return StateError(
        f"id '{id}' in {store.url} has no committed offsets of a source yet; `kafka-tx"
        " status` shows what it has",
        store=store.url,
        id=id,
    )
