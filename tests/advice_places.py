"""Where the package says in an error what to do: found in its source, run or not.

A place is ``module::function``, or ``module::NAME[KEY]`` for an entry of a table of
texts, or ``module::Class.field``; a module by its own name, whichever room it is in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kafka_tx import errors

ROOT = Path(__file__).parents[1] / "kafka_tx"
WAYS_OUT = (
    "another tx.id",
    "checkpointLocation",
    "copies that were made together",
    "failOnDataLoss=",
    "kafka-tx offsets",
    "offsets set",
    "put back",
    "restore the",
    "restore both",
    "reset-offsets",
    "start again",
    "startingOffsets",
    "tx.id of its own",
    "tx.markerTopic",
    "tx.onDisagreement=",
    "tx.store",
)
"""Words of advice that touch what is stored: also where the class is ConfigError."""

_ELSEWHERE = {"cli/demo.py", "cli/demo_job.py", "testing"}
"""No part of a job: the demonstration, and what only tests use."""
_NAMES = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.KafkaTxError)
}
_OPTION = {"ConfigError"}
"""Refused before anything is done; the text names the legal values."""


@cache
def places(root: Path = ROOT) -> dict[str, str]:
    """Every place with all its texts."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith(tuple(_ELSEWHERE)) or name == "errors.py":
            continue
        for place, text in _texts(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault((path.stem, place), {}).setdefault(name, []).append(text)
    twice = [key for key, files in found.items() if len(files) > 1]
    assert not twice, f"cannot be told apart: {twice}"
    return {
        f"{module}::{place}": " | ".join(
            text for texts in files.values() for text in texts
        )
        for (module, place), files in found.items()
    }


def _texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        yield from _of_constants(node)
        for function, body in _functions(node):
            for call in ast.walk(body):
                if _is_told(call):
                    yield function, _text(call)


def _functions(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The functions and methods of a module, those inside of others with them."""
    if isinstance(node, ast.FunctionDef):
        yield node.name, node
    elif isinstance(node, ast.ClassDef):
        for inner in node.body:
            for name, body in _functions(inner):
                yield f"{node.name}.{name}", body


def _of_constants(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The texts of a constant, or of the fields of a class, such as its options."""
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            for name, text in _of_constants(inner):
                yield f"{node.name}.{name}", text
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        yield from _of_constant(node)


def _of_constant(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, str]]:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Name):
        return
    if isinstance(node.value, ast.Dict):
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            if key is not None and _shows_a_way_out(_text(value)):
                entry = key.attr if isinstance(key, ast.Attribute) else _text(key)
                yield f"{target.id}[{entry}]", _text(value)
    elif node.value is not None and _shows_a_way_out(_text(node.value)):
        yield target.id, _text(node.value)


def _is_told(node: ast.AST) -> bool:
    """Whether it makes an error of ours, or a text that tells a way out."""
    if isinstance(node, ast.Call):
        kind = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if isinstance(kind, ast.Name) and kind.id in _NAMES - _OPTION:
            return True
        return (
            isinstance(kind, ast.Name)
            and kind.id in _OPTION
            and _shows_a_way_out(_text(node))
        )
    return isinstance(node, ast.Return | ast.Assign) and (
        node.value is not None and _shows_a_way_out(_text(node.value))
    )


def _shows_a_way_out(text: str) -> bool:
    words = " ".join(text.split())
    return " " in words and any(way in words for way in WAYS_OUT)


def _text(node: ast.AST) -> str:
    texts = [
        inner.value
        for inner in ast.walk(node)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    ]
    return "".join(texts)
