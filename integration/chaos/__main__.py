"""``python -m integration.chaos --seed N --minutes 4``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from integration.chaos.lake import HERE
from integration.chaos.people import run as people
from integration.chaos.run import run
from integration.chaos.schedule import (
    ALL_JOBS,
    KINDS,
    TABLES,
    among,
    chosen,
    each_once,
    schedule,
)


def main() -> int:
    """Run once, print what was seen; 0 where nothing was lost, doubled or stuck."""
    parser = argparse.ArgumentParser(prog="python -m integration.chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--within", type=float, default=60.0, help="seconds")
    here = [kind for kind in ALL_JOBS if HERE.get(kind, kind)]
    usual = [kind for kind in here if kind not in TABLES]
    parser.add_argument("--jobs", nargs="+", choices=here, default=usual)
    parser.add_argument("--faults", help="such as cut,half-open:brokers; all if absent")
    parser.add_argument(
        "--once", action="store_true", help="each fault on each target, and no more"
    )
    parser.add_argument("--logs", type=Path, help="keep what the jobs printed here")
    parser.add_argument(
        "--people", action="store_true", help="what people do instead of faults"
    )
    given = parser.parse_args()

    def say(line: str) -> None:
        print(line, flush=True)

    if given.people:
        return (
            0 if people.run(given.seed, given.minutes, say, given.jobs).is_good else 1
        )
    kinds = among(
        given.jobs, chosen(given.faults.split(",")) if given.faults else KINDS
    )
    report = run(
        f"seed {given.seed}" if not given.once else "each fault once",
        each_once(kinds) if given.once else schedule(given.seed, kinds),
        None if given.once else given.minutes,
        jobs=tuple(given.jobs),
        within_s=given.within,
        logs=given.logs,
        say=say,
    )
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
