"""A planner finds the note about its sink, or the log says that it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile

import pytest

from kafka_tx.running.sink_notes import VARIABLE, SinkNotes, note_of
from kafka_tx.transactions.ledger.batch_ids import UNKNOWN_SINK, SinkNote

USED = SinkNote("FileSink[/out]", newest=41)


@pytest.fixture
def notes(monkeypatch):
    made = SinkNotes()
    assert made.place is not None
    monkeypatch.setenv(VARIABLE, str(made.place))
    yield made
    made.close()
    assert not made.place.exists()


def test_a_directory_that_was_cleaned_up_is_made_again(notes):
    shutil.rmtree(notes.place)  # as systemd-tmpfiles and tmpreaper do

    notes.leave("job", USED)

    assert note_of("job") == USED
    notes.remove("job")
    assert note_of("job") == UNKNOWN_SINK


def test_a_directory_that_somebody_else_may_have_made_is_not_believed(notes, caplog):
    notes.leave("job", USED)
    notes.place.chmod(0o777)

    notes.leave("job", USED)
    assert "the planner does not see the sink" in caplog.text
    assert note_of("job") == UNKNOWN_SINK


def test_without_a_temporary_directory_nothing_is_noted(monkeypatch, caplog):
    def full() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", full)

    notes = SinkNotes()
    notes.leave("job", USED)
    notes.remove("job")
    notes.close()

    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "No usable temporary directory" in warning.getMessage()


_FORKS = """
import os, sys
from kafka_tx.running.sink_notes import SinkNotes
notes = SinkNotes()
if os.fork() == 0:
    sys.exit()
os.wait()
print(notes.place, notes.place.is_dir())
"""


def test_the_end_of_a_fork_leaves_the_directory_and_the_end_of_its_maker_does_not(
    tmp_path,
):
    ended = subprocess.run(
        [sys.executable, "-c", _FORKS],
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    place, is_there = ended.stdout.split()
    assert place.startswith(str(tmp_path))
    assert is_there == "True"
    assert not list(tmp_path.iterdir())
