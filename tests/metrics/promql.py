"""Which metrics and labels a PromQL expression uses; whether the catalogue has them.

Not a parser: it finds names, selectors and label lists, which is what can drift from
the catalogue. Whether an expression is well-formed is Prometheus' own to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kafka_tx.metrics import catalogue
from kafka_tx.metrics.metric import PREFIX, Metric, MetricKind

_TARGET_LABELS = frozenset({"job", "instance", "namespace", "pod"})
"""Given by Prometheus to every series, or by a ``PodMonitor``."""
_SUFFIXES = ("_bucket", "_count", "_sum")

_SELECTOR = re.compile(rf"\b({PREFIX}\w+)\s*(?:{{([^{{}}]*)}})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_LABEL_LIST = re.compile(
    r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)"
)


@dataclass(frozen=True, slots=True)
class Selector:
    """One use of a metric: sample name, and matchers ``(label, operator, value)``."""

    sample: str
    matchers: tuple[tuple[str, str, str], ...]

    @property
    def metric(self) -> Metric | None:
        """The metric it selects; None when the catalogue has none of this name."""
        found = catalogue.BY_NAME.get(self.sample)
        if found is not None and found.kind is not MetricKind.HISTOGRAM:
            return found
        for suffix in _SUFFIXES:
            base = catalogue.BY_NAME.get(self.sample.removesuffix(suffix))
            if (
                self.sample.endswith(suffix)
                and base
                and base.kind is MetricKind.HISTOGRAM
            ):
                return base
        return None

    @property
    def labels(self) -> frozenset[str]:
        """The labels its samples carry."""
        names = self.metric.label_names if self.metric else ()
        le = {"le"} if self.sample.endswith("_bucket") else set()
        return frozenset(names) | _TARGET_LABELS | le


def selectors(expression: str) -> list[Selector]:
    """Every use of a kafka_tx metric, in order."""
    return [
        Selector(name, tuple(_MATCHER.findall(matchers)))
        for name, matchers in _SELECTOR.findall(expression)
    ]


def metrics_in(expression: str) -> frozenset[Metric]:
    """The metrics of the catalogue that an expression uses."""
    found = (selector.metric for selector in selectors(expression))
    return frozenset(metric for metric in found if metric is not None)


def problems(expression: str) -> list[str]:
    """Why the catalogue cannot answer the expression; empty when it can."""
    used = selectors(expression)
    known = frozenset[str]().union(*(selector.labels for selector in used))
    found = [problem for selector in used for problem in _selector_problems(selector)]
    for names in _LABEL_LIST.findall(expression):
        for name in filter(None, (name.strip() for name in names.split(","))):
            if name not in known | _TARGET_LABELS:
                found.append(f"no metric of the expression has the label {name}")
    return found


def _selector_problems(selector: Selector) -> Iterator[str]:
    metric = selector.metric
    if metric is None:
        yield f"{selector.sample} is not in the catalogue"
        return
    closed = {label.name: label.values for label in metric.labels if label.values}
    for name, operator, value in selector.matchers:
        if name not in selector.labels:
            yield f"{selector.sample} has no label {name}"
        elif operator in ("=", "!=") and value not in closed.get(name, (value,)):
            yield f"{name} of {selector.sample} is never {value!r}"
