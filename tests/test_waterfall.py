"""The waterfall of ``benchmarks latency``: no time is counted twice or left out."""

from benchmarks.waterfall import ROWS, of_trigger, table

DURATIONS = {
    "triggerExecution": 200,
    "latestOffset": 10,
    "walCommit": 40,
    "getBatch": 1,
    "queryPlanning": 4,
    "addBatch": 90,
    "commitOffsets": 50,
}
INSIDE = {"function": 80.0, "job": 70.0, "sink": 6.0}


def rows_below(parent, depth):
    names = [row.strip() for row in ROWS]
    place = names.index(parent) + 1
    for row in ROWS[place:]:
        level = (len(row) - len(row.lstrip())) // 2
        if level < depth:
            return
        if level == depth:
            yield row.strip()


def test_the_parts_of_a_row_add_up_to_it():
    steps = of_trigger(DURATIONS, INSIDE)

    assert sum(steps[row] for row in rows_below("trigger", 1)) == steps["trigger"]
    assert sum(steps[row] for row in rows_below("addBatch", 2)) == steps["addBatch"]
    assert steps["the question for the txid"] == 4
    assert steps["the rest of the trigger"] == 5


def test_a_system_without_a_step_has_an_empty_cell():
    lines = table({"one": [of_trigger(DURATIONS, INSIDE)] * 3, "none": []})

    assert len(lines) == len(ROWS) + 1
    assert lines[1].split() == ["trigger", "200.0"]
