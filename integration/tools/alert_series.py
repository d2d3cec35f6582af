"""Makes tests of promtool out of series that real jobs gave.

``RECORD_SERIES=<folder> KAFKA_TX_ALL=1 pytest integration/operations/test_alerts.py``
records what a Prometheus saw each second.
``python -m integration.tools.alert_series <folder>`` writes
``grafana/recorded_test.yml``. There a second counts as some minutes, so that the rules
have their true times.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from integration.operations.observing import GRAFANA, alert_rules
from tests.metrics.promql import selectors

LEAD = 12
"""Steps before the recording, so that times shortly before it are positive."""

Raw = list[tuple[dict[str, str], list[tuple[float, float]]]]


class Day(NamedTuple):
    """A recorded test, the seconds that one stands for, and whom it wakes.

    ``wakes``: critical alerts, and for how many ids each fires.
    """

    test: str
    second_s: int
    wakes: Mapping[str, int] = MappingProxyType({})


DAYS = (
    Day(
        "test_after_a_backfill_an_idle_time_a_burst_and_a_deployment_no_alert_is_left",
        20,
    ),
    Day("test_a_bounded_run_that_ended_is_not_missed", 20),
    Day(
        "test_a_job_that_hangs_in_its_very_first_batch_raises_an_alert"
        "_behind_each_door",
        300,
        {"KafkaTxCommitStalled": 3},
    ),
    Day(
        "test_old_records_raise_an_alert_only_if_the_job_does_not_get_away"
        "_from_retention",
        300,  # the first batch of a new session then looks like a hang, too
        {"KafkaTxCommitStalled": 2, "KafkaTxHeadroomSmall": 1},
    ),
    Day(
        "test_an_error_that_stops_a_query_raises_alerts_until_it_runs_again",
        60,
        {"KafkaTxDown": 1, "KafkaTxStopped": 1},
    ),
    Day("test_offsets_that_are_skipped_raise_an_alert", 60, {"KafkaTxDataLoss": 1}),
    Day(
        "test_batches_that_fail_again_and_again_raise_an_alert",
        60,
        {"KafkaTxReplayStorm": 1},
    ),
    Day("test_records_out_of_tries_raise_an_alert", 60, {"KafkaTxRecordsLost": 1}),
    Day(
        "test_owners_that_take_turns_raise_an_alert_and_one_takeover_does_not",
        60,
        {"KafkaTxTakeovers": 1},
    ),
)


def main(place: Path) -> None:
    """Write ``recorded_test.yml``."""
    asked = {each.sample for rule in alert_rules() for each in selectors(rule["expr"])}
    tests = [
        _test(day, json.loads((place / f"{day.test}.json").read_text()), asked)
        for day in DAYS
    ]
    head = [
        "# promtool test rules recorded_test.yml",
        "#",
        "# Made of series that real jobs gave: integration/tools/alert_series.py",
        "rule_files: [alerts.yml]",
        "evaluation_interval: 1m",
        "",
        "tests:",
    ]
    (GRAFANA / "recorded_test.yml").write_text("\n".join([*head, *tests]) + "\n")


def _test(day: Day, raw: Raw, asked: set[str]) -> str:
    used = [each for each in raw if each[0]["__name__"] in asked]
    began = min(at for _, values in used for at, _ in values)
    steps = int(max(at for _, values in used for at, _ in values) - began) + LEAD
    series = [_series(labels, values, began, day.second_s) for labels, values in used]
    fired = 'ALERTS{alertstate="firing", severity="critical"}'
    lines = [
        f"  - name: {day.test}",
        f"    interval: {day.second_s}s",
        "    input_series:",
        *sorted(series),
        "    promql_expr_test:",
        f"      - expr: count by (alertname) (count_over_time({fired}[7d]))",
        f"        eval_time: {steps * day.second_s}s",
        "        exp_samples:" + ("" if day.wakes else " []"),
        *(
            f"          - {{labels: '{{alertname=\"{name}\"}}', value: {count}}}"
            for name, count in day.wakes.items()
        ),
    ]
    return "\n".join(lines)


def _series(
    labels: dict[str, str],
    values: list[tuple[float, float]],
    began: float,
    second_s: int,
) -> str:
    name = labels["__name__"]
    kept = sorted((k, v) for k, v in labels.items() if k not in {"__name__", "job"})
    inside = ", ".join(f'{key}="{value}"' for key, value in kept)
    at = {round(when - began): value for when, value in values}
    texts = ["_"] * LEAD
    for step in range(max(at) + 2):
        if step in at:
            texts.append(_value(name, at[step], began, second_s))
        else:
            texts.append("_" if texts[-1] in {"_", "stale"} else "stale")
    return f"      - {{series: '{name}{{{inside}}}', values: '{_short(texts)}'}}"


def _value(name: str, value: float, began: float, second_s: int) -> str:
    if name.endswith("_timestamp_seconds") and value:
        return f"{(value - began + LEAD) * second_s:.0f}"
    is_time = name.endswith("_seconds")
    return f"{value * second_s if is_time else value:g}"


def _short(texts: list[str]) -> str:
    """Equal values once, with how often they follow: ``7x3`` are four."""
    parts = []
    for text, same in groupby(texts):
        more = len(list(same)) - 1
        if text == "stale" or not more:
            parts.append(text)
        else:
            parts.append(f"_x{more + 1}" if text == "_" else f"{text}x{more}")
    return " ".join(parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
