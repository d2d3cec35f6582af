"""``python -m benchmarks <name> [--json]`` runs one benchmark.

A benchmark is a module with ``main(arguments)``; it is imported only when it runs, so
that one does not need what another one needs.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

BENCHMARKS = {
    "at_least_once": "benchmarks.at_least_once",
    "files": "benchmarks.files",
    "lake": "benchmarks.lake",
    "idle": "benchmarks.idle",
    "latency": "benchmarks.latency",
    "microbatch": "benchmarks.microbatch",
    "pending": "benchmarks.pending",
    "plan": "benchmarks.plan",
    "read": "benchmarks.read",
    "registry": "benchmarks.registry",
    "scale": "benchmarks.scale",
    "state": "benchmarks.state",
    "topology": "benchmarks.topology",
    "write": "benchmarks.write",
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure one thing. Each takes --json and --help.",
    )
    parser.add_argument("benchmark", choices=sorted(BENCHMARKS))
    chosen = parser.parse_args(arguments[:1])
    # An installed package has its byte code; here each process would compile it anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    import_module(BENCHMARKS[chosen.benchmark]).main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
