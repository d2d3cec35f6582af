"""``kafka-tx status``: the state of the ids of a store."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import typer

from kafka_tx import assembly
from kafka_tx.cli.positions import KnownId, known_doors
from kafka_tx.cli.stores import STORE, JsonOption, StoreOption, checked, opened
from kafka_tx.errors import ConfigError, StateCorruptedError
from kafka_tx.model import BatchMetadata
from kafka_tx.planning.offset_json import nested
from kafka_tx.transactions.held import TableWrite, last_writes
from kafka_tx.transactions.memory import StoredId
from kafka_tx.transactions.stops import STOP, Stop, last_stop, notes_id
from kafka_tx.transactions.txid_layout import OWNER, Door

_WATCHED_S = 2.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Found:
    """One id: its state, or the error that hides it."""

    id: str
    epoch: int
    known: KnownId | None = None
    paths: tuple[str, ...] = ()
    error: StateCorruptedError | None = None
    stop: Stop | None = None


def status(
    store: StoreOption = STORE,
    id_: Annotated[
        str | None, typer.Option("--id", help="Show only this tx.id.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Poll every 2 s until you press Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show epoch, committed txid, offsets, tables and unfinished txids of each id."""
    if watch and as_json:
        other = "`kafka-tx top --json` prints each poll"
        raise ConfigError(f"--watch prints no JSON: {other}", option="--watch")
    if watch:
        from kafka_tx.cli.top import watch as watched

        watched(lambda: _text(found_ids(store, id_)), _WATCHED_S, None)
        return
    found = found_ids(store, id_)
    if as_json:
        typer.echo(json.dumps([_as_json(one) for one in found]))
    else:
        typer.echo(_text(found))
    unreadable = [one.error for one in found if one.error is not None]
    if unreadable:
        raise unreadable[0]


def found_ids(url: str, wanted: str | None) -> list[Found]:
    """One id or all of them, by the same few queries whatever their number."""
    if wanted is not None:
        with opened(url, wanted):
            pass
    ids = [wanted, notes_id(wanted)] if wanted is not None else []
    stored = assembly.stored_states(checked(url), ids)
    notes = {notes_id(name) for name in stored}
    found = []
    for name, one in stored.items():
        if name in notes and not one.store.read().keys() - {STOP, OWNER}:
            continue  # shown with the id that it is about
        found += _look(one, stored.get(notes_id(name)))
    return [one for one in found if wanted in (None, one.id)]


def _look(stored: StoredId, notes: StoredId | None) -> list[Found]:
    """What has this id: a topology that counts txids and another one may share it."""
    store = stored.store
    texts = {path: text for path, text in store.read().items() if path != STOP}
    found = Found(store.id, store.epoch(), paths=tuple(texts))
    try:
        found = replace(found, stop=last_stop(store))
        doors = known_doors(store, stored.at_least_once)
        reported = [replace(found, known=one) for one in doors]
        return [_with_notes(notes, one) for one in reported] or [found]
    except StateCorruptedError as error:
        return [replace(found, error=error)]


def _with_notes(notes: StoredId | None, found: Found) -> Found:
    """With the epoch and the last stop of an at-least-once topology."""
    if found.known is None or found.known.door is not Door.AT_LEAST_ONCE:
        return found
    stop = last_stop(notes.store) if notes else None
    return replace(found, epoch=found.known.state.epoch, stop=stop)


def _as_json(found: Found) -> dict[str, Any]:
    reported: dict[str, Any] = {"id": found.id, "epoch": found.epoch}
    if found.stop is not None:
        reported["last_stop"] = asdict(found.stop)
    if found.error is not None:
        return reported | {"error": str(found.error)}
    if found.known is None:
        return reported | {"records": list(found.paths)}
    state, committed = found.known.state, found.known.state.committed
    offsets = nested(committed.offsets) if committed else {}
    reported |= {"door": found.known.door.value, "offsets": offsets}
    if found.known.door is Door.AT_LEAST_ONCE:
        return reported
    if state.moved_to:
        reported["moved_to"] = state.moved_to
    reported |= _tables(found.known)
    return reported | {
        "numbering": state.numbering,
        "committed_txid": state.txid,
        "committed_ms": (committed.completed_ms or None) if committed else None,
        "unfinished": [
            {"txid": txid, "ranges": ranges(batch)}
            for txid, batch in state.unfinished.items()
        ],
    }


def _tables(known: KnownId) -> dict[str, Any]:
    if known.door is not Door.SOURCE:
        return {}
    return {"tables": [asdict(write) for write in last_writes(known.state.held)]}


def ranges(batch: BatchMetadata) -> dict[str, dict[str, list[int]]]:
    """``{"topic": {"0": [start, end]}}``, without the empty ones."""
    data: dict[str, dict[str, list[int]]] = {}
    for wanted in sorted(batch.ranges):
        topic, number = wanted.topic_partition
        if len(wanted):
            data.setdefault(topic, {})[str(number)] = [wanted.start, wanted.end]
    return data


def _text(found: list[Found]) -> str:
    lines = [] if found else ["the store holds no ids"]
    for one in found:
        lines.append(typer.style(one.id, bold=True))
        lines += [f"  {label:<13}{text}".rstrip() for label, text in _rows(one)]
    return "\n".join(lines)


def _rows(found: Found) -> list[tuple[str, str]]:
    rows = [("epoch", str(found.epoch))]
    if found.stop is not None:
        stop = found.stop
        rows.append(("last stop", f"{stop.reason}, {ago(stop.at_ms)}: {stop.error}"))
    if found.error is not None:
        return [*rows, ("unreadable", str(found.error.fields["path"]))]
    if found.known is None:
        return [*rows, ("records", ", ".join(found.paths) or "none")]
    state = found.known.state
    rows.insert(0, ("door", found.known.door.value))
    told = {"moved to": state.moved_to, "numbering": state.numbering}
    rows += [(label, text) for label, text in told.items() if text]
    committed = state.committed
    if committed is None:
        return [*rows, ("committed", "nothing yet")]
    reported = f"txid {committed.txid}"
    if committed.completed_ms:
        reported += f", {ago(committed.completed_ms)}"
    is_numbered = found.known.door is not Door.AT_LEAST_ONCE
    rows.append(("committed", reported if is_numbered else ""))
    offsets = sorted(committed.offsets.items())
    rows += _aligned([(str(partition), str(offset)) for partition, offset in offsets])
    rows += [("table", _table(write)) for write in last_writes(state.held)]
    for txid, batch in state.unfinished.items():
        rows.append(("unfinished", f"txid {txid}"))
        spans = sorted(wanted for wanted in batch.ranges if len(wanted))
        rows += _aligned(
            [(str(w.topic_partition), f"[{w.start}, {w.end})") for w in spans]
        )
    return rows


def _table(write: TableWrite) -> str:
    at = "" if write.version is None else f", version {write.version}"
    sink = "" if write.sink == "default" else f" (sink '{write.sink}')"
    return f"{write.table}{sink}: txid {write.txid}{at}"


def _aligned(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """One line for each partition, its figures below each other."""
    wide = max((len(name) for name, _ in pairs), default=0)
    far = max((len(value) for _, value in pairs), default=0)
    return [("", f"{name:<{wide}}  {value:>{far}}") for name, value in pairs]


def ago(when_ms: int) -> str:
    """How long ago, as text."""
    seconds = max(0, int(time.time() - when_ms / 1000))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds} s ago"
