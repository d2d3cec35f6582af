"""The demo's output: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_EVERY_S = 5.0
_BAR = 40
_RATE_OVER_S = 2.0
_LABEL = 12


@dataclass(slots=True)
class Scene:
    """The state of the demo, seen from outside the job.

    ``committed`` and ``unfinished`` are txids as the store has them; ``lag`` is in
    records. ``working_s`` are the seconds from the first batch of each run to its end:
    all but the starts of Spark.
    """

    broker: str
    records: int
    began_at: float = field(default_factory=time.monotonic)
    produced: int = 0
    counted: int = 0
    lag: int = 0
    committed: int = 0
    unfinished: list[int] = field(default_factory=list)
    phase: str = "starting"
    run: int = 0
    crashes: list[str] = field(default_factory=list)
    is_working: bool = False
    working_s: float = 0.0
    _sampled_at: float = field(default_factory=time.monotonic)
    _samples: list[tuple[float, int]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self.began_at

    @property
    def is_counted(self) -> bool:
        """Whether one poll found every record both produced and counted."""
        return self.produced == self.records and not self.lag

    def begin_run(self) -> None:
        """Spark starts once more."""
        self.run += 1
        self.phase, self.is_working = "starting Spark", False

    def sample(self) -> None:
        """Note the count of now, for ``rate``, and whether the job worked until now."""
        now = time.monotonic()
        if self.is_working:
            self.working_s += now - self._sampled_at
        self._sampled_at = now
        self._samples.append((now, self.counted))
        while self._samples[0][0] < now - _RATE_OVER_S:
            del self._samples[0]

    @property
    def rate(self) -> float:
        """Records counted in a second, over the last two."""
        if len(self._samples) < 2:
            return 0.0
        (then, less), (now, more) = self._samples[0], self._samples[-1]
        return (more - less) / max(now - then, 0.1)


class Screen:
    """A picture that is redrawn in place; lines with a time where no terminal is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8)
        self._began_at = time.monotonic()
        self._next_s = _EVERY_S

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, scene: Scene) -> None:
        """Redraw the picture; or print a line now and then."""
        seconds = time.monotonic() - self._began_at
        if self._console.is_terminal:
            self._live.update(picture(scene))
        elif seconds >= self._next_s:
            self._next_s = seconds + _EVERY_S
            self.say(
                f"produced {scene.produced:,} · counted {scene.counted:,} · lag"
                f" {scene.lag:,} · committed txid {scene.committed} · {scene.phase}"
            )

    def say(self, text: str) -> None:
        """Print a line; a picture already shows the crashes."""
        if not self._console.is_terminal:
            line = f"{time.monotonic() - self._began_at:5.1f} s  {text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def picture(scene: Scene) -> Panel:
    """The scene as rich draws it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(width=_LABEL, style="dim")
    table.add_column()
    table.add_row("broker", scene.broker)
    table.add_row("produced", _bar(scene.produced, scene.records, "cyan"))
    table.add_row("counted", _bar(scene.counted, scene.records, "green"))
    table.add_row("throughput", f"{scene.rate:,.0f} records/s")
    table.add_row("lag", f"{scene.lag:,} records")
    table.add_row("txid", _txids(scene))
    table.add_row("phase", f"{scene.phase}  [dim](run {scene.run})[/dim]")
    crashes = [Text(f"✗ SIGKILL {text}", style="red") for text in scene.crashes]
    table.add_row("crashes", Group(*crashes) if crashes else "none yet")
    return Panel(
        table,
        title="kafka_tx demo: a word count that is killed and still counts right",
        subtitle=f"{scene.seconds:.0f} s",
        width=88,
    )


def _bar(now: int, total: int, style: str) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(
        ProgressBar(total=total, completed=now, width=_BAR, complete_style=style),
        f"{now:,} of {total:,}",
    )
    return row


def _txids(scene: Scene) -> str:
    waiting = ", ".join(map(str, scene.unfinished))
    return f"{scene.committed} committed" + (f", {waiting} open" if waiting else "")
