"""What import-linter's contracts cannot say: that a room holds only what needs it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kafka_tx

PACKAGE = Path(kafka_tx.__file__).parent
SPARK = "kafka_tx.spark"


def modules() -> dict[str, set[str]]:
    """What each module of ``spark/`` imports."""
    found = {}
    for path in (PACKAGE / "spark").rglob("*.py"):
        if path.name != "__init__.py":
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            found[name] = imports(ast.parse(path.read_text("utf-8")))
    return found


def imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return found


def test_spark_holds_only_what_needs_pyspark():
    imported = modules()
    needs = {
        name
        for name, each in imported.items()
        if {one.split(".")[0] for one in each} & {"pyspark", "py4j"}
    }
    while more := {n for n, each in imported.items() if each & needs} - needs:
        needs |= more

    assert needs
    assert set(imported) == needs


def test_insides_of_spark_are_named_in_versions_only():
    """Sinks for tables go through the classes of Delta and Iceberg, beside it."""
    inside = {"_jvm", "_jsc", "_jsparkSession", "_gateway", "_jdf", "_jrdd"}
    inside |= {"_active_spark_context", "_root_directory", "_java_lang_class"}
    found: dict[str, set[str]] = {}
    for path in (PACKAGE / "spark").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        names = {n.attr for n in nodes if isinstance(n, ast.Attribute)} & inside
        if names and not path.stem.startswith(("delta", "iceberg", "formats")):
            found.setdefault(path.parent.name, set()).update(names)

    assert set(found) == {"versions"}
    assert {"_jvm", "_gateway", "_jsc"} <= found["versions"]


def test_names_of_files_that_need_their_folder_stand_once():
    """A name is understood without its folder."""
    names = [path.name for path in PACKAGE.rglob("*.py")]

    for name in ("settings.py", "failures.py", "engine.py", "answers.py", "plan.py"):
        assert names.count(name) <= 1, name


def graph_of(package: Path) -> dict[str, set[str]]:
    """The modules of a package that each of its modules imports, also for types."""
    files = [*package.rglob("*.py"), *package.rglob("*.pyi")]
    named = {
        ".".join(f.relative_to(package.parent).with_suffix("").parts): f for f in files
    }
    named = {name.removesuffix(".__init__"): file for name, file in named.items()}
    return {
        name: set(_known(ast.parse(file.read_text("utf-8")), named.keys())) - {name}
        for name, file in named.items()
    }


def _known(tree: ast.Module, names: Collection[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in names:
                    yield inner
                elif node.module in names:
                    yield node.module


def test_no_module_imports_in_a_circle():
    """Not for types either: what needs a name of its user is at the wrong place."""
    TopologicalSorter(graph_of(PACKAGE)).prepare()


def test_a_circle_of_types_is_noticed(tmp_path):
    package = tmp_path / "rooms"
    package.mkdir()
    (package / "one.py").write_text("from rooms.two import Two\n")
    (package / "two.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from rooms import one\n"
    )

    with pytest.raises(CycleError):
        TopologicalSorter(graph_of(package)).prepare()


PARTS = ("time", "threading", "os", "random", "signal", "socket", "subprocess")


def test_no_test_changes_what_all_threads_use():
    """Spark, Kafka and pytest have threads beside each test: see ``replace_in``."""
    repository = PACKAGE.parent
    found = []
    for path in (
        *repository.glob("tests/**/*.py"),
        *repository.glob("integration/**/*.py"),
    ):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                ".setattr"
            ):
                place = ast.unparse(node.args[0]).strip("'\"")
                if place.split(".")[0] in PARTS:
                    found.append(f"{path.name}:{node.lineno}: {place}")

    assert not found
