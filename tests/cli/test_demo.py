from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from kafka_tx.cli import demo as command
from kafka_tx.cli import demo_screen
from kafka_tx.cli.demo_job import Comparison
from kafka_tx.cli.demo_screen import Scene, Screen, picture
from kafka_tx.errors import KafkaTxError

EXACT = Comparison(produced=1000, counted=1000, lost=0, duplicated=0)
WRONG = Comparison(produced=1000, counted=1000, lost=2, duplicated=2)


@pytest.fixture
def plays(monkeypatch):
    """Let the demo end with a given comparison, without playing it."""

    def end_with(result):
        def play(console, kafka, feed, scene, work):
            scene.crashes, scene.working_s = ["a", "b", "c"], 0.5
            return scene, result

        monkeypatch.setattr(command, "_play", play)

    return end_with


def test_the_comparison_and_what_happened(run, plays):
    plays(EXACT)

    result = run("demo", "--records", 1000)

    assert result.exit_code == 0
    first, *story = result.stdout.splitlines()
    assert first == "produced 1000 · counted 1000 · lost 0 · duplicated 0 · crashes 3"
    assert story[2:5] == ["  - a", "  - b", "  - c"]
    assert "the job counted 2,000 records/s. Waiting for Spark" in result.stdout
    assert "kafka-tx demo --keep" in result.stdout


def test_the_time_in_which_the_job_worked_leaves_out_the_starts_of_spark(replace_in):
    clock = iter([5.0, 6.0, 8.0, 20.0])
    replace_in(demo_screen, "time", monotonic=lambda: next(clock))
    scene = Scene("embedded", 10)
    for is_working in (False, True, True):
        scene.is_working = is_working
        scene.sample()
    scene.begin_run()
    scene.sample()

    assert scene.working_s == 3.0


def test_json_is_the_only_thing_on_standard_output(run, plays):
    plays(EXACT)

    result = run("demo", "--records", 1000, "--json")

    totals = json.loads(result.stdout)
    assert totals.keys() == {
        *("produced", "counted", "lost", "duplicated", "crashes"),
        *("seconds", "records_per_second"),
    }
    assert (totals["produced"], totals["counted"], totals["crashes"]) == (
        1000,
        1000,
        3,
    )


def test_a_wrong_count_ends_with_code_1(run, plays):
    plays(WRONG)

    result = run("demo", "--records", 1000)

    assert result.exit_code == 1
    assert "lost 2 · duplicated 2" in result.stdout


def test_fewer_records_than_asked_for_end_with_code_1(run, plays):
    plays(EXACT)

    assert run("demo", "--records", 2000).exit_code == 1


def test_a_demo_that_fails_keeps_its_folder_and_says_where(run, monkeypatch, tmp_path):
    def fail(*given):
        raise KafkaTxError("nothing moved")

    monkeypatch.setattr(command, "_play", fail)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path))

    result = run("demo")

    assert result.exit_code == 1
    assert "nothing moved" in result.stderr
    assert str(tmp_path) in result.stderr
    assert tmp_path.exists()


def test_missing_java_is_told_before_anything_starts(run, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    result = run("demo")

    assert result.exit_code == 2
    assert "apt-get install openjdk-17-jre-headless" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("records", [0, 3_000_000])
def test_records_it_cannot_show_are_a_usage_error(run, records):
    assert run("demo", "--records", records).exit_code == 2


def test_lines_where_there_is_no_terminal():
    output = io.StringIO()

    with Screen(Console(file=output)) as screen:
        screen.say("SIGKILL while its tasks read (txid 3)")
        screen.show(Scene("embedded", 10))

    assert output.getvalue().endswith("s  SIGKILL while its tasks read (txid 3)\n")
    assert "\x1b" not in output.getvalue()


@pytest.mark.parametrize(
    ("produced", "lag", "counted"), [(1000, 0, True), (900, 0, False), (1000, 1, False)]
)
def test_a_job_that_caught_up_with_what_was_produced_so_far_is_not_told_to_end(
    produced, lag, counted
):
    assert Scene("embedded", 1000, produced=produced, lag=lag).is_counted == counted


def test_the_picture_has_all_figures():
    scene = Scene("embedded", 1000, produced=800, counted=500, lag=300, committed=7)
    scene.unfinished, scene.phase = [8], "counting"
    scene.crashes = ["while its tasks read (txid 3)"]
    console = Console(file=io.StringIO(), width=100, record=True)

    console.print(picture(scene))

    text = console.export_text()
    for part in ("800 of 1,000", "500 of 1,000", "300 records", "7 committed, 8 open"):
        assert part in text
    assert "SIGKILL while its tasks read (txid 3)" in text
