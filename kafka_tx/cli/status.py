"""``kafka-tx status`` and ``kafka-tx top``: the ids of a store, once and live."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka_tx import assembly
from kafka_tx.cli.kafka_logs import KafkaConfigOption, KafkaOption, Logs, kafka_options
from kafka_tx.cli.lag import lag_of
from kafka_tx.cli.positions import KnownId, known_doors
from kafka_tx.cli.stores import STORE, JsonOption, StoreOption, checked, opened
from kafka_tx.clock import now_ms
from kafka_tx.errors import (
    ConfigError,
    FormatError,
    KafkaTxError,
    StateCorruptedError,
    StateError,
)
from kafka_tx.logs import one_line, shown
from kafka_tx.model import BatchMetadata
from kafka_tx.planning.offset_json import nested
from kafka_tx.transactions.layout.commit_stats import (
    CommitStats,
    TableWrite,
    last_writes,
)
from kafka_tx.transactions.layout.stops import STOP, Stop, last_stop, stop_id
from kafka_tx.transactions.layout.txid_layout import OWNER, Door
from kafka_tx.transactions.ownership.memory import StoredId

_WATCHED_S = 2.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Found:
    """One id: its state, or the error that hides it."""

    id: str
    epoch: int
    known: KnownId | None = None
    paths: tuple[str, ...] = ()
    error: StateError | None = None
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
        watch_ids(lambda: _text(found_ids(store, id_)), _WATCHED_S, None)
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
    ids = [wanted, stop_id(wanted)] if wanted is not None else []
    stored = assembly.stored_states(checked(url), ids)
    notes = {stop_id(name) for name in stored}
    found = []
    for name, one in stored.items():
        if name in notes and _is_notes(one):
            continue  # shown with the id that it is about
        found += _found_in(one, stored.get(stop_id(name)))
    return [one for one in found if wanted in (None, one.id)]


def _is_notes(stored: StoredId) -> bool:
    try:
        return not stored.store.read().keys() - {STOP, OWNER}
    except (StateCorruptedError, FormatError):
        return False


def _found_in(stored: StoredId, notes: StoredId | None) -> list[Found]:
    """The jobs of this id: topologies of both kinds may share it."""
    store = stored.store
    found = Found(store.id, 0)
    try:
        texts = tuple(path for path in store.read() if path != STOP)
        found = replace(found, epoch=store.epoch(), paths=texts)
        found = replace(found, stop=last_stop(store))
        doors = known_doors(store, stored.at_least_once)
        jobs = [replace(found, known=one) for one in doors]
        return [_with_notes(notes, one) for one in jobs] or [found]
    except (StateCorruptedError, FormatError) as error:
        return [replace(found, error=error)]


def _with_notes(notes: StoredId | None, found: Found) -> Found:
    """With the epoch and the last stop of an at-least-once topology."""
    if found.known is None or found.known.door is not Door.AT_LEAST_ONCE:
        return found
    stop = last_stop(notes.store) if notes else None
    return replace(found, epoch=found.known.state.epoch, stop=stop)


def _as_json(found: Found) -> dict[str, Any]:
    data: dict[str, Any] = {"id": found.id, "epoch": found.epoch}
    if found.stop is not None:
        data["last_stop"] = asdict(found.stop)
    if found.error is not None:
        return data | {"error": str(found.error)}
    if found.known is None:
        return data | {"records": list(found.paths)}
    state, committed = found.known.state, found.known.state.committed
    offsets = nested(committed.offsets) if committed else {}
    data |= {"door": found.known.door.value, "offsets": offsets}
    if found.known.door is Door.AT_LEAST_ONCE:
        return data
    if state.moved_to:
        data["moved_to"] = state.moved_to
    data |= _tables(found.known)
    return data | {
        "numbering": state.numbering,
        "committed_txid": state.txid,
        "committed_ms": state.committed_ms,
        "unfinished": [
            {"txid": txid, "ranges": ranges(batch)}
            for txid, batch in state.unfinished.items()
        ],
    }


def _tables(known: KnownId) -> dict[str, Any]:
    if known.door is not Door.SOURCE:
        return {}
    return {
        "tables": [asdict(write) for write in last_writes(known.state.commit_stats)]
    }


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
        error = one_line(stop.error)
        rows.append(("last stop", f"{stop.reason}, {ago(stop.at_ms)}: {error}"))
    if found.error is not None:
        where = found.error.fields.get("path", "format")
        return [*rows, ("unreadable", one_line(str(where)))]
    if found.known is None:
        return [*rows, ("records", ", ".join(found.paths) or "none")]
    state = found.known.state
    rows.insert(0, ("door", found.known.door.value))
    if_given = {"moved to": state.moved_to, "numbering": state.numbering}
    rows += [(label, text) for label, text in if_given.items() if text]
    committed = state.committed
    if committed is None:
        return [*rows, ("committed", "nothing yet")]
    last = f"txid {committed.txid}"
    if state.committed_ms:
        last += f", {ago(state.committed_ms)}"
    is_numbered = found.known.door is not Door.AT_LEAST_ONCE
    rows.append(("committed", last if is_numbered else ""))
    offsets = sorted(committed.offsets.items())
    rows += _aligned([(str(partition), str(offset)) for partition, offset in offsets])
    rows += [("table", _table(write)) for write in last_writes(state.commit_stats)]
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


CountOption = Annotated[
    int | None, typer.Option("--count", "-n", help="End after so many polls.")
]
EveryOption = Annotated[float, typer.Option(min=0.1, help="Seconds between two polls.")]
_T = TypeVar("_T")
_COLUMNS = ("id", "txid", "committed", "records/s", "open", "lag", "last stop")


def top(
    store: StoreOption = STORE,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Also show lag: host:port,host:port")
    ] = None,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    every: EveryOption = 2.0,
    count: CountOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all ids live: the ones that committed longest ago come first.

    Records per second are those of the last transactions that the store keeps. With
    --json, each poll is one line.
    """
    logs = None
    if bootstrap_servers is not None:
        logs = Logs(kafka_options(bootstrap_servers, kafka, kafka_config))

    def poll() -> list[dict[str, Any]]:
        return rows(found_ids(store, None), logs, now_ms())

    if as_json:
        for found in _polls(poll, every, count):
            typer.echo(json.dumps(found))
    else:
        watch_ids(lambda: _live_table(poll()), every, count)


def watch_ids(
    draw: Callable[[], RenderableType], every_s: float, count: int | None
) -> None:
    """Redraw until Ctrl-C, or ``count`` times.

    A poll that fails shows its error; the next one follows.
    """
    console = Console()
    with suppress(KeyboardInterrupt):
        if console.is_terminal:
            _draw_over(console, draw, every_s, count)
            return
        for drawn in _polls(draw, every_s, count):
            if isinstance(drawn, str):
                typer.echo(drawn)
            else:
                console.print(drawn)


def _draw_over(
    console: Console,
    draw: Callable[[], RenderableType],
    every_s: float,
    count: int | None,
) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for drawn in _polls(lambda: _drawn(draw), every_s, count):
            shown = Text.from_ansi(drawn) if isinstance(drawn, str) else drawn
            live.update(shown, refresh=True)


def _drawn(draw: Callable[[], RenderableType]) -> RenderableType:
    try:
        return draw()
    except KafkaTxError as error:
        return Text(f"kafka-tx: {shown(str(error))}", style="red")


def _polls(poll: Callable[[], _T], every_s: float, count: int | None) -> Iterator[_T]:
    done = 0
    while count is None or done < count:
        if done:
            time.sleep(every_s)
        yield poll()
        done += 1


def rows(found: list[Found], logs: Logs | None, now_ms: float) -> list[dict[str, Any]]:
    """One row for each id, the oldest commit first."""
    lags = _lags(found, logs) if logs else {}
    made = [_row(one, lags.get(_job(one))) for one in found]
    return sorted(made, key=lambda row: (row["committed_ms"] or now_ms, row["id"]))


def _job(found: Found) -> str:
    """A name of its own: two jobs may share an id."""
    return f"{found.id} ({found.known.door})" if found.known else found.id


def _row(found: Found, lag: int | None) -> dict[str, Any]:
    state = found.known.state if found.known else None
    is_numbered = found.known is not None and found.known.door is not Door.AT_LEAST_ONCE
    return {
        "id": found.id,
        "door": found.known.door.value if found.known else None,
        "epoch": found.epoch,
        "txid": state.txid if state and is_numbered else None,
        "committed_ms": state.committed_ms if state else None,
        "records_per_second": _rate(state.commit_stats) if state else None,
        "open": len(state.unfinished) if state else 0,
        "lag": lag,
        "last_stop": found.stop.reason if found.stop else None,
        "error": str(found.error) if found.error else None,
    }


def _rate(stats: tuple[CommitStats, ...]) -> float | None:
    """Records per second of the stored transactions after the first."""
    known = [each.from_tasks.records for each in stats[1:]]
    if len(stats) <= 1 or None in known:
        return None
    took_s = (stats[-1].committed_ms - stats[0].committed_ms) / 1000
    return round(sum(each or 0 for each in known) / took_s, 1) if took_s > 0 else None


def _lags(found: list[Found], logs: Logs) -> Mapping[str, int | None]:
    """The lag of each id, as far as it is known; None if it is of no partition."""
    positions = {
        _job(one): at.positions()
        for one in found
        if one.known and (at := one.known.current)
    }
    bounds = logs.poll(positions)
    lags = dict[str, int | None]()
    for name, of_id in positions.items():
        all_lags = [lag_of(p, at, bounds[name].get(p)) for p, at in of_id.items()]
        known = [lag for lag in all_lags if lag is not None]
        lags[name] = sum(known) if known or not all_lags else None
    return lags


def _live_table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, expand=False)
    for name in _COLUMNS:
        is_text = name in {"id", "last stop"}
        table.add_column(
            name, justify="left" if is_text else "right", overflow="ellipsis"
        )
    jobs = Counter(row["id"] for row in found)
    for row in found:
        name, when = row["id"], row["committed_ms"]
        if jobs[name] > 1:
            name = f"{name} ({row['door']})"
        stop = "unreadable" if row["error"] else row["last_stop"]
        cells = (
            *(name, row["txid"], ago(when) if when else None),
            *(row["records_per_second"], row["open"] or None, row["lag"], stop),
        )
        table.add_row(*["" if cell is None else str(cell) for cell in cells])
    return table
