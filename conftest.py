"""Which tests a run takes: those marked ``all`` only where everything is asked for."""

from __future__ import annotations

import pytest

from integration.sizes import EVERYTHING


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what repeats on more parts, or for longer, what others show."""
    if EVERYTHING:
        return
    left_out = [item for item in items if item.get_closest_marker("all")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("all")]
