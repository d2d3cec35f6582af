"""How every benchmark prints what it measured."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

Figures = Mapping[str, float]


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


def drawn_to(folder: str) -> Path:
    """The folder of ``--draw``; without matplotlib nothing is measured in vain."""
    if find_spec("matplotlib") is None:
        needs = "plots need matplotlib: .venv/bin/python -m pip install matplotlib"
        raise ArgumentTypeError(needs)
    return Path(folder)


@dataclass(frozen=True)
class Growth:
    """One plot: what was measured at each size."""

    name: str
    size: str
    found: Mapping[int, Figures]

    def print(self) -> None:
        """A table with a row for each size."""
        lines = list(next(iter(self.found.values())))
        print(f"\n{self.name:>12}  " + "  ".join(f"{line:>28}" for line in lines))
        for size, figures in self.found.items():
            row = "  ".join(f"{figures[line]:>28,.4g}" for line in lines)
            print(f"{size:>12,}  {row}")

    def draw(self, folder: Path) -> None:
        """Write ``<folder>/<name>.svg``."""
        from matplotlib import pyplot, rcParams

        folder.mkdir(parents=True, exist_ok=True)
        rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kafka_tx"})
        plot, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
        for line in next(iter(self.found.values())):
            figures = [found[line] for found in self.found.values()]
            axes.plot(list(self.found), figures, marker="o", label=line)
        axes.set(xscale="log", yscale="log", xlabel=self.size)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        plot.savefig(folder / f"{self.name}.svg", metadata={"Date": None})
        pyplot.close(plot)
