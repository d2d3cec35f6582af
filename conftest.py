"""Which tests a run takes, and in which order."""

from __future__ import annotations

import pytest

from integration.sizes import EVERYTHING

LONGEST = (
    *("test_standalone", "test_connect", "test_topology_faults", "test_guarantees"),
    *("test_crashes", "test_topology_kills", "test_exactly_once", "test_spout"),
    *("test_demo", "test_chaos", "test_state", "test_source_anew", "test_sink_replays"),
    *("test_topology", "test_numbering", "test_stores", "test_sink", "test_cluster"),
    *("test_source_parity", "test_source_faults", "test_kafka_bolt", "test_examples"),
    *("test_reader", "test_sink_faults", "test_silent_servers", "test_state_topology"),
    *("test_topology_kinds", "test_tokens", "test_overtaken", "test_wheel"),
    *("test_transactions", "test_source", "test_offsets", "test_maps"),
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
