"""What the log of a Delta table tells of a table that was restored or replaced."""

from __future__ import annotations

import pytest

from kafka_tx.sinks.delta_rollbacks import Rollback, rolled_back_since


def commit(operation, *, add="", remove="", **parameters):
    """The actions of a version; each letter is a file."""
    info = {"operation": operation, "operationParameters": parameters}
    files = [{"add": {"path": path}} for path in add]
    files += [{"remove": {"path": path}} for path in remove]
    return [{"commitInfo": info}, *files]


ROWS = [commit("WRITE", add=path) for path in "abc"]
"""Version 0 has file a, 1 has also b, and 2 has also c."""
COMPACTED = commit("OPTIMIZE", add="d", remove="abc")
TO_1 = commit("RESTORE", remove="c", version=None, timestamp="2026-11-29 16:13:56.73")
UNKNOWN = commit("RESTORE", remove="x", version=None)


@pytest.mark.parametrize("version", [None, "null"])
@pytest.mark.parametrize(
    ("log", "written", "expected"),
    [
        ([*ROWS, TO_1], 1, None),
        ([*ROWS, TO_1], 2, Rollback(3, "RESTORE", 1)),
        ([*ROWS, COMPACTED, commit("RESTORE", add="abc", remove="d")], 2, None),
        (
            [*ROWS, COMPACTED, commit("RESTORE", add="ab", remove="d")],
            2,
            Rollback(4, "RESTORE", 1),
        ),
        ([*ROWS, commit("RESTORE")], 2, None),
        (
            [*ROWS, TO_1, commit("WRITE", add="e"), commit("RESTORE", remove="e")],
            1,
            None,
        ),
        ([*ROWS, TO_1, commit("RESTORE", add="c")], 2, None),
        ([*ROWS, UNKNOWN], 2, Rollback(3, "RESTORE")),
        ([*ROWS, TO_1, commit("RESTORE")], 2, Rollback(3, "RESTORE", 1)),
    ],
)
def test_a_restore_to_a_time_is_known_by_its_files(version, log, written, expected):
    for info in (each[0]["commitInfo"] for each in log):
        info["operationParameters"]["version"] = version

    assert rolled_back_since(written, len(log) - 1, log.__getitem__) == expected


def test_where_the_log_is_gone_a_restore_to_a_time_is_unknown():
    log = {2: ROWS[2], 3: commit("RESTORE", remove="bc")}

    found = rolled_back_since(2, 3, lambda version: log.get(version, []))

    assert found is not None
    assert found.is_unknown
    assert (found.fate, str(found)) == (
        "may be gone",
        "version 3 restored the table to a former time",
    )


@pytest.mark.parametrize("way", ["CREATE OR REPLACE TABLE", "REPLACE TABLE"])
def test_a_replaced_table_has_no_row_of_the_former_one(way):
    log = [*ROWS, commit(way, remove="abc", add="x"), commit("WRITE", add="y")]

    found = rolled_back_since(2, 4, log.__getitem__)

    assert found == Rollback(3, way)
    assert found.is_replacement
    assert not found.is_unknown
    assert str(found) == f"version 3 replaced the table ({way})"
    log.append(commit("RESTORE", version=2))
    assert rolled_back_since(2, 5, log.__getitem__) is None
    overwritten = [*ROWS, commit("WRITE", remove="abc", add="x", mode="Overwrite")]
    assert rolled_back_since(2, 3, overwritten.__getitem__) is None


@pytest.mark.parametrize("way", ["CREATE OR REPLACE TABLE", "REPLACE TABLE"])
def test_an_overwrite_that_delta_calls_a_replacement_may_have_kept_the_rows(way):
    """``saveAsTable`` with the mode overwrite, of some partitions or of all."""
    way = f"{way} AS SELECT"
    log = [*ROWS, commit(way, remove="abc", add="x")]

    found = rolled_back_since(2, 3, log.__getitem__)

    assert found == Rollback(3, way)
    assert not found.is_replacement
    assert (found.fate, str(found)) == (
        "may be gone",
        f"version 3 wrote the table anew ({way})",
    )
    for parameter in ("isDynamicPartitionOverwrite", "isV1SaveAsTableOverwrite"):
        for value, expected in (("true", None), (True, None), ("false", found)):
            log[3] = commit(way, remove="a", add="x", **{parameter: value})
            assert rolled_back_since(2, 3, log.__getitem__) == expected
