"""What the site has beyond its pages: the menu, parts made from code, links to tests.

A page says with a comment, ``<!-- make docs: errors -->``, where such a part belongs.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import typer
from docutils import nodes
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click

from kafka_tx.cli.main import app as command_line
from kafka_tx.errors import KafkaTxError
from tests import guarantee_proofs
from tests.guarantee_proofs import Proofs

ROOT = Path(__file__).parents[1]
_SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)#]+)\.md\)", re.MULTILINE)
_TABLES: list[Proofs] = [
    table
    for name, table in vars(guarantee_proofs).items()
    if name.isupper() and isinstance(table, dict)
]
_PART = re.compile(r"<!-- make docs: (\w+) -->")


def menu_of(index: str) -> str:
    """The site's menu: the pages that the tables of the index name, by section."""
    return "\n".join(
        _menu(name, _ROW.findall(body)) for name, body in _SECTION.findall(index)
    )


def _menu(section: str, pages: list[tuple[str, str]]) -> str:
    if not pages:
        return ""
    entries = (f"{title} <{page}>" for title, page in pages)
    head = ["```{toctree}", ":hidden:", f":caption: {section}", ""]
    return "\n".join([*head, *entries, "```", ""])


def errors() -> str:
    """An entry for each class of errors: its name in Python."""
    return "\n".join(map(_error, kinds_of_error(KafkaTxError)))


def _error(kind: type[KafkaTxError]) -> str:
    return (
        f"### {kind.error_class}: {kind.__name__}\n\n"
        f"`{kind.__module__}.{kind.__name__}`, a `{kind.__mro__[1].__name__}`."
        f" {_first_paragraph(kind)}\n"
    )


def kinds_of_error(kind: type[KafkaTxError]) -> Iterator[type[KafkaTxError]]:
    """A kind and all below it, as far as they are part of the package."""
    if kind.__module__.startswith("kafka_tx."):
        yield kind
        for below in kind.__subclasses__():
            yield from kinds_of_error(below)


def _first_paragraph(of: type) -> str:
    text = (of.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("``", "`")


def commands() -> str:
    """All commands with their arguments and options."""
    command = typer.main.get_command(command_line)
    context = typer.Context(command, info_name="kafka-tx")
    text = get_docs_for_click(obj=command, ctx=context, name="kafka-tx")
    return str(text).partition("\n")[2]  # the page has a title


def proofs() -> str:
    """Every test that proves a cell, with its code."""
    tests = {test for table in _TABLES for test in _tests(table)}
    return "\n".join(_proof(test) for test in sorted(tests))


def _tests(table: Proofs) -> set[str]:
    return {test for cells in table.values() for test in cells if test}


def _proof(test: str) -> str:
    path, _, name = test.partition("::")
    code = _code(ROOT / path, name)
    title = name.removeprefix("test_").replace("_", " ")
    return f"({anchor(test)})=\n## {title}\n\n`{path}`\n\n````python\n{code}\n````\n"


def _code(file: Path, name: str) -> str:
    text = file.read_text(encoding="utf-8")
    found = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    (test,) = (function for function in found if function.name == name)
    first = min([test.lineno, *(mark.lineno for mark in test.decorator_list)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : test.end_lineno]))


def anchor(test: str) -> str:
    """Where a test is on the page of proofs."""
    return str(nodes.make_id(test))


PARTS = {"errors": errors, "commands": commands, "proofs": proofs}


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the parts into a page that Sphinx has read."""
    if docname == app.config.root_doc:
        source[0] += "\n" + menu_of(source[0])
    source[0] = _PART.sub(lambda found: PARTS[found[1]](), source[0])


def link_to_tests(app: Sphinx, doctree: nodes.document) -> None:
    """Give each cell of the guarantees that has a test a mark that leads to it."""
    if app.env.docname != "docs/guarantees":
        return
    for body in doctree.findall(nodes.tbody):
        rows = {_plain(row[0].astext()): row.children[1:] for row in body.children}
        for name, tests in _proofs_of(set(rows)).items():
            for cell, test in zip(rows[_plain(name)], tests, strict=True):
                if test:
                    cell[-1] += [nodes.Text(" "), _mark(test)]


def _proofs_of(rows: set[str]) -> Proofs:
    fitting = (table for table in _TABLES if {*map(_plain, table)} == rows)
    return next(fitting, {})


def _plain(name: str) -> str:
    return re.sub("[`¹²³⁴⁵⁶⁷⁸⁹⁰]", "", name).strip()


def _mark(test: str) -> nodes.reference:
    mark = nodes.reference("", "✓", refuri=f"proofs.html#{anchor(test)}")
    mark["classes"].append("proof")
    mark["reftitle"] = test
    return mark


def show_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Put drawings into the page itself, so that readers can select their text."""
    for image in [*doctree.findall(nodes.image)]:
        _, file = app.env.relfn2path(image["uri"], app.env.docname)
        if file.endswith(".svg"):
            drawing = Path(file).read_text(encoding="utf-8")
            app.env.note_dependency(file)
            text = f'<div class="picture" tabindex="0">{drawing}</div>'
            image.replace_self(nodes.raw("", text, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls it."""
    app.connect("source-read", fill)
    app.connect("doctree-read", link_to_tests)
    app.connect("doctree-read", show_pictures, priority=100)  # before images are copied
    return {"parallel_read_safe": True}
