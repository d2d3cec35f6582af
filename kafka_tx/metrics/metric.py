"""The definition of a metric: name, kind, labels, meaning. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PREFIX = "kafka_tx_"


class MetricKind(Enum):
    """The kinds of metrics of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Fed(Enum):
    """The part of the software that moves a metric, so which jobs have it."""

    COMMIT = "every commit"
    RUN = "starts and ends of runs"
    LOG = "polls of lagging logs"
    STORE = "`kafka-tx lag --serve`"
    BATCH = "commits of numbered batches"
    PHASE = "phases of batches"
    RECORD = "the at-least-once spout"
    DEAD_LETTER = "the at-least-once spout, `with_dead_letters`"
    TABLE = "`append_to_table`, `write_to_table`"
    PROCESS = "the process"


@dataclass(frozen=True, slots=True)
class Label:
    """A label; ``values`` is its closed set, or empty when any text is legal."""

    name: str
    values: tuple[str, ...] = ()


ID = Label("id")
PER_ID = (ID,)
PER_PARTITION = (ID, Label("topic"), Label("partition"))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Full name, as scraped (histograms get ``_bucket``, ``_sum``, ``_count``).
        labels: In this order everywhere; ``id``, ``topic``, ``partition`` come first.
        help: One sentence, with the edge if there is one.
        fed: Which part of the software moves it.
        storm: The name of Storm's Kafka spouts for it; empty: they have none.
        buckets: Upper bounds of a histogram in its unit, ascending, without +Inf.
        begins_at_zero: It shows 0 as soon as its id or partition is known, so that
            ``increase()`` notices its first step: for an id with all values of its
            closed label, for a partition with the first one.
    """

    name: str
    kind: MetricKind
    labels: tuple[Label, ...]
    help: str
    fed: Fed
    storm: str = ""
    buckets: tuple[float, ...] = ()
    begins_at_zero: bool = False

    @property
    def unit(self) -> str:
        """The last word of the name, ``_total`` apart; empty for an info metric."""
        if self.kind is MetricKind.INFO:
            return ""
        return self.name.removesuffix("_total").rpartition("_")[2]

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels, in order."""
        return tuple(label.name for label in self.labels)

    @property
    def is_per_partition(self) -> bool:
        """Whether its label sets begin with id, topic and partition."""
        return self.labels[:3] == PER_PARTITION


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes metrics with the same source and the same first labels."""

    fed: Fed
    labels: tuple[Label, ...]

    def counter(
        self,
        name: str,
        text: str,
        *more: Label,
        storm: str = "",
        begins_at_zero: bool = True,
    ) -> Metric:
        """A number that only grows, until the process ends."""
        full = f"{PREFIX}{name}_total"
        labels, kind = (*self.labels, *more), MetricKind.COUNTER
        return Metric(full, kind, labels, text, self.fed, storm, (), begins_at_zero)

    def gauge(
        self,
        name: str,
        text: str,
        *more: Label,
        storm: str = "",
        begins_at_zero: bool = False,
    ) -> Metric:
        """A number that can rise and fall."""
        full, labels = PREFIX + name, (*self.labels, *more)
        kind = MetricKind.GAUGE
        return Metric(full, kind, labels, text, self.fed, storm, (), begins_at_zero)

    def histogram(
        self,
        name: str,
        text: str,
        *more: Label,
        buckets: tuple[float, ...],
        storm: str = "",
    ) -> Metric:
        """How often a value fell below each of the bounds."""
        full, labels = PREFIX + name, (*self.labels, *more)
        return Metric(
            full, MetricKind.HISTOGRAM, labels, text, self.fed, storm, buckets
        )
