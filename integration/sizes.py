"""How much a test does, where more shows the same for longer."""

from __future__ import annotations

import os
from typing import Any

EVERYTHING = os.environ.get("KAFKA_TX_ALL", "0") not in ("", "0")
"""Set by ``make test-all``: tests marked ``all`` run too, and others do more."""


def size(usual: int, large: int, variable: str = "") -> int:
    """What a test takes: ``usual``, or ``large`` where everything is asked for.

    An environment variable of that name, if there is one, wins.
    """
    return int(os.environ.get(variable) or (large if EVERYTHING else usual))


def in_all(*values: Any) -> list[Any]:
    """Parameters of tests that are marked ``all``."""
    import pytest  # which drivers of tests, that import this module, can do without

    return [pytest.param(value, marks=pytest.mark.all) for value in values]
