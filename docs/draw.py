"""Draws the pictures of the documentation: `make pictures`.

A sequence shows who does what, from top to bottom; a plan shows which processes talk to
each other. The text of a picture stays text, and its colours follow the reader's choice
of light or dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
LANE, ROW, LINE, MARGIN = 170, 30, 15, 16
STYLE = """
svg.sequence { --ink: #1f2328; --dim: #6e7781; --paper: #ffffff; --lane: #eef2f7;
  --good: #0a6640; --bad: #b42318; font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg.sequence { --ink: #e6edf3; --dim: #9aa4af;
  --paper: #0d1117; --lane: #1d2733; --good: #56d39b; --bad: #ff8a80; } }
svg.sequence text { fill: var(--ink); } svg.sequence .paper { fill: var(--paper); }
svg.sequence .lane { fill: var(--lane); stroke: var(--dim); }
svg.sequence .life { stroke: var(--dim); stroke-dasharray: 3 4; }
svg.sequence .arrow { stroke: var(--ink); } svg.sequence .head { fill: var(--ink); }
svg.sequence .name { font-weight: 600; }
svg.sequence .stored { fill: var(--good); font-weight: 600; }
svg.sequence .crash { fill: var(--bad); font-weight: 600; }
svg.sequence .cut { stroke: var(--bad); stroke-dasharray: 6 3; }
"""


@dataclass(frozen=True)
class Step:
    """An arrow, or what one does alone. ``kind`` colours the text: stored, crash."""

    source: str
    target: str
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Sequence:
    """A picture: its file, the text for those who cannot see it, lanes and steps."""

    name: str
    title: str
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]

    def svg(self) -> str:
        """The picture."""
        tops, height = self._tops()
        width = LANE * len(self.lanes)
        body = [
            *(self._lane(lane, height) for lane in self.lanes),
            *(self._step(step, y) for step, y in zip(self.steps, tops, strict=True)),
        ]
        return _svg(self.title, width, height, body)

    def _tops(self) -> tuple[list[int], int]:
        tops, y = [], 64
        for step in self.steps:
            y += LINE * step.text.count("\n")
            tops.append(y)
            y += ROW
        return tops, y + MARGIN // 2

    def _x(self, lane: str) -> int:
        return LANE * self.lanes.index(lane) + LANE // 2

    def _lane(self, lane: str, height: int) -> str:
        x = self._x(lane)
        return (
            f'<rect class="lane" x="{x - 76}" y="8" width="152" height="28" rx="6"/>'
            f'<text class="name" x="{x}" y="27" text-anchor="middle">{escape(lane)}'
            f'</text><path class="life" d="M{x} 36V{height - 6}"/>'
        )

    def _step(self, step: Step, y: int) -> str:
        start, end = self._x(step.source), self._x(step.target)
        middle = (start + end) // 2
        text = _text(step, middle, y - 5)
        if step.kind == "crash":
            return text + f'<path class="cut" d="M{start - 80} {y}H{start + 80}"/>'
        if start == end:
            return text
        tip = end - 7 if end > start else end + 7
        head = f"M{end} {y}L{tip} {y - 4}V{y + 4}Z"
        return (
            f'{text}<path class="arrow" d="M{start} {y}H{tip}"/>'
            f'<path class="head" d="{head}"/>'
        )


@dataclass(frozen=True)
class Box:
    """A process or server of a plan: lines of text, the first one its name."""

    lines: tuple[str, ...]
    x: int
    y: int

    def svg(self) -> str:
        """The box."""
        names = ["name"] + [""] * (len(self.lines) - 1)
        rows = "".join(
            f'<text class="{kind}" x="{self.x}" y="{self.y - 12 + LINE * n}"'
            f' text-anchor="middle">{escape(line)}</text>'
            for n, (kind, line) in enumerate(zip(names, self.lines, strict=True))
        )
        return (
            f'<rect class="lane" x="{self.x - 95}" y="{self.y - 30}" width="190"'
            f' height="60" rx="6"/>{rows}'
        )


@dataclass(frozen=True)
class Plan:
    """A picture of boxes. Arrows have level and upright parts, a text at the last."""

    name: str
    title: str
    size: tuple[int, int]
    boxes: tuple[Box, ...]
    arrows: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]

    def svg(self) -> str:
        """The picture."""
        body = [
            *(box.svg() for box in self.boxes),
            *(_arrow(*arrow) for arrow in self.arrows),
        ]
        return _svg(self.title, *self.size, body)


def _arrow(text: str, points: tuple[tuple[int, int], ...]) -> str:
    (x, y), (to_x, to_y) = points[-2:]
    across, down = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
    tail_x, tail_y = to_x - 7 * across, to_y - 7 * down
    line = "L".join(f"{x} {y}" for x, y in (*points[:-1], (tail_x, tail_y)))
    head = (
        f"M{to_x} {to_y}L{tail_x + 4 * down} {tail_y + 4 * across}"
        f"L{tail_x - 4 * down} {tail_y - 4 * across}Z"
    )
    middle_y = (y + to_y) // 2
    return (
        f'<path class="arrow" fill="none" d="M{line}"/><path class="head" d="{head}"/>'
        + _text(Step("", "", text), (x + to_x) // 2, middle_y + (-5 if across else 4))
    )


def _svg(title: str, width: int, height: int, body: list[str]) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="sequence" role="img"'
        f' viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{width}" height="{height}"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _text(step: Step, x: int, y: int) -> str:
    lines = step.text.split("\n")
    widest = max(map(len, lines)) * 6.4 + 8
    top = y - LINE * len(lines) + 3
    box = (
        f'<rect class="paper" x="{x - widest / 2:.0f}" y="{top}"'
        f' width="{widest:.0f}" height="{LINE * len(lines)}"/>'
    )
    rows = "".join(
        f'<text class="{step.kind}" x="{x}" y="{y - LINE * (len(lines) - 1 - n)}"'
        f' text-anchor="middle">{escape(line)}</text>'
        for n, line in enumerate(lines)
    )
    return box + rows


SPARK, DRIVER, PLANNER, STORE, TASKS = "Spark", "driver", "planner", "store", "tasks"
FUNCTION, SINK = "your function", "sink"

SOURCE = Sequence(
    "life-source",
    "Life of a batch of the source: the planner stores the offsets of txid 7 before a"
    " task reads them, your function writes rows and txid in one step, then the batch"
    " is committed.",
    (SPARK, PLANNER, STORE, FUNCTION, SINK),
    (
        Step(SPARK, PLANNER, "which offsets come next?"),
        Step(PLANNER, STORE, "plan: txid 7 is\norders-0 [100, 200)", "stored"),
        Step(PLANNER, SPARK, "offsets, txid 7"),
        Step(SPARK, SPARK, "writes its offset log"),
        Step(SPARK, FUNCTION, "the batch, and the attempt with txid 7"),
        Step(FUNCTION, FUNCTION, "its tasks read\norders-0 [100, 200)"),
        Step(FUNCTION, SINK, "rows and txid 7,\nin one step", "stored"),
        Step(SPARK, SPARK, "writes its commit log"),
        Step(SPARK, PLANNER, "what follows txid 7?"),
        Step(PLANNER, STORE, "commit: txid 7 is done", "stored"),
    ),
)
REPLAY = Sequence(
    "replay",
    "Replay: the driver dies after the sink has written txid 7. The next run finds the"
    " stored plan, reads the same records again as txid 7, and the sink skips them.",
    ("first run", STORE, "next run", SINK),
    (
        Step("first run", STORE, "plan: txid 7 is\norders-0 [100, 200)", "stored"),
        Step("first run", SINK, "rows and txid 7", "stored"),
        Step("first run", "first run", "the driver dies", "crash"),
        Step("next run", STORE, "what is unfinished?"),
        Step(STORE, "next run", "txid 7:\norders-0 [100, 200)"),
        Step("next run", SINK, "the same rows,\ntxid 7"),
        Step(SINK, "next run", "has txid 7 already:\nskips the batch"),
        Step("next run", STORE, "commit: txid 7 is done", "stored"),
    ),
)
FENCING = Sequence(
    "fencing",
    "Fencing: a second run takes over with epoch 4. When the first run, of epoch 3,"
    " wakes up, store and sink refuse its writes.",
    ("first run", STORE, SINK, "second run"),
    (
        Step("first run", STORE, "owner: epoch 3", "stored"),
        Step("first run", "first run", "freezes", "crash"),
        Step("second run", STORE, "owner: epoch 4", "stored"),
        Step("second run", SINK, "txid 7,\nepoch 4", "stored"),
        Step("first run", SINK, "wakes up: txid 7, epoch 3"),
        Step(SINK, "first run", "refused: KAFKA_TX_FENCED"),
        Step("first run", "first run", "stops", "crash"),
    ),
)
TOPOLOGY = Sequence(
    "life-topology",
    "Life of a batch of a transactional topology: batches 7 and 8 are processed side by"
    " side, and their commit phases follow one another in txid order.",
    (DRIVER, STORE, TASKS, "committer", SINK),
    (
        Step(DRIVER, STORE, "plans of txid 7 and 8", "stored"),
        Step(DRIVER, TASKS, "process 7"),
        Step(DRIVER, TASKS, "process 8, at the same time"),
        Step(DRIVER, STORE, "I am the owner:\ncommit phase of 7", "stored"),
        Step(DRIVER, "committer", "finish_batch of 7"),
        Step("committer", SINK, "result, txid 7\nand epoch", "stored"),
        Step(DRIVER, STORE, "commit: 7 is done", "stored"),
        Step(DRIVER, "committer", "only now: finish_batch of 8"),
    ),
)
RECORDS = Sequence(
    "life-records",
    "Life of a chunk of an at-least-once topology: records succeed or fail alone. A"
    " failed record is retried, or becomes a dead letter. The stored offset never"
    " passes an unfinished record.",
    (DRIVER, TASKS, "dead letters", STORE),
    (
        Step(DRIVER, TASKS, "offsets 100 to 199"),
        Step(TASKS, DRIVER, "150 failed,\nall others completed"),
        Step(DRIVER, STORE, "committed: 150, and 151 to 199 are completed", "stored"),
        Step(DRIVER, TASKS, "retry 150"),
        Step(TASKS, DRIVER, "150 failed again"),
        Step(DRIVER, "dead letters", "150: no retry is left", "stored"),
        Step(DRIVER, STORE, "committed: 200", "stored"),
    ),
)
PROCESSES = Plan(
    "processes",
    "The processes of a query: Spark's JVM asks the planner for batches and gives tasks"
    " to workers. The planner and your program reach the store; workers reach Kafka and"
    " the sink.",
    (850, 330),
    (
        Box(("your program", "your function, attach()", "Python"), 115, 45),
        Box(("Spark", "query, checkpoint", "the driver's JVM"), 425, 45),
        Box(("planner", "format kafka_tx", "Python"), 735, 45),
        Box(("store", "txids, offsets, owner", "PostgreSQL, …"), 425, 160),
        Box(("workers", "tasks", "Python"), 425, 275),
        Box(("sink", "results with txids", "database, table, …"), 115, 275),
        Box(("Kafka", "brokers", ""), 735, 275),
    ),
    (
        ("batch, txid", ((330, 45), (210, 45))),
        ("what is next?", ((520, 45), (640, 45))),
        ("plans, commits", ((670, 75), (670, 160), (520, 160))),
        ("commits", ((180, 75), (180, 160), (330, 160))),
        ("rows and txid", ((90, 75), (90, 245))),
        ("ends of the logs", ((760, 75), (760, 245))),
        ("records", ((640, 275), (520, 275))),
        ("rows and txid", ((330, 275), (210, 275))),
    ),
)
ALL: tuple[Sequence | Plan, ...] = (
    PROCESSES,
    SOURCE,
    REPLAY,
    FENCING,
    TOPOLOGY,
    RECORDS,
)


def main() -> None:
    """Write all pictures."""
    for picture in ALL:
        (PICTURES / f"{picture.name}.svg").write_text(picture.svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
