"""Draws the dashboard's panels from a real Prometheus: ``make pictures`` runs this.

Two real jobs run for two minutes while records arrive in waves, and a Prometheus
scrapes them. The picture shows the answers to the queries of the panels. Grafana itself
is not part of it.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import kafka_tx
from grafana.panels import BATCHES, LAG, LOSS, RIGHT, Panel, Query
from integration.cluster import provider
from integration.cluster.records import Produce, Record
from integration.cluster.spark_local import local_session
from integration.operations.observing import RATE_INTERVAL, PrometheusApi
from integration.operations.watching import watching

WARM_UP, SECONDS = 25, 130
TOPIC, QUERY, TOPOLOGY = "orders", "order-counts", "invoice-totals"
SHOWN = (
    "Lag in records",
    "Lag in seconds",
    "Distance from deletion",
    "Records per second",
    "Batches in flight by phase",
    "Time by phase",
    "Batch duration",
    "Attempts",
    "Txid",
)
WIDTH, HEIGHT, GAP, COLUMNS = 310, 190, 12, 3
STYLE = """
svg.dashboard { --ink: #1f2328; --dim: #6e7781; --paper: #ffffff; --card: #f6f8fa;
  font: 11px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg.dashboard { --ink: #e6edf3; --dim: #9aa4af;
  --paper: #0d1117; --card: #161b22; } }
svg.dashboard text { fill: var(--ink); } svg.dashboard .dim { fill: var(--dim); }
svg.dashboard .paper { fill: var(--paper); } svg.dashboard .card { fill: var(--card); }
svg.dashboard .title { font-weight: 600; } svg.dashboard .big { font-size: 26px; }
svg.dashboard .legend { font-size: 9.5px; }
svg.dashboard polyline { fill: none; stroke-width: 1.6; }
svg.dashboard .axis { stroke: var(--dim); stroke-width: 0.5; }
"""
COLOURS = ("#3b7dd8", "#c2571a", "#2a8a5f", "#9a4fb5", "#b8860b", "#c0392b")

Line = tuple[str, list[tuple[float, float]]]
"""A legend, and values by time in seconds."""


class Slow(kafka_tx.BatchBolt):
    """Counts rows; of every 15th batch most attempts fail."""

    def prepare(self, context: Any, collector: Any) -> None:
        self.attempt, self.count = context.attempt, 0

    def execute(self, row: Any) -> None:
        self.count += 1

    def finish_batch(self) -> None:
        time.sleep(0.05)
        if self.attempt.txid % 15 == 0 and self.attempt.attempt_id % 4 < 3:
            raise kafka_tx.FailedException("the service was busy")


def main(place: Path) -> None:
    """Write ``dashboard.svg``."""
    kafka = provider.chosen().kafka(1)
    kafka.start()
    try:
        kafka.create_topic(TOPIC, 4)
        with tempfile.TemporaryDirectory() as work:
            lines = observed(kafka, Path(work))
    finally:
        kafka.stop()
    (place / "dashboard.svg").write_text(picture(lines), encoding="utf-8")


def observed(kafka: Any, work: Path) -> list[tuple[Panel, list[Line]]]:
    """Run both jobs, and ask Prometheus for every panel."""
    spark = local_session(work)
    attached = kafka_tx.attach(spark, metrics_port=0)
    with (
        watching(f"127.0.0.1:{attached.port}") as prometheus,
        jobs(spark, kafka, work, attached),
        arriving(kafka),
    ):
        time.sleep(WARM_UP)
        began = time.time()
        time.sleep(SECONDS)
        ended = time.time()
        return [
            (p, [x for q in p.queries for x in asked(prometheus, q, began, ended)])
            for p in chosen()
        ]


def chosen() -> list[Panel]:
    """The numbers, and the graphs of ``SHOWN`` in its order."""
    every = (*LOSS.panels, *LAG.panels, *BATCHES.panels)
    graphs = [p for p in every if p.title in SHOWN]
    return [*RIGHT.panels, *sorted(graphs, key=lambda p: SHOWN.index(p.title))]


@contextmanager
def jobs(spark: Any, kafka: Any, work: Path, attached: Any) -> Iterator[None]:
    """A query and a transactional topology."""
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "2000",
    }
    counts = kafka_tx.TransactionalMap(f"sqlite:///{work}/results.db", "counts")

    def count(df: Any, attempt: Any) -> None:
        keys = df.selectExpr("string(key) AS key")
        kafka_tx.update_map(keys, attempt, counts, reducer="count")

    query = (
        spark.readStream.format("kafka_tx")
        .options(**options)
        .option("tx.id", QUERY)
        .option("tx.store", f"sqlite:///{work}/source.db")
        .load()
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(count))
        .option("checkpointLocation", f"{work}/checkpoint")
        .start()
    )
    spout = kafka_tx.TransactionalKafkaSpout(options)
    builder = kafka_tx.TransactionalTopologyBuilder(TOPOLOGY, "spout", spout, 2)
    builder.set_bolt("count", Slow(), 2).shuffle_grouping("spout")
    handle = builder.build().start(
        spark,
        {"tx.store": f"sqlite:///{work}/topology.db", "tx.maxPending": "3"},
    )
    try:
        yield
    finally:
        query.stop()
        handle.stop()
        counts.close()
        attached.close()


@contextmanager
def arriving(kafka: Any) -> Iterator[None]:
    """Records: some at all times, and many every 40 seconds."""
    over = threading.Event()

    send = Produce(kafka.bootstrap_servers)

    def produce() -> None:
        second = 0
        while not over.wait(1):
            second += 1
            many = 6_000 if second % 40 in range(10, 16) else 300
            send(TOPIC, [Record(str(n), key=f"k{n % 9}") for n in range(many)])

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def asked(
    prometheus: PrometheusApi, query: Query, began: float, ended: float
) -> Iterator[Line]:
    """What a panel's query answers for the whole time, one line a series."""
    expression = query.expression.replace("$__rate_interval", RATE_INTERVAL)
    for variable in ("$job", "$id", "$topic"):
        expression = expression.replace(variable, ".*")
    found = prometheus.range(expression, began, ended)
    for labels, values in found:
        legend = query.legend
        for label in re.findall(r"{{(\w+)}}", legend):
            legend = legend.replace(f"{{{{{label}}}}}", labels.get(label, ""))
        known = [(t, v) for t, v in values if v == v]  # NaN where nothing happened
        if known:
            yield legend, known


def picture(panels: Sequence[tuple[Panel, list[Line]]]) -> str:
    """The panels in rows: numbers first, then graphs."""
    numbers = [each for each in panels if each[0].kind == "stat"]
    graphs = [each for each in panels if each[0].kind != "stat"]
    whole = COLUMNS * (WIDTH + GAP) + GAP
    narrow = (whole - GAP) / len(numbers) - GAP
    parts, y = [], GAP
    for n, (panel, lines) in enumerate(numbers):
        parts.append(_number(panel, lines, GAP + n * (narrow + GAP), y, narrow))
    y += 100 + GAP
    for n, (panel, lines) in enumerate(graphs):
        row, column = divmod(n, COLUMNS)
        x = GAP + column * (WIDTH + GAP)
        parts.append(_graph(panel, lines, x, y + row * (HEIGHT + GAP)))
    tall = y + -(-len(graphs) // COLUMNS) * (HEIGHT + GAP)
    title = "Panels of the dashboard, drawn from a Prometheus that watched two jobs"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dashboard" role="img"'
        f' viewBox="0 0 {whole} {tall}" aria-label="{title}"><title>{title}</title>'
        f'<style>{STYLE}</style><rect class="paper" width="{whole}" height="{tall}"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _number(panel: Panel, lines: list[Line], x: float, y: float, width: float) -> str:
    rows = [
        f'<text x="{x + 10:.0f}" y="{y + 56 + 34 * n:.0f}"><tspan class="big">'
        f'{_word(panel, values[-1][1])}</tspan><tspan class="dim" dx="8">'
        f"{escape(legend)}</tspan></text>"
        for n, (legend, values) in enumerate(lines[:2])
    ]
    return _card(panel, x, y, width, 100) + "".join(rows)


def _graph(panel: Panel, lines: list[Line], x: float, y: float) -> str:
    shown = lines[: len(COLOURS)]
    times = [t for _, values in shown for t, _ in values] or [0.0, 1.0]
    top = max((v for _, values in shown for _, v in values), default=1.0) or 1.0
    left, right, high, low = x + 44, x + WIDTH - 12, y + 34, y + HEIGHT - 62
    span = (max(times) - min(times)) or 1.0
    parts = [
        _card(panel, x, y, WIDTH, HEIGHT),
        f'<line class="axis" x1="{left}" y1="{low}" x2="{right}" y2="{low}"/>',
        f'<text class="dim" text-anchor="end" x="{left - 6}" y="{high + 4}">'
        f"{_short(top, panel.unit)}</text>",
        f'<text class="dim" text-anchor="end" x="{left - 6}" y="{low + 4}">0</text>',
    ]
    for n, (legend, values) in enumerate(shown):
        points = " ".join(
            f"{left + (t - min(times)) / span * (right - left):.1f},"
            f"{low - v / top * (low - high):.1f}"
            for t, v in values
        )
        colour = COLOURS[n]
        row, column = divmod(n, 2)
        at = x + 12 + column * 148
        parts.append(
            f'<polyline stroke="{colour}" points="{points}"/>'
            f'<rect fill="{colour}" x="{at}" y="{low + 14 + 15 * row}" width="9"'
            f' height="3"/><text class="dim legend" x="{at + 14}"'
            f' y="{low + 19 + 15 * row}">{escape(legend)[:26]}</text>'
        )
    return "".join(parts)


def _card(panel: Panel, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="card" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}"'
        f' height="{height}" rx="4"/><text class="title" x="{x + 10:.0f}"'
        f' y="{y + 20:.0f}">{escape(panel.title)}</text>'
    )


def _word(panel: Panel, value: float) -> str:
    if panel.states:
        return panel.states[int(value)][0]
    return _short(value, panel.unit)


def _short(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
