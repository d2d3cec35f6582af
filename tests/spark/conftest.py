from __future__ import annotations

import pytest
from pyspark import SparkContext

from tests.spark.spout_case import a_case


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    """Hide the JVM of a session that an earlier test of this process has ended."""
    monkeypatch.setattr(SparkContext, "_gateway", None)


@pytest.fixture
def case(without_spark):
    """An at-least-once topology over a log in memory."""
    with a_case() as made:
        yield made
