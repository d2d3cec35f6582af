"""``kafka-tx top``: all ids of a store, live in a terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka_tx.cli.lag import KafkaConfigOption, KafkaOption, Logs, kafka_options
from kafka_tx.cli.status import Found, ago, found_ids
from kafka_tx.cli.stores import STORE, JsonOption, StoreOption
from kafka_tx.errors import KafkaTxError
from kafka_tx.model import LogBounds
from kafka_tx.offsets.standing import stand
from kafka_tx.transactions.held import Held
from kafka_tx.transactions.txid_layout import Door

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

    def look() -> list[dict[str, Any]]:
        return rows(found_ids(store, None), logs, time.time() * 1000)

    if as_json:
        for found in _looks(look, every, count):
            typer.echo(json.dumps(found))
    else:
        watch(lambda: _table(look()), every, count)


def watch(
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
        for drawn in _looks(draw, every_s, count):
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
        for drawn in _looks(lambda: _drawn(draw), every_s, count):
            shown = Text.from_ansi(drawn) if isinstance(drawn, str) else drawn
            live.update(shown, refresh=True)


def _drawn(draw: Callable[[], RenderableType]) -> RenderableType:
    try:
        return draw()
    except KafkaTxError as error:
        return Text(f"kafka-tx: {error}", style="red")


def _looks(look: Callable[[], _T], every_s: float, count: int | None) -> Iterator[_T]:
    done = 0
    while count is None or done < count:
        if done:
            time.sleep(every_s)
        yield look()
        done += 1


def rows(found: list[Found], logs: Logs | None, now_ms: float) -> list[dict[str, Any]]:
    """One row for each id, the oldest commit first."""
    lags = _lags(found, logs) if logs else {}
    made = [_row(one, lags.get(one.id)) for one in found]
    return sorted(made, key=lambda row: (row["committed_ms"] or now_ms, row["id"]))


def _row(found: Found, lag: int | None) -> dict[str, Any]:
    state = found.known.state if found.known else None
    is_numbered = found.known is not None and found.known.door is not Door.AT_LEAST_ONCE
    committed = state.committed if state else None
    return {
        "id": found.id,
        "door": found.known.door.value if found.known else None,
        "epoch": found.epoch,
        "txid": state.txid if state and is_numbered else None,
        "committed_ms": (committed.completed_ms or None) if committed else None,
        "records_per_second": _rate(state.held) if state else None,
        "open": len(state.unfinished) if state else 0,
        "lag": lag,
        "last_stop": found.stop.reason if found.stop else None,
        "error": str(found.error) if found.error else None,
    }


def _rate(held: tuple[Held, ...]) -> float | None:
    """Records per second of the stored transactions after the first."""
    known = [each.reported.records for each in held[1:]]
    if len(held) <= 1 or None in known:
        return None
    took_s = (held[-1].committed_ms - held[0].committed_ms) / 1000
    return round(sum(each or 0 for each in known) / took_s, 1) if took_s > 0 else None


def _lags(found: list[Found], logs: Logs) -> Mapping[str, int]:
    positions = {
        one.id: one.known.state.committed.positions()
        for one in found
        if one.known and one.known.state.committed
    }
    bounds = logs.look(positions)
    return {
        name: sum(
            max(0, log.end - stand(at, log).reached)
            for p, at in of_id.items()
            if isinstance(log := bounds[name].get(p), LogBounds)
        )
        for name, of_id in positions.items()
    }


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, expand=False)
    for name in _COLUMNS:
        is_text = name in {"id", "last stop"}
        table.add_column(
            name, justify="left" if is_text else "right", overflow="ellipsis"
        )
    for row in found:
        when = row["committed_ms"]
        stop = "unreadable" if row["error"] else row["last_stop"]
        cells = (
            *(row["id"], row["txid"], ago(when) if when else None),
            *(row["records_per_second"], row["open"] or None, row["lag"], stop),
        )
        table.add_row(*["" if cell is None else str(cell) for cell in cells])
    return table
