from __future__ import annotations

import pytest

from tests.spark.spout_case import a_case


@pytest.fixture
def case():
    """An at-least-once topology over a log in memory."""
    with a_case() as made:
        yield made
