"""The Kafka sinks' protocol, with programs that die, freeze, wake and are changed."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from integration.sizes import size
from kafka_tx.errors import (
    AnotherNumberingError,
    OutOfOrderError,
    ReplayDiffersError,
    StateCorruptedError,
)
from kafka_tx.sinks.sink_memory import Entry
from tests.properties.rounds import play_round
from tests.properties.simulated_sink import (
    ROWS,
    Brokers,
    Program,
    Writer,
    begin_of_another_sink,
    forged,
    is_documented,
    simulated,
)

ENOUGH = 2_000
"""Steps in which every run ends: also one whose four tasks write beside each other."""
seen: Counter[str] = Counter()


class SimulatedSink(RuleBasedStateMachine):
    """A source that counts its batches, and runs that write them one after another.

    A run of ``transaction`` and ``bolt`` may wake after the next has begun: the epoch
    tells them apart. Runs of ``stream`` end before the next begins.
    """

    @initialize(
        door=st.sampled_from(["transaction", "stream", "bolt"]),
        parts=st.integers(1, 4),
        are_beside=st.sampled_from([False, False, False, True]),
    )
    def start(self, door, parts, are_beside=False):
        self.door, self.are_beside = door, are_beside
        self.brokers = Brokers()
        self.committed = 0
        self.epoch = 0
        self.begun_in: dict[int, int] = {}
        self.frozen: list[Program] = []
        self.others: list[str] = []
        self.strange: dict[bytes, bytes] = {}
        self.was_strange = False
        self.program: Program = Program(lambda: None)
        with ExitStack() as patches:
            patches.enter_context(simulated(self.brokers))
            self.patches = patches.pop_all()
        self.restart(parts)

    def teardown(self):
        if hasattr(self, "patches"):
            with self.patches.pop_all():  # the next test is not simulated
                try:
                    self.settle()
                finally:
                    for program in [*self.frozen, self.program]:
                        program.kill()

    # --- events ---------------------------------------------------------------------

    @rule(
        steps=st.integers(1, 30),
        loses=st.integers(0, 40),
        what=st.sampled_from(["request", "answer"]),
    )
    def go_on(self, steps, loses, what):
        for number in range(steps):
            self.step(loses=what if number >= loses else "")  # each commit

    @rule(batches=st.integers(1, 6))
    def lower_the_limit_of_the_topic(self, batches):
        seen["refusals"] += 1
        self.brokers.refusals = batches

    @rule(parts=st.integers(1, 4))
    def kill_and_restart(self, parts):
        self.program.kill()
        self.restart(
            self.writer.parts if self.frozen and self.door == "bolt" else parts
        )

    @rule(parts=st.integers(1, 4))
    def freeze_and_take_over(self, parts):
        if self.door == "stream":
            self.kill_and_restart(parts)
            return
        if not self.program.is_done:
            seen["freeze"] += 1
            self.frozen.append(self.program)
        # bolts are told to keep their number while an earlier run may be alive
        self.restart(
            self.writer.parts if self.frozen and self.door == "bolt" else parts
        )

    @rule(steps=st.integers(1, 40), which=st.integers(0, 3))
    def wake_a_frozen_run(self, steps, which):
        if self.frozen:
            seen["wake"] += 1
            self.may_be_fenced = True
            zombie = self.frozen[which % len(self.frozen)]
            before = len(self.brokers.rows)
            for _ in range(steps * (3 if self.are_beside else 1)):
                zombie.step()
            if len(self.brokers.rows) > before and self.writer.memory is not None:
                seen["zombie after the snapshot"] += 1
            self.check_error(zombie.error)
            self.check()

    @rule(number=st.integers(0, 2))
    def let_another_sink_stand_still(self, number):
        """Its transaction hides from readers all markers that follow."""
        seen["another begins"] += 1
        self.others.append(begin_of_another_sink(self.brokers, number))

    @rule(state=st.sampled_from(["committed", "aborted"]))
    def let_another_sink_end(self, state):
        for name in self.others:
            self.brokers.finish(name, state)
        self.others.clear()

    @rule()
    def compact(self):
        seen["compact"] += 1
        self.brokers.compact()

    @rule(seed=st.integers(0, 1000))
    def expire_groups(self, seed):
        seen["expire"] += 1
        kept = {entry.group for key in self.strange if (entry := Entry.of_key(key))}
        for group in sorted(self.brokers.groups.keys() - kept):
            if random.Random(f"{seed}{group}").random() < 0.6:
                del self.brokers.groups[group]

    @rule(epoch=st.integers(1, 9), txid=st.integers(1, 9), parts=st.integers(1, 4))
    def let_another_query_write(self, epoch, txid, parts):
        """It was given the same ``tx.id`` of the sink, and counts its own txids."""
        if self.door == "stream" or not self.committed:
            return
        seen["stranger"] += 1
        self.may_be_fenced = True
        before = list(self.brokers.rows)
        stranger = Writer(self.door, epoch, parts, numbering="two")
        program = Program(lambda: stranger.write(txid))
        for _ in range(ENOUGH):
            program.step()
        if "is hidden by" not in str(program.error):  # it could not even look
            also = StateCorruptedError if self.strange else AnotherNumberingError
            expected = isinstance(program.error, AnotherNumberingError | also)
            assert expected, program.error
        assert self.brokers.rows == before

    @rule(
        what=st.sampled_from(["heartbeat", "garbage", "nothing", "forged"]),
        which=st.integers(0, 5),
    )
    def let_a_stranger_write_to_the_marker_topic(self, what, which):
        """Also under a key of the sink, whose group still knows the marker."""
        own = self.brokers.own_markers()
        known = [k for k in sorted(own) if self.is_in_group(k, own[k])]
        if what == "heartbeat" or not known:
            self.brokers.strange(b"heartbeat", b"2026-11-27")
            return
        key = known[which % len(known)]
        values = {"garbage": b"2026-11-27", "forged": forged(key, own[key])}
        seen[f"{what} under a key"] += 1
        self.strange[key] = own[key]
        self.was_strange = True
        self.brokers.strange(key, values.get(what))

    def is_in_group(self, key, value):
        entry = Entry.of_key(key)
        assert entry is not None
        found = self.brokers.groups.get(entry.group)
        return found is not None and found.offset == entry.of_value(value).txid

    # --- the run --------------------------------------------------------------------

    def restart(self, parts):
        self.epoch += 1
        self.may_be_fenced = False
        begun = self.begun_in.get(self.committed + 1, parts)
        if self.door == "transaction" and begun != parts and self.is_half_written():
            seen["parts changed in a batch"] += 1
        self.writer = Writer(self.door, self.epoch, parts, are_beside=self.are_beside)
        self.begin()

    def is_half_written(self):
        txid = b"%d-" % (self.committed + 1)
        return 0 < sum(row.startswith(txid) for row in self.brokers.rows) < ROWS

    def begin(self):
        writer, txid = self.writer, self.committed + 1
        self.program = Program(lambda: writer.write(txid))

    def step(self, *, loses=""):
        seen["steps"] += 1
        program = self.program
        before = len(self.brokers.rows)
        program.step(loses=loses)
        seen.update(program.lost)
        program.lost.clear()
        if len(self.brokers.rows) > before:
            self.begun_in.setdefault(self.committed + 1, self.writer.parts)
        self.check()
        if not program.is_done:
            return
        error = program.error
        self.check_error(error)
        if error is None:
            seen["batches"] += 1
            assert self.frozen or not self.brokers.holds_readers_up, "readers wait"
            self.committed += 1
            self.begin()
        else:
            seen[type(error).__name__] += 1
            assert self.may_be_fenced or "fenced" not in str(error), "by its own run"
            seen["hidden"] += "is hidden by" in str(error)
            self.after(error)

    def after(self, error):
        """A run that ended is started again, as it was begun where it is told to."""
        # a forged one is out of order, too, where other groups were forgotten
        is_misled = bool(self.strange) and isinstance(error, OutOfOrderError)
        if is_misled or isinstance(error, StateCorruptedError):
            assert self.strange, error
            seen["the way out"] += "write the group's marker" in str(error)
            for key in self.strange:
                self.brokers.strange(key, self.brokers.marker_in_group(key))
            self.strange.clear()
        refused = isinstance(error, ReplayDiffersError | OutOfOrderError)
        if refused:
            # unless somebody has damaged a marker that told of its parts
            assert self.was_strange or self.door != "transaction", error
        parts = self.begun_in.get(self.committed + 1, self.writer.parts)
        self.restart(parts if refused else self.writer.parts)

    # --- what must hold -------------------------------------------------------------

    def check(self):
        doubled = [row for row, n in Counter(self.brokers.rows).items() if n > 1]
        assert not doubled, f"doubled: {doubled}"
        complete = Counter(int(row.split(b"-")[0]) for row in self.brokers.rows)
        for txid in range(1, self.committed + 1):
            assert complete[txid] == ROWS, f"lost of txid {txid}"

    def check_error(self, error):
        """Nothing is said to be damaged where nobody has damaged it."""
        assert is_documented(error), error
        assert self.was_strange or not isinstance(error, StateCorruptedError), error

    def settle(self):
        """All zombies end; the run then gets on, without any error but known ones.

        It needs another sink's open transaction to end only where a group was forgotten
        or its first transaction aborted.
        """
        self.let_another_sink_end("aborted")
        self.may_be_fenced |= bool(self.frozen)
        for zombie in self.frozen:
            for _ in range(ENOUGH):
                zombie.step()
            assert zombie.is_done
            self.check_error(zombie.error)
        self.check()
        wanted = self.committed + 2
        for _ in range(ENOUGH):
            if self.committed >= wanted:
                break
            self.step()
        assert self.committed >= wanted, "stuck"


WHAT_MUST_HAPPEN = (
    *("freeze", "wake", "expire", "batches"),
    *("stranger", "request", "answer", "refusals"),
    *("garbage under a key", "nothing under a key", "forged under a key"),
    *(
        "the way out",
        "another begins",
        "compact",
        "zombie after the snapshot",
        "hidden",
    ),
    "parts changed in a batch",
)
ROUNDS = size(1, 4)


def test_each_row_is_written_once_whatever_dies():
    """Until enough was played, and everything happened that must."""
    seen.clear()
    for number in itertools.count():
        if number >= ROUNDS and all(seen[what] for what in WHAT_MUST_HAPPEN):
            return
        assert number < ROUNDS + 160, f"the simulation is blind: {seen}"
        play_round(number, SimulatedSink, steps=25, examples=size(5, 120))


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_first_run_that_wakes_between_two_requests_of_the_next_damages_nothing(steps):
    """It writes what the next run's first answer did not have, and its second has."""
    game = SimulatedSink()
    game.start(door="transaction", parts=1)
    game.freeze_and_take_over(parts=1)
    game.go_on(loses=0, steps=steps, what="request")
    game.teardown()


@pytest.mark.parametrize("steps", range(30))
def test_a_marker_that_is_forged_at_any_moment_hides_no_half_written_batch(steps):
    """A task may not see it; before the driver writes the rest, it is read anew."""
    game = SimulatedSink()
    game.start(door="stream", parts=2)
    game.go_on(loses=16, steps=23, what="request")
    game.kill_and_restart(parts=1)
    game.go_on(loses=40, steps=steps, what="request")
    game.let_a_stranger_write_to_the_marker_topic("forged", 0)
    game.teardown()


@pytest.mark.parametrize("door", ["transaction", "bolt"])
@pytest.mark.parametrize("steps", range(2, 9))
def test_a_run_that_wakes_after_newer_markers_were_compacted_damages_nothing(
    door, steps
):
    """Its group knew a marker that the topic has not kept: for a newer one."""
    for more in range(8):
        game = SimulatedSink()
        game.start(door=door, parts=1)
        game.freeze_and_take_over(parts=1)
        game.go_on(loses=40, steps=steps, what="request")
        game.wake_a_frozen_run(steps=40, which=0)
        for _ in range(more):
            game.step()
        game.freeze_and_take_over(parts=1)
        game.go_on(loses=40, steps=40, what="request")
        game.compact()
        game.teardown()


@pytest.mark.parametrize("steps", [13, 14, 20, 21, 22, 26])
def test_a_task_that_wakes_calls_no_plan_damaged_that_another_sink_hides(steps):
    """A task leaves such a plan out, and its group has it."""
    for more in range(24, 36, 2):
        game = SimulatedSink()
        game.start(door="transaction", parts=3)
        game.go_on(loses=40, steps=steps, what="request")
        game.freeze_and_take_over(parts=3)
        game.let_another_sink_stand_still(number=2)
        game.go_on(loses=40, steps=more, what="request")
        game.freeze_and_take_over(parts=3)
        game.wake_a_frozen_run(steps=40, which=0)
        game.teardown()


@pytest.mark.parametrize("epoch", range(1, 9))
def test_tasks_that_write_beside_each_other_leave_each_other_alone(epoch):
    """The first one of a bolt ends what an earlier run has left open."""
    game = SimulatedSink()
    game.start(door="bolt", parts=3, are_beside=True)
    for _ in range(epoch):
        game.kill_and_restart(parts=3)
    game.go_on(loses=99, steps=100, what="request")
    assert game.committed
    game.teardown()


@pytest.mark.parametrize("door", ["stream", "bolt"])
@pytest.mark.parametrize("steps", range(8, 32))
def test_tasks_that_were_killed_beside_each_other_hold_no_smaller_run_up(door, steps):
    """Of two transactions that are open at once, each may hide the other's marker."""
    game = SimulatedSink()
    game.start(door=door, parts=2, are_beside=True)
    game.go_on(loses=99, steps=steps, what="request")
    game.kill_and_restart(parts=1)
    game.teardown()


@pytest.mark.parametrize("steps", range(1, 40))
def test_a_bolt_with_fewer_tasks_lets_readers_go_on_wherever_the_former_one_died(steps):
    """Readers would wait for a part that nobody writes now."""
    game = SimulatedSink()
    game.start(door="bolt", parts=2)
    game.go_on(loses=99, steps=12 + steps, what="request")
    game.kill_and_restart(parts=1)
    game.teardown()


@pytest.mark.parametrize("parts", [1, 2])
def test_wherever_a_first_batch_dies_the_next_run_lets_readers_go_on(parts):
    """Nothing is remembered of the sink, and its parts may be fewer then."""
    held_up = 0
    for steps in itertools.count(1):
        brokers = Brokers()
        with simulated(brokers):
            dying = Program(lambda: Writer("stream", 1, 4).write(1))
            for _ in range(steps):
                dying.step()
            if dying.is_done:
                break
            dying.kill()
            held_up += brokers.holds_readers_up

            following = Program(lambda: Writer("stream", 2, parts).write(1))
            for _ in range(ENOUGH):
                following.step()

            assert following.is_done
            assert is_documented(following.error), following.error
            assert not brokers.holds_readers_up, f"killed after {steps} steps"
    assert held_up > 10, "the simulation is blind"


@pytest.mark.parametrize(("door", "parts"), [("transaction", 2), ("bolt", 1)])
def test_a_run_that_reports_its_batch_as_written_has_written_its_own_rows(door, parts):
    """Not those of an older run that made others, and woke while this one wrote."""
    refused = 0
    for steps, more in itertools.product(range(1, 20), range(1, 32)):
        brokers = Brokers()
        with simulated(brokers):
            Writer(door, 1, parts).write(1)
            runs = {
                b"%d" % epoch: Program(
                    partial(Writer(door, epoch, parts, more=b"%d" % epoch).write, 2)
                )
                for epoch in (2, 3)
            }
            for program, count in zip(runs.values(), (steps, more), strict=True):
                for _ in range(count):
                    program.step()
            for program in runs.values():
                for _ in range(ENOUGH):
                    program.step()
                assert program.is_done
                assert is_documented(program.error), program.error

        written = {row[-1:] for row in brokers.rows if row.startswith(b"2-")}
        for its, program in runs.items():
            if program.error is None:
                assert written == {its}, f"after {steps} and {more} steps"
        refused += isinstance(program.error, ReplayDiffersError)
    assert refused, "the simulation is blind"
