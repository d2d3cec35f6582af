"""A registry whose time stands still until a test moves it."""

import pytest

from kafka_tx.metrics import MetricsRegistry
from tests.metrics.facts import ManualTime


@pytest.fixture
def clock() -> ManualTime:
    return ManualTime()


@pytest.fixture
def registry(clock: ManualTime) -> MetricsRegistry:
    return MetricsRegistry(monotonic_ms=clock)
