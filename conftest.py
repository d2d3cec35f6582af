"""Which tests a run takes, and in which order."""

from __future__ import annotations

import pytest

from integration.sizes import EVERYTHING

LONGEST = (
    *("test_exactly_once", "test_spout", "test_topology_kills", "test_crashes"),
    *("test_topology", "test_stores", "test_sink_replays", "test_demo", "test_chaos"),
    *("test_guarantees", "test_mirror_outage", "test_state", "test_state_topology"),
    *("test_spout_zookeeper", "test_cluster", "test_silent_servers", "test_wheel"),
    *("test_session_ends", "test_transactions", "test_reused_clients"),
)
"""Files that come first: what is begun last is waited for by all other workers."""


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what repeats on more parts, or for longer, what others show."""
    left_out = [item for item in items if item.get_closest_marker("all")]
    if left_out and not EVERYTHING:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("all")]
    items.sort(key=turn)


def turn(item: pytest.Item) -> int:
    """Where a test's file has its turn; files of the same one stay as they are."""
    if item.path.stem in LONGEST:
        return LONGEST.index(item.path.stem)
    is_real = item.path.is_relative_to(item.config.rootpath / "integration")
    return len(LONGEST) + (0 if is_real else 1)
