"""Which tests a run takes, and in which order."""

from __future__ import annotations

import os
import tempfile

import hypothesis
import pytest

from integration.sizes import EVERYTHING, size

hypothesis.settings.register_profile(
    "patient",
    deadline=None,  # a busy machine fails no example
    max_examples=size(40, 300),
)
hypothesis.settings.load_profile("patient")

pytest_plugins = ["tests.scheduling"]

_STATES = tempfile.TemporaryDirectory(prefix="kafka-tx-states-")
os.environ["XDG_STATE_HOME"] = _STATES.name
"""Stores that no test names are of this run, and of no user."""

LONGEST = (
    *("test_lakehouse", "test_crashes", "test_connect", "test_standalone"),
    *("test_topology_faults", "test_sink_replays", "test_topology_kills"),
    *("test_stores", "test_spout", "test_sink", "test_exactly_once", "test_reader"),
    *("test_state", "test_source_faults", "test_source_parity", "test_doc_blocks"),
    *("test_status_page", "test_alerts", "test_tokens", "test_examples", "test_people"),
    *("test_source", "test_guarantees", "test_source_anew", "test_numbering"),
    *("test_silent_servers", "test_demo", "test_topology", "test_mirror_outage"),
    *("test_kafka_bolt", "test_sink_faults", "test_topology_patience"),
    *("test_reused_clients", "test_native_reader", "test_sink_silence"),
    *("test_topology_kinds", "test_late_binding", "test_overtaken", "test_versions"),
    *("test_cluster_view", "test_kafka_sink_bolt", "test_site"),
    *("test_both_readers_faults", "test_secured", "test_transactions", "test_offsets"),
    *("test_maps", "test_dead_letters", "test_batch_limits", "test_several_sources"),
    *("test_sink_markers", "test_spout_timeouts", "test_secrets"),
    *("test_at_least_once_runner_faults", "test_both_writers"),
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
    return len(LONGEST) + (0 if item.nodeid.startswith("integration/") else 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests ran twice, where they may: what fails now and then is a defect."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"{report.nodeid} ran again after {report.when}")
        terminalreporter.write_line(report.longreprtext)
