"""How every benchmark prints what it measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One line of a benchmark; ``ratio`` is above 1 where kafka_tx is better."""

    case: str
    kafka_tx: float
    baseline: float
    unit: str
    less_is_better: bool = True

    @property
    def ratio(self) -> float:
        ours, theirs = self.kafka_tx, self.baseline
        return theirs / ours if self.less_is_better else ours / theirs


def print_report(
    benchmark: str, baseline: str, cases: Sequence[Case], *, as_json: bool
) -> None:
    """Print a table; with ``as_json``, one JSON object as the last line."""
    width = max(len("case"), *(len(case.case) for case in cases))
    print(f"{benchmark}: kafka_tx against {baseline}")
    print(f"{'case':<{width}}  {'kafka_tx':>12}  {'baseline':>12}  {'ratio':>7}  unit")
    for case in cases:
        print(
            f"{case.case:<{width}}  {case.kafka_tx:>12.4g}  {case.baseline:>12.4g}"
            f"  {case.ratio:>7.2f}  {case.unit}"
        )
    if as_json:
        print(json.dumps({"benchmark": benchmark, "cases": [_row(c) for c in cases]}))


def _row(case: Case) -> dict[str, str | float]:
    return {
        "case": case.case,
        "kafka_tx": round(case.kafka_tx, 6),
        "baseline": round(case.baseline, 6),
        "ratio": round(case.ratio, 3),
    }
