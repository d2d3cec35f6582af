"""What a dashboard panel is: title, sentence, unit and queries."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BY = re.compile(r"by \(([^()]+)\)")
_SHORTHANDS = {
    "<id>": '{id=~"$id"}',
    "<topic>": '{id=~"$id", topic=~"$topic"}',
    "<rate>": "[$__rate_interval]",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the name of its lines, which may name labels."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: A few words.
        text: What the reader should make of it.
        unit: Grafana's name of the unit.
        queries: What it shows; all in ``unit``.
        kind: Grafana's name of the visualisation.
        width: In columns of Grafana's grid of 24.
        height: In rows of it.
        thresholds: ``(colour, from)``; the first one holds from the bottom.
    """

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    thresholds: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PanelRow:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def graph(title: str, text: str, unit: str, *queries: Query) -> Panel:
    """Lines over time, a third of the dashboard wide."""
    return Panel(title, text, unit, queries)


def number(
    title: str, text: str, unit: str, query: Query, *thresholds: tuple[str, float]
) -> Panel:
    """One number for each id, a quarter of the dashboard wide."""
    return Panel(title, text, unit, (query,), "stat", 6, 5, thresholds)


def query(expression: str, name: str = "") -> Query:
    """A query; ``<id>``, ``<topic>`` and ``<rate>`` stand for what the user chose.

    Its lines are called by the labels they are summed ``by``, and by ``name``.
    """
    labels = _BY.search(expression)
    assert labels is not None
    shown = [label for label in labels[1].split(", ") if label != "le"]
    legend = " ".join(f"{{{{{label}}}}}" for label in shown)
    for short, meant in _SHORTHANDS.items():
        expression = expression.replace(short, meant)
    return Query(expression, f"{legend} {name}".strip())


def rate(counter: str, by: str, name: str = "") -> Query:
    """How much a counter grows in a second, summed ``by`` labels."""
    return query(f"sum by ({by}) (rate({counter}<rate>))", name)


def increase(counter: str, by: str, name: str = "") -> Query:
    """How much a counter grew in an interval of the graph, summed ``by`` labels."""
    return query(f"sum by ({by}) (increase({counter}<rate>))", name)


def quantiles(histogram: str, where: str = "<id>") -> tuple[Query, ...]:
    """Median, 95th and 99th percentile of a histogram, for each id."""
    buckets = f"sum by (le, id) (rate({histogram}_bucket{where}<rate>))"
    quantiles = ((0.5, "median"), (0.95, "p95"), (0.99, "p99"))
    return tuple(
        query(f"histogram_quantile({share}, {buckets})", name)
        for share, name in quantiles
    )
