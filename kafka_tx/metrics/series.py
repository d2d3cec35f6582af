"""The samples of one metric: its label sets and their values.

Plain dictionaries instead of prometheus_client's own metrics: one lock of the registry
covers a whole commit, so a scrape never shows half of one; label sets that are no
longer owned can be dropped at once; and a commit of 1,000 partitions costs a few
milliseconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping

from kafka_tx.metrics.metric import Metric, MetricKind

Key = tuple[str, ...]
"""Label values in the order of the metric's labels."""

Samples = dict[Key, tuple[float, ...]]
"""The value of each label set; a histogram's is a count for each bucket, one for
+Inf, and the sum of all values."""


Changes = dict[Key, tuple[float, ...] | None]
"""The new value of each label set that changed; None: it is gone."""


class Series:
    """One metric's values by label set. Not thread-safe.

    Methods raise ValueError for a metric of another kind.
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._rows: dict[Key, tuple[float, ...]] = {}
        self._changed: dict[Key, None] = {}

    def key(self, labels: Mapping[str, str]) -> Key:
        """Label values in order; raises ValueError for other names or values."""
        names = self.metric.label_names
        if labels.keys() != set(names):
            raise ValueError(f"labels are {sorted(labels)}; legal: {sorted(names)}")
        for label in self.metric.labels:
            if label.values and labels[label.name] not in label.values:
                raise ValueError(
                    f"label {label.name} is {labels[label.name]!r};"
                    f" legal: {', '.join(label.values)}"
                )
        return tuple(str(labels[name]) for name in names)

    def get(self, key: Key) -> float | None:
        """The number of a counter or gauge; None before it has one."""
        row = self._rows.get(key)
        return None if row is None else row[0]

    def add(self, key: Key, amount: float) -> None:
        """Add to a counter; raises ValueError for a negative amount, too."""
        self._must_be(MetricKind.COUNTER)
        if not 0 <= amount < math.inf:
            raise ValueError(f"a counter cannot grow by {amount}")
        self._put(key, (self._rows.get(key, (0.0,))[0] + amount,))

    def set(self, key: Key, value: float) -> None:
        """Set a gauge."""
        self._must_be(MetricKind.GAUGE)
        self._put(key, (float(value),))

    def begin(self, key: Key) -> None:
        """Show 0 where nothing is shown yet."""
        if key not in self._rows:
            self._put(key, (0.0,))

    def observe(self, key: Key, value: float) -> None:
        """Count one value in a histogram; raises ValueError for NaN, too."""
        self._must_be(MetricKind.HISTOGRAM)
        if math.isnan(value):
            raise ValueError("a histogram cannot take NaN")
        buckets = self.metric.buckets
        row = list(self._rows.get(key) or (0.0,) * (len(buckets) + 2))
        row[bisect_left(buckets, value)] += 1
        row[-1] += value
        self._put(key, tuple(row))

    def show(self, key: Key) -> None:
        """Make an info's label set visible."""
        self._must_be(MetricKind.INFO)
        self._put(key, (1.0,))

    def drop(self, is_gone: Callable[[Key], bool]) -> None:
        """Drop every label set for which ``is_gone`` is true."""
        for key in [key for key in self._rows if is_gone(key)]:
            del self._rows[key]
            self._changed[key] = None

    def drop_one(self, key: Key) -> None:
        """Drop a label set, if it is there."""
        if self._rows.pop(key, None) is not None:
            self._changed[key] = None

    def values(self) -> Samples:
        """The values themselves; do not change them."""
        return self._rows

    def samples(self) -> Samples:
        """A copy of everything, to be turned into text outside the lock."""
        return dict(self._rows)

    @property
    def has_changed(self) -> bool:
        """Whether ``changes`` would return any change."""
        return bool(self._changed)

    def changes(self) -> Changes:
        """Changes since the last call; for one caller only."""
        changed, self._changed = self._changed, {}
        return {key: self._rows.get(key) for key in changed}

    def all_changed(self) -> None:
        """Let the next ``changes`` return everything."""
        self._changed = dict.fromkeys(self._rows)

    def _put(self, key: Key, row: tuple[float, ...]) -> None:
        if self._rows.get(key) != row:
            self._rows[key] = row
            self._changed[key] = None

    def _must_be(self, kind: MetricKind) -> None:
        if self.metric.kind is not kind:
            raise ValueError(f"its kind is {self.metric.kind.value}, not {kind.value}")
