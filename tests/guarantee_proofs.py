"""Which tests prove which cell of the README's guarantees: the columns in their order.

A path below the repository and a test's name; ``""`` where the cell says nothing of its
own: it is empty, or refers to another one.
"""

from __future__ import annotations

Proofs = dict[str, tuple[str, ...]]

_MATRIX = "integration/test_guarantees.py::test_each_batch_is_counted_as_the_table_says"
_KILLS = (
    "integration/test_crashes.py::test_a_kill_at_every_point_loses_and_repeats_nothing"
)
_FAULTS = "integration/test_source_faults.py::"
_BATCHES = "tests/spark/test_microbatches.py::"
_TRANSACTIONS = "tests/spark/test_transactional.py::"
_NUMBERS = "integration/test_numbering.py::"
_SIMULATED = (
    "tests/properties/test_source.py"
    "::test_every_record_counts_once_or_a_documented_error_says_what_to_do"
)
_SINK = "integration/test_sink.py::"
_REPLAYS = "integration/test_sink_replays.py::"
_BOLT = "integration/test_kafka_bolt.py::"
_SIMULATED_SINKS = "tests/properties/test_sinks.py::"
_COMMITS = "integration/test_topology_commits.py::"

DRIVER: Proofs = {
    "task or executor dies": (
        _FAULTS + "test_a_task_that_dies_takes_nothing_with_it",
        "integration/test_exactly_once.py"
        "::test_each_record_is_written_once_whatever_dies",
        "integration/test_state_topology.py"
        "::test_killed_drivers_and_workers_leave_state_that_equals_a_recount",
        _FAULTS + "test_a_task_that_dies_takes_nothing_with_it",
    ),
    "driver dies before the sink's commit": (_MATRIX, _KILLS, _KILLS, _MATRIX),
    "driver dies after the sink's commit, before Spark's commit log": (
        *(_MATRIX, _KILLS, _KILLS, _MATRIX),
    ),
    "driver dies after Spark's commit log": (_MATRIX, _KILLS, _MATRIX, _MATRIX),
    "checkpoint deleted": (_MATRIX, _KILLS, _KILLS, _MATRIX),
    "newest entry of the commit log lost": (_MATRIX, _MATRIX, _MATRIX, _MATRIX),
}
