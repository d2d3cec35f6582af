from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from unittest.mock import Mock

import pytest

from kafka_tx.cli.main import _COMMANDS


def test_the_version_is_told(run):
    result = run("--version")

    assert result.exit_code == 0
    assert result.stdout == f"kafka-tx {version('kafka-tx')}\n"


@pytest.mark.parametrize("name", ["", *_COMMANDS])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_fits_80_columns(run, name, option, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    result = run(*filter(None, [name]), option)

    assert result.exit_code == 0
    assert f"Usage: kafka-tx {name}".rstrip() in result.stdout.replace(
        "root", "kafka-tx"
    )
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_help_lists_every_command_with_what_it_does(run):
    shown = " ".join(run("-h").stdout.split())

    assert all(name in shown for name in _COMMANDS)
    assert "Print the Grafana dashboard as JSON, for import." in shown


@pytest.mark.parametrize(
    "wrong", [["statsu"], ["status", "--jsno"], ["lag"], ["offsets", "shwo"]]
)
def test_wrong_use_ends_with_2(run, wrong):
    assert run(*wrong).exit_code == 2


def test_what_contradicts_itself_is_wrong_use(run, store, url):
    given = ("--store", url, "--id", "orders", "--yes", "--dry-run")

    result = run("offsets", "reset", *given)

    assert result.exit_code == 2
    assert "contradict" in result.stderr
    assert store.read()


@pytest.mark.parametrize(
    "asked", [["--version"], ["-h"], ["rules"], ["status", "-h"], ["lag", "-h"]]
)
def test_nothing_is_imported_that_the_command_does_not_use(asked):
    """Imports decide how long a person waits for the first line."""
    slow = "pyspark sqlalchemy kazoo confluent_kafka pyarrow numpy pandas asyncio"
    code = (
        f"import sys; sys.argv[1:] = {asked!r}\n"
        "from kafka_tx.cli.main import app\n"
        "try: app()\n"
        f"finally: print([m for m in {slow!r}.split() if m in sys.modules],"
        " file=sys.stderr)"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stderr == "[]\n"


def test_names_of_commands_are_completed(monkeypatch, run):
    answer = run_completion(monkeypatch, run, "kafka-tx st", 1)

    assert "status" in answer
    assert "demo" not in answer


def test_options_of_commands_are_completed(monkeypatch, run):
    assert "--store" in run_completion(monkeypatch, run, "kafka-tx status --st", 2)


def run_completion(monkeypatch, run, words, place):
    monkeypatch.setenv("_KAFKA_TX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(place))
    code = "from kafka_tx.cli.main import app; app(prog_name='kafka-tx')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize("table", ["options", "metrics"])
def test_tables_are_printed_as_json_too(run, table):
    rows = json.loads(run(table, "--json").stdout)

    names = [next(iter(row.values())) for row in rows]
    assert ("tx.id" if table == "options" else "kafka_tx_lag_records") in names
    assert all(cell.count("`") % 2 == 0 for row in rows for cell in row.values())


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_a_person_at_a_terminal_is_asked(run, store, url, monkeypatch, answer):
    monkeypatch.setattr("kafka_tx.cli.changes._is_terminal", lambda: True)
    asked = ("offsets", "reset", "--store", url, "--id", "orders")

    result = run(*asked, input=answer)

    assert "shall this be written?" in result.stdout
    assert bool(store.read()) == (answer == "n\n")
    assert result.exit_code == 0


def test_a_dry_run_asks_nothing(run, store, url, monkeypatch):
    monkeypatch.setattr("kafka_tx.cli.changes._is_terminal", lambda: True)
    given = ("--store", url, "--id", "orders", "--dry-run", "--json")

    answer = json.loads(run("offsets", "reset", *given).stdout)

    assert answer["written"] is False
    assert answer["changes"] == [
        "to be deleted: committed, currtx, held, meta/41, meta/42, numbering, owner"
    ]
    assert store.read()


def test_a_change_is_told_as_json(run, store, url):
    given = ("--store", url, "--id", "orders", "--yes", "--json")

    answer = json.loads(run("offsets", "reset", *given).stdout)

    assert answer["written"] is True
    assert "The next txid is 1" in answer["message"]
    assert not store.read()


def test_without_an_input_nobody_is_asked(run, store, url, monkeypatch):
    monkeypatch.setattr("kafka_tx.cli.changes.sys", Mock(stdin=None))  # `<&-`

    result = run("offsets", "reset", "--store", url, "--id", "orders")

    assert result.exit_code == 0
    assert "Nothing was written" in result.stdout
    assert store.read()


@pytest.mark.parametrize("command", ["options", "doctor"])
def test_an_output_without_its_signs_gets_others(command):
    code = "from kafka_tx.cli.main import app; app()"

    result = subprocess.run(
        [sys.executable, "-c", code, command],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        encoding="latin-1",
        check=False,
    )

    assert result.stderr == ""
    assert "tx.id" in result.stdout or "? Python" in result.stdout
