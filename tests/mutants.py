"""Whether the quick tests notice that the code is wrong: a sample of mutants, by room.

Run as a program by ``make mutants``. Cosmic Ray makes the mutants, in a copy of the
repository; the tests of their room that run its line either fail, and have killed a
mutant, or let it live. The same seed takes the same mutants of the same code. Results
are added to a file as they come, and what stands there is not done again: it may be
ended at any time.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shlex
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutant_tests import Tests

REPOSITORY = Path(__file__).resolve().parents[1]
OPERATORS = (
    *("ReplaceComparisonOperator_Lt_LtE", "ReplaceComparisonOperator_LtE_Lt"),
    *("ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_GtE_Gt"),
    *("ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq"),
    *("ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is"),
    *("ReplaceComparisonOperator_In_NotIn", "ReplaceComparisonOperator_NotIn_In"),
    *("ReplaceUnaryOperator", "NumberReplacer"),
    *("ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add"),
    *("ReplaceBinaryOperator_Mul_Add", "ReplaceBinaryOperator_FloorDiv_Mul"),
    *("ReplaceBinaryOperator_Mod_Add", "ReplaceBinaryOperator_BitAnd_BitOr"),
    *("ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ZeroIterationForLoop"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer"),
)
"""Beginnings of the names of what is done to the code."""


@dataclass(frozen=True)
class Room:
    """A part of the package, and the quick tests that are about it."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "offsets": Room(
        ("kafka_tx/offsets/*.py", "kafka_tx/planning/s*.py"),
        (
            *("tests/offsets", "tests/planning", "tests/properties/test_offsets.py"),
            "tests/running/test_offset_keeper.py",
        ),
    ),
    "transactions": Room(
        ("kafka_tx/transactions/*/*.py", "kafka_tx/sinks/*.py"),
        (
            *("tests/transactions", "tests/sinks"),
            "tests/properties/test_transactions.py",
        ),
    ),
    "topology": Room(
        ("kafka_tx/topology/*/*.py",),
        ("tests/topology", "tests/properties/test_kafka_spouts.py"),
    ),
    "planner": Room(
        ("kafka_tx/source/*.py", "kafka_tx/planning/[!s]*.py"),
        (
            "tests/source",
            "tests/planning",
            "tests/properties/test_source.py",
        ),
    ),
    "stores": Room(
        (
            "kafka_tx/sql/[!mr]*.py",
            "kafka_tx/zookeeper/*.py",
        ),
        ("tests/sql", "tests/zookeeper", "tests/conformance"),
    ),
    "maps": Room(
        ("kafka_tx/sql/ma*.py", "kafka_tx/sql/me*.py", "kafka_tx/sql/r*.py"),
        ("tests/sql/test_[mtuv]*.py", "tests/properties/test_maps.py"),
    ),
    "parts": Room(
        (
            "kafka_tx/kafka/part_*.py",
            "kafka_tx/kafka/transaction.py",
            "kafka_tx/kafka/marker*.py",
            "kafka_tx/sinks/sink_memory.py",
            "kafka_tx/sinks/sink_parts.py",
            "kafka_tx/sinks/marker_rules.py",
            "kafka_tx/sinks/admission.py",
        ),
        (
            "tests/sinks/test_sink_parts.py",
            "tests/kafka/test_producer.py",
            "tests/kafka/test_marker_log.py",
            "tests/properties/test_sinks.py",
            "tests/sinks/test_second_writes.py",
            "tests/conformance/test_sinks.py",
            "tests/running/test_kafka_sink_bolt.py",
        ),
    ),
    "native": Room(("kafka_tx/native/*.py",), ("tests/native",)),
}


def main() -> None:
    given = arguments()
    noted = {note["mutant"]: note for note in notes(given.notes)}
    done: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="kafka-tx-mutants-") as place:
        copy_repository(Path(place))
        os.chdir(place)
        os.environ["PYTHONPATH"] = place
        count = given.mutants // len(ROOMS)
        samples = [(r, sample(ROOMS[r], count, given.seed)) for r in given.rooms]
        for turn in range(count):  # so that a part of a run is a sample of all rooms
            for room, mutants in samples:
                for one in mutants[turn : turn + 1]:
                    note = noted.get(named(one)) or tried(room, one, given.notes)
                    done.append(note)
    show(done)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mutants", type=int, default=320, help="of all rooms together"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), choices=ROOMS)
    parser.add_argument(
        "--notes", type=Path, default=REPOSITORY / ".cache" / "mutants.jsonl"
    )
    given = parser.parse_args()
    given.notes = given.notes.resolve()
    return given


def notes(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def copy_repository(place: Path) -> None:
    """What git knows, and what was built of it."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    built = (
        str(p.relative_to(REPOSITORY)) for p in REPOSITORY.glob("kafka_tx/**/*.so")
    )
    for name in (*listed.stdout.splitlines(), *built):
        if (REPOSITORY / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, place / name)


# --- which mutants ------------------------------------------------------------------


def sample(room: Room, count: int, seed: int) -> list[Any]:
    """Some of the mutants of a room's modules: at most one of each place in it."""
    paths = sorted(path for pattern in room.modules for path in Path().glob(pattern))
    chance = random.Random(seed)
    found = sorted((m for path in paths for m in mutants_of(path)), key=named)
    chance.shuffle(found)
    places = {(m.module_path, tuple(m.start_pos)): m for m in found}
    return chance.sample(list(places.values()), min(count, len(places)))


def mutants_of(path: Path) -> Iterator[Any]:
    """All of a module, but for its hints, which are never evaluated."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names
    from cosmic_ray.work_item import MutationSpec

    nodes = list(ast_nodes(get_ast_from_path(path)))
    for name in operator_names():
        if not name.partition("/")[2].startswith(OPERATORS):
            continue
        operator = get_operator(name)()
        places = (
            place for node in nodes for place in operator.mutation_positions(node)
        )
        for occurrence, (start, end) in enumerate(places):
            if not any(first <= start < last for first, last in hints(path)):
                yield MutationSpec(path, name, occurrence, start, end)


@cache
def hints(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a module's annotations begin and end; positions of its string constants."""
    found: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            found.append(node.returns)
    return [
        ((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0))
        for n in found
        if isinstance(n, ast.expr)
    ]


def named(mutation: Any) -> str:
    return (
        f"{mutation.module_path}:{mutation.start_pos[0]}:{mutation.start_pos[1]}"
        f" {mutation.operator_name} {mutation.occurrence}"
    )


# --- what becomes of them -----------------------------------------------------------


def tried(room: str, mutation: Any, noted: Path) -> dict[str, Any]:
    from cosmic_ray.mutating import mutate_and_test

    tests = tests_of(room)
    command = tests.command(mutation.module_path, mutation.start_pos[0])
    began = time.monotonic()
    result = mutate_and_test([mutation], shlex.join(command), 300 + 5 * tests.take_s)
    note = {
        "room": room,
        "mutant": named(mutation),
        "outcome": str(result.test_outcome.value if result.test_outcome else "none"),
        "seconds": round(time.monotonic() - began, 1),
        "diff": result.diff,
        "said": (result.output or "")[-300:],
    }
    noted.parent.mkdir(parents=True, exist_ok=True)
    with noted.open("a") as file:
        file.write(json.dumps(note) + "\n")
    print(f"{note['outcome']:9} {note['mutant']}", flush=True)
    return note


@cache
def tests_of(room: str) -> Tests:
    return Tests(room, ROOMS[room].tests)


def show(done: list[dict[str, Any]]) -> None:
    for line in survivors(done):
        print(line)
    outcomes = Counter((note["room"], note["outcome"]) for note in done)
    for room in dict.fromkeys(note["room"] for note in done):
        of_room = {what: n for (name, what), n in outcomes.items() if name == room}
        tested = of_room.get("killed", 0) + of_room.get("survived", 0)
        print(f"{room}: {of_room.get('killed', 0)} of {tested} killed")
    killed = sum(note["outcome"] == "killed" for note in done)
    print(f"together: {killed} of {len(done)} killed")


def survivors(done: list[dict[str, Any]]) -> Iterator[str]:
    for note in done:
        if note["outcome"] == "survived":
            yield f"\nsurvived: {note['mutant']}\n{note['diff']}"


if __name__ == "__main__":
    main()
