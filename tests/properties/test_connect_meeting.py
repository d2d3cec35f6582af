"""Planners and foreachBatch of one Connect server: nobody meets another's planner."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kafka_tx.errors import KafkaTxError
from kafka_tx.running import connect_meeting as meeting
from kafka_tx.source.questions import Answer
from kafka_tx.spark.connect import meeting as asking
from kafka_tx.spark.connect.meeting import ConnectRun
from tests.properties.rounds import play_round

seen: Counter[str] = Counter()


class Run:
    """A run of a query: its process of foreachBatch, and later its planner's socket."""

    def __init__(self, number: int, tx_id: str) -> None:
        self.number, self.tx_id = number, tx_id
        self.asking = ConnectRun(tx_id)
        self.socket: Path | None = None
        self.is_alive = False
        self.was_answered = False


class SimulatedServer(RuleBasedStateMachine):
    """Runs of two ids on one server; its clock may stand still between two events."""

    def __init__(self) -> None:
        super().__init__()
        self.undo = ExitStack()
        patch = self.undo.enter_context(pytest.MonkeyPatch.context())
        self.place = Path(tempfile.mkdtemp())
        self.undo.callback(shutil.rmtree, self.place)
        self.now_ns = 0
        self.runs: list[Run] = []
        clock = SimpleNamespace(monotonic_ns=lambda: self.now_ns)
        patch.setattr(meeting, "time", clock)
        patch.setattr(meeting, "os", SimpleNamespace(getpid=lambda: len(self.runs)))
        patch.setattr(asking, "time", clock)
        patch.setattr(asking, "meeting_place", lambda *, make: self.place)
        patch.setattr(asking, "_request", self._asked)

    def teardown(self) -> None:
        self.undo.close()

    def _asked(self, planner: Path, question: dict[str, int]) -> dict[str, object]:
        (run,) = [run for run in self.runs if run.socket == planner]
        if not run.is_alive:
            raise ConnectionRefusedError
        return {"answer": Answer(question["batch"] + 1, run.number).to_json()}

    @initialize()
    def begin(self) -> None:
        self.a_query_starts(1, "x")

    @rule(passes=st.integers(0, 2), tx_id=st.sampled_from(["x", "x", "y"]))
    def a_query_starts(self, passes: int, tx_id: str) -> None:
        self.now_ns += passes
        self.runs.append(Run(len(self.runs), tx_id))

    @rule(passes=st.integers(0, 2), which=st.integers(0, 9))
    def its_planner_listens(self, passes: int, which: int) -> None:
        run = self.runs[which % len(self.runs)]
        if run.socket is None:
            self.now_ns += passes
            name = meeting.new_socket(self.place, run.tx_id).name
            run.socket = self.place / f"{name}{run.number}"
            run.socket.touch()
            run.is_alive = True

    @rule(which=st.integers(0, 9))
    def a_planner_ends(self, which: int) -> None:
        self.runs[which % len(self.runs)].is_alive = False

    @rule(which=st.integers(0, 9))
    def a_batch_comes(self, which: int) -> None:
        """Spark has asked the run's own planner for it before."""
        run = self.runs[which % len(self.runs)]
        if run.socket is None:
            return
        answer = _reported(run)
        if isinstance(answer, Answer):
            seen["answered"] += 1
            assert answer == Answer(5, run.number), "another's planner"
            run.was_answered = True
            return
        seen["refused"] += 1
        assert not (run.was_answered and run.is_alive), answer
        assert not run.is_alive or "at once" in str(answer)

    @rule()
    def one_alone_is_answered(self) -> None:
        """Whatever was there before, a query that nobody starts beside has its way."""
        self.a_query_starts(1, "x")
        self.its_planner_listens(1, len(self.runs) - 1)
        self.a_batch_comes(len(self.runs) - 1)
        assert self.runs[-1].was_answered


def _reported(run: Run) -> Answer | KafkaTxError:
    try:
        return run.asking.ask(4)
    except KafkaTxError as error:
        return error


def play(rounds: int) -> None:
    for number in range(rounds):
        play_round(number, SimulatedServer, steps=15, phases=(Phase.generate,))


def test_who_is_answered_is_answered_by_its_own_planner():
    seen.clear()
    play(4)

    assert seen["answered"]
    assert seen["refused"]


def the_newest(place: Path, tx_id: str, since_ns: int) -> list[Path]:
    return meeting.sockets_since(place, tx_id, 0)[-1:]


def test_the_simulation_notices(monkeypatch):
    monkeypatch.setattr(asking, "sockets_since", the_newest)

    with pytest.raises(AssertionError):
        play(100)  # until it is noticed
