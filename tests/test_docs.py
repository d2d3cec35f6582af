"""README and ``docs/`` say what the code says, and every link leads somewhere."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

import kafka_tx
import kafka_tx.spark.versions.job_failures
from docs.draw import ALL, PICTURES
from kafka_tx.cli.main import _COMMANDS, app
from kafka_tx.cli.tables import Table
from kafka_tx.errors import KafkaTxError
from kafka_tx.metrics.catalogue import markdown
from tests.doc_pages import (
    DOCS,
    PAGES,
    ROOT,
    anchors,
    blocks,
    exists,
    links,
    runs,
    tables,
)
from tests.symptom_proofs import ALERTS, SYMPTOMS

OUTSIDE = ("https://", "http://", "mailto:")


def name(page):
    return page.relative_to(ROOT).as_posix()


def kinds(of):
    """A kind of error of ours and those below it."""
    return {of}.union(*map(kinds, below(of)))


def below(kind):
    """Its direct subclasses of ours; what is private of a module never gets out."""
    return [
        each
        for each in kind.__subclasses__()
        if each.__module__.startswith("kafka_tx") and each.__name__[0] != "_"
    ]


def leads_somewhere(page, link):
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


@pytest.mark.parametrize("table", Table)
def test_the_tables_of_options_are_the_codes(table):
    page = (DOCS / "options.md").read_text()
    assert table.markdown() in page, f"paste what `kafka-tx options {table}` prints"


def test_the_table_of_metrics_is_the_codes():
    page = (DOCS / "metrics.md").read_text()
    assert markdown() in page, "paste what `kafka-tx metrics` prints"


def test_every_class_of_error_has_its_cause_risk_and_next_step():
    rows = [row for table in tables("errors.md", "class") for row in table.items()]
    documented = {
        name: row for names, row in rows for name in re.findall("`([^`]+)`", names)
    }
    raised = {kind.error_class for kind in kinds(KafkaTxError)}
    assert not {
        found
        for found in raised
        if found not in documented and f"{found}.*" not in documented
    }
    assert {tuple(row) for row in documented.values()} == {
        ("cause", "data at risk", "next step")
    }
    assert all(cell for row in documented.values() for cell in row.values())


def entries(page):
    """The entries about alerts on the page of symptoms, by their names."""
    text = (DOCS / page).read_text()
    found = re.split(r"^## (KafkaTx\w+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def the_symptoms():
    """The rows of all tables of the runbook, by what is seen."""
    return {
        seen: row
        for table in tables("runbook.md", "you see")
        for seen, row in table.items()
    }


def test_each_symptom_says_what_is_at_risk_and_what_to_do_next():
    symptoms = the_symptoms()
    assert {tuple(row) for row in symptoms.values()} == {
        ("what happens", "data at risk", "next step")
    }
    assert all(cell for row in symptoms.values() for cell in row.values())
    for alert, text in entries("runbook.md").items():
        assert "**Meaning.**" in text, alert
        assert "**Data at risk.**" in text, alert
        assert "\n1. " in text, alert
        assert "\nThe alert ends" in text, alert


def test_each_symptom_has_a_test_that_it_is_true():
    assert list(the_symptoms()) == list(SYMPTOMS)
    assert list(entries("runbook.md")) == list(ALERTS)
    assert not [proof for proof in SYMPTOMS.values() if not runs(proof)]
    assert not [proof for proof in ALERTS.values() if not exists(proof)]


def test_each_class_of_error_has_a_test_that_meets_it():
    """By its name in Python, or by the class in brackets."""
    folders = ("tests", "integration")
    files = (file for folder in folders for file in (ROOT / folder).rglob("test_*.py"))
    met = set(re.findall(r"\w+", " ".join(file.read_text() for file in files)))
    raised = [kind for kind in kinds(KafkaTxError) if not below(kind)]
    assert not [kind for kind in raised if not {kind.__name__, kind.error_class} & met]


def test_every_public_name_can_be_had():
    for name in kafka_tx.__all__:
        assert getattr(kafka_tx, name) is not None
    assert kafka_tx.__all__ == sorted(kafka_tx.__all__)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_blocks_name_nothing_that_is_not_there(page):
    """One after the other; ``spark`` is the reader's session."""
    whole = "\n".join(["import object as spark", *blocks(page)])
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821,E9"]
    found = subprocess.run(
        [*command, "-"], input=whole, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_its_blocks_start_they_wait_for_and_their_stores_are_absolute(page):
    for block in blocks(page):
        assert ".start(" not in block or block.endswith(".awaitTermination()\n")
        assert not re.search("sqlite:///[^/]", block)


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("[A-Z]*.md")], ids=name)
def test_its_links_lead_somewhere(page):
    inside = [link for link in links(page) if not link.startswith(OUTSIDE)]
    assert not [link for link in inside if not leads_somewhere(page, link)]


@pytest.mark.parametrize("picture", ALL, ids=lambda picture: picture.name)
def test_the_drawings_are_those_that_are_described(picture):
    drawn = (PICTURES / f"{picture.name}.svg").read_text()
    assert drawn == picture.svg(), "run `make pictures`"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_pictures_have_a_text_for_those_who_cannot_see_them(page):
    pictures = re.findall(r"!\[([^\]]*)\]\(", page.read_text())
    assert all(len(text.split()) >= 3 for text in pictures)


def test_the_commands_that_pages_name_exist():
    named = "\n".join(page.read_text() for page in PAGES)
    found = set(re.findall(r"(?:^|[`/])kafka-tx ([a-z-]+)(?: ([a-z|]+))?", named, re.M))
    commands = {
        (group, *([one] if group in {"offsets", "store", "dead-letters"} else []))
        for group, ones in found
        for one in ones.split("|")
        if not group.startswith("-")
    }
    assert len(commands) > len(_COMMANDS)

    run = CliRunner()
    unknown = {
        c for c in commands if run.invoke(app, [*filter(None, c), "-h"]).exit_code
    }
    assert not unknown


def test_the_readme_is_a_front_door():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 180


def test_every_page_is_in_the_index():
    index = DOCS / "index.md"
    found = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert found >= {*DOCS.glob("*.md")} - {index}


def test_what_there_is_can_be_listed():
    assert set(kafka_tx.__all__) <= set(dir(kafka_tx))
    assert kafka_tx.__version__ == version("kafka-tx")
