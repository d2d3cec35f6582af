"""The metrics of a registry as prometheus_client has them: ours must read the same."""

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kafka_tx.metrics import MetricsRegistry, catalogue
from kafka_tx.metrics.metric import Metric, MetricKind
from kafka_tx.metrics.series import Samples


class Families(Collector):
    """Every metric of a registry that has samples, in the order of the catalogue."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        found = self._registry.samples()
        shown = (metric for metric in catalogue.ALL if found[metric.name])
        return (family(metric, found[metric.name]) for metric in shown)


def prometheus(registry: MetricsRegistry) -> CollectorRegistry:
    """A registry of prometheus_client with the same samples, taken at each use."""
    theirs = CollectorRegistry()
    theirs.register(Families(registry))
    return theirs


def family(metric: Metric, samples: Samples) -> Family:
    """The metric with its samples, for prometheus_client to write as text."""
    return _FAMILIES[metric.kind](metric, samples)


def _single(metric: Metric, samples: Samples) -> Family:
    is_counter = metric.kind is MetricKind.COUNTER
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=metric.label_names, unit=metric.unit)
    for key, (value,) in samples.items():
        made.add_metric(key, value)
    return made


def _histogram(metric: Metric, samples: Samples) -> Family:
    made = HistogramMetricFamily(
        metric.name, metric.help, labels=metric.label_names, unit=metric.unit
    )
    bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
    for key, (*counts, total) in samples.items():
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        made.add_metric(key, buckets, sum_value=total)
    return made


def _info(metric: Metric, samples: Samples) -> Family:
    name = metric.name.removesuffix("_info")
    made = InfoMetricFamily(name, metric.help, labels=metric.label_names)
    for key in samples:
        made.add_metric(key, {})
    return made


_FAMILIES: dict[MetricKind, Callable[[Metric, Samples], Family]] = {
    MetricKind.COUNTER: _single,
    MetricKind.GAUGE: _single,
    MetricKind.HISTOGRAM: _histogram,
    MetricKind.INFO: _info,
}
