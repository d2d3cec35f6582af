"""What every sink promises that counts a txid once, as tests for pytest.

``TransactionalSinkSuite`` is for sinks of yours. ``RuleSuite`` and ``SinkSuite`` are
the part of it that all sinks of kafka_tx pass, too.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, Protocol
from unittest.mock import patch

import pytest

from kafka_tx.errors import (
    AnotherNumberingError,
    ConfigError,
    FencedError,
    OutOfOrderError,
    ReplayDiffersError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.running.transactional_sink import TransactionalSink
from kafka_tx.sinks import table_writes
from kafka_tx.testing.stand_ins import Crash

Rows = Sequence[str]


class Sink(Protocol):
    """A sink under test, in a program of its own."""

    def write(self, attempt: TransactionAttempt, rows: Rows) -> bool:
        """Write a batch; whether this call wrote."""

    def dies(self, attempt: TransactionAttempt, rows: Rows, step: int) -> bool | str:
        """Write a batch in a program that dies before this step (from 0).

        False: the write has no such step, and has ended. Else True, or the name of the
        step. A new program follows.
        """

    def rows(self) -> list[str]:
        """All rows that readers see, in order of their text."""


def attempt(
    txid: int, epoch: int = 1, number: int = 1, **names: str
) -> TransactionAttempt:
    """One attempt of the id ``orders``; its plan is named after the txid."""
    made = TransactionAttempt.of(txid, epoch=epoch, number=number)
    given = {"source": "orders", "numbering": "one", "plan": f"plan{txid}", **names}
    return TransactionAttempt(made.txid, made.attempt_id, **given)  # type: ignore[arg-type]


class RuleSuite:
    """``open_sink()`` gives a sink that is empty at its first call."""

    takes_back: ClassVar[bool] = False
    """Whether a replay with other rows takes the place of the earlier attempt's."""

    @pytest.fixture
    def open_sink(self) -> Callable[[], Sink]:
        raise NotImplementedError

    @pytest.fixture
    def sink(self, open_sink: Callable[[], Sink]) -> Sink:
        return open_sink()

    def test_a_txid_is_written_once(self, sink: Sink) -> None:
        assert sink.write(attempt(1), ["a", "b"])
        assert sink.write(attempt(2), ["c"])

        for replay in (attempt(2, number=2), attempt(2, epoch=2), attempt(2, epoch=5)):
            assert sink.write(replay, ["c"]) is self.takes_back

        assert sink.rows() == ["a", "b", "c"]

    def test_a_new_program_knows_what_the_former_one_wrote(
        self, open_sink: Callable[[], Sink]
    ) -> None:
        open_sink().write(attempt(1), ["a"])

        assert open_sink().write(attempt(1, epoch=2), ["a"]) is self.takes_back
        assert open_sink().write(attempt(2, epoch=3), ["b"])
        assert open_sink().rows() == ["a", "b"]

    def test_a_batch_without_rows_is_counted(self, sink: Sink) -> None:
        sink.write(attempt(1), ["a"])
        sink.write(attempt(2), [])
        sink.write(attempt(2, epoch=2), [])

        assert sink.write(attempt(3, epoch=2), ["c"])
        assert sink.rows() == ["a", "c"]

    def test_a_txid_may_be_skipped(self, sink: Sink) -> None:
        sink.write(attempt(1), ["a"])

        assert sink.write(attempt(4), ["d"])
        assert sink.write(attempt(4, epoch=2), ["d"]) is self.takes_back
        assert sink.rows() == ["a", "d"]

    def test_a_txid_before_the_last_one_is_refused(self, sink: Sink) -> None:
        sink.write(attempt(2), ["b"])

        with pytest.raises(OutOfOrderError, match="transaction 1 comes after 2"):
            sink.write(attempt(1, number=9), ["a"])

        assert sink.rows() == ["b"]

    def test_an_older_owner_is_refused_whatever_txid_it_brings(
        self, sink: Sink
    ) -> None:
        sink.write(attempt(2, epoch=7), ["b"])

        for txid in (1, 2, 3):
            with pytest.raises(FencedError, match="is older than .*epochs 6 and 7"):
                sink.write(attempt(txid, epoch=6, number=99), ["x"])

        assert sink.write(attempt(3, epoch=7, number=2), ["c"])
        assert sink.rows() == ["b", "c"]

    def test_the_txid_of_another_numbering_is_refused(self, sink: Sink) -> None:
        sink.write(attempt(2, epoch=2), ["b"])

        for txid, epoch in itertools.product((1, 2, 3), repeat=2):
            with pytest.raises(AnotherNumberingError) as refusal:
                sink.write(attempt(txid, epoch, numbering="two", source="job"), ["x"])
            for words in (
                "numbering one ('orders')",
                "numbering two ('job')",
                "--numbering one --attempt 2:20000000000",
            ):
                assert words in str(refusal.value)

        assert sink.write(attempt(3, epoch=2), ["c"])
        assert sink.rows() == ["b", "c"]

    def test_attempts_made_by_hand_are_compared_as_far_as_they_tell(
        self, sink: Sink
    ) -> None:
        assert sink.write(TransactionAttempt(1, 1), ["a"])
        assert sink.write(attempt(2), ["b"])
        assert sink.write(TransactionAttempt.of(3, epoch=1, number=7), ["c"])

        with pytest.raises(AnotherNumberingError):
            sink.write(attempt(4, numbering="two", source="job"), ["x"])
        with pytest.raises(FencedError):
            sink.write(TransactionAttempt(4, 1), ["x"])
        assert sink.rows() == ["a", "b", "c"]

    def test_a_replay_with_other_records_is_refused_or_takes_their_place(
        self, sink: Sink
    ) -> None:
        sink.write(attempt(1), ["a"])
        other = attempt(1, epoch=2, plan="other")

        if self.takes_back:
            assert sink.write(other, ["b", "c"])
            assert sink.rows() == ["b", "c"]
            return
        with pytest.raises(ReplayDiffersError, match="txid 1 .*ended elsewhere"):
            sink.write(other, ["a", "b"])
        assert not sink.write(attempt(1, epoch=2, plan=""), ["a"])  # does not tell
        assert sink.rows() == ["a"]

    def test_a_program_that_dies_at_any_step_leaves_the_batch_to_the_next(
        self, open_sink: Callable[[], Sink]
    ) -> None:
        expected: list[str] = []
        for step in itertools.count():
            txid, epoch = step + 1, 2 * step + 1
            rows = [f"{txid:03}-{name}" for name in "ab"]
            expected += rows

            died = open_sink().dies(attempt(txid, epoch), rows, step)
            after = open_sink().rows()

            where = f"after a death {died} readers"
            assert after in (expected, expected[: -len(rows)]), f"{where} see {after}"
            try:
                open_sink().write(attempt(txid, epoch + 1), rows)
            except Exception as error:
                error.add_note(f"{where} see {after}, and a new program cannot write")
                raise
            found = open_sink().rows()
            assert found == expected, f"{where} see {found} once it was written again"
            if not died:
                break
        assert step > 1


class SinkSuite(RuleSuite):
    """The suite for what users call: it also judges the call itself."""

    def test_an_opaque_attempt_is_written_where_it_can_be_taken_back(
        self, sink: Sink
    ) -> None:
        if self.takes_back:
            assert sink.write(attempt(1, mode="opaque"), ["a"])
            assert sink.write(attempt(2), ["b"])
            assert sink.rows() == ["a", "b"]
            return
        with pytest.raises(ConfigError, match="of 'orders' is opaque: .*OpaqueMap"):
            sink.write(attempt(1, mode="opaque"), ["a"])
        assert sink.rows() == []

    def test_a_second_write_of_an_attempt_is_refused(self, sink: Sink) -> None:
        sink.write(attempt(1), ["a"])

        with pytest.raises((ConfigError, ReplayDiffersError)):
            sink.write(attempt(1), ["b"])

        assert sink.write(attempt(2), ["c"])
        assert sink.rows() == ["a", "c"]


class TransactionalSinkSuite(SinkSuite):
    """The suite for a ``TransactionalSink``.

    A subclass whose name begins with ``Test`` gives ``open`` and ``found``, and
    ``batch`` if the sink takes no lists of texts. Each test needs an empty storage: a
    fixture of yours with ``autouse=True`` makes it.

    A program dies before each line of the sink's own file that runs during a write, so
    an error names the line behind which a write is half done. ``finally`` and ``with``
    run, as they do not where a process is killed: put no promise there.
    """

    def open(self) -> TransactionalSink:
        """The sink on the storage of this test, as another process would make it."""
        raise NotImplementedError

    def found(self) -> Sequence[str]:
        """The rows that readers see in the storage of this test, in any order."""
        raise NotImplementedError

    def batch(self, rows: Rows) -> Any:  # noqa: ANN401 - what the sink takes
        """A batch with these rows, as the sink takes it."""
        return list(rows)

    @pytest.fixture(autouse=True)
    def _another_program(self) -> None:
        table_writes._left.clear()

    @pytest.fixture
    def open_sink(self, _another_program: None) -> Callable[[], Sink]:
        """For the tests above."""
        type(self).takes_back = type(self.open()).takes_back
        return lambda: _Program(self, self.open())

    def test_the_attempt_that_is_stored_is_told(self) -> None:
        """With its source, numbering and plan, and of the last batch."""
        assert self.open().read_attempt() is None
        for given in (attempt(1), attempt(2, epoch=3)):
            self.open()(self.batch(["a"]), given)
            told = self.open().read_attempt()

            assert told is not None
            assert told.as_json() == given.as_json()

    @pytest.mark.parametrize("has_arrived", [False, True])
    def test_an_outcome_that_is_unknown_is_looked_up(self, has_arrived: bool) -> None:
        sink = self.open()
        write, failures = sink.write, [sink.unavailable[0]("no answer")]

        def breaks(*given: Any) -> None:  # noqa: ANN401
            if failures and not has_arrived:
                raise failures.pop()
            write(*given)
            if failures:
                raise failures.pop()

        sink.write = breaks  # type: ignore[method-assign, assignment]

        assert sink(self.batch(["a"]), attempt(1))
        assert sink(self.batch(["b"]), attempt(2))
        assert sorted(self.found()) == ["a", "b"]

    @pytest.mark.parametrize(("epoch", "number"), [(2, 1), (1, 2)])
    def test_a_write_that_comes_after_another_one_changes_nothing(
        self, epoch: int, number: int
    ) -> None:
        """Of a frozen driver, or whose request was under way for long."""
        late, first = self.open(), self.open()
        first(self.batch(["a"]), attempt(1))
        write, others = late.write, [attempt(2, epoch, number)]

        def waits(*given: Any) -> None:  # noqa: ANN401
            while others:
                assert first(self.batch(["b"]), others.pop())
            write(*given)

        late.write = waits  # type: ignore[method-assign, assignment]

        assert _tried(late, self.batch(["b"]), attempt(2)) in ("False", "FencedError")
        assert sorted(self.found()) == ["a", "b"]
        assert first(self.batch(["c"]), attempt(3, epoch=2))
        assert sorted(self.found()) == ["a", "b", "c"]

    def test_a_write_that_comes_after_a_later_txid_changes_nothing(self) -> None:
        """Of a frozen driver whose batch was left out meanwhile."""
        late, first = self.open(), self.open()
        first(self.batch(["a"]), attempt(1))
        write, others = type(late).write, [attempt(3, epoch=2)]

        def waits(sink: TransactionalSink, *given: Any) -> None:  # noqa: ANN401
            while others:
                assert first(self.batch(["c"]), others.pop())
            write(sink, *given)

        with patch.object(type(late), "write", waits):
            assert _tried(late, self.batch(["b"]), attempt(2)) == "FencedError"
        assert sorted(self.found()) == ["a", "c"]

    def test_writers_of_one_txid_at_the_same_time_are_one(self) -> None:
        self.open()(self.batch(["a"]), attempt(1))
        batches = [
            (self.open(), self.batch(["b"]), attempt(2, number=n)) for n in (1, 2)
        ]

        with ThreadPoolExecutor(2) as pool:
            wrote = sorted(pool.map(lambda given: _tried(*given), batches))

        assert "True" in wrote
        assert wrote == ["True", "True"] or wrote[0] in ("False", "FencedError")
        assert sorted(self.found()) == ["a", "b"]


def _tried(sink: TransactionalSink, batch: Any, given: TransactionAttempt) -> str:  # noqa: ANN401
    try:
        return str(sink(batch, given))
    except FencedError as error:
        return type(error).__name__


@dataclass
class _Program:
    """A sink of somebody in a program of its own."""

    suite: TransactionalSinkSuite
    sink: TransactionalSink

    def write(self, attempt: TransactionAttempt, rows: Rows) -> bool:
        return self.sink(self.suite.batch(rows), attempt)

    def dies(self, attempt: TransactionAttempt, rows: Rows, step: int) -> str:
        batch = self.suite.batch(rows)
        try:
            with _dying_before_line(step, _files_of(self.sink)):
                self.sink(batch, attempt)
        except Crash as death:
            return str(death)
        finally:
            table_writes._left.clear()
        return ""

    def rows(self) -> list[str]:
        return sorted(self.suite.found())


def _files_of(sink: TransactionalSink) -> set[str]:
    """The files of the sink's methods, but for those of the base class."""
    kinds = type(sink).__mro__
    own = (vars(kind).values() for kind in kinds[: kinds.index(TransactionalSink)])
    methods = filter(inspect.isfunction, itertools.chain.from_iterable(own))
    return {method.__code__.co_filename for method in methods}


@contextmanager
def _dying_before_line(step: int, files: set[str]) -> Iterator[None]:
    left = itertools.count(step, -1)

    def local(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401
        if event == "line" and next(left) == 0:
            code = frame.f_code
            raise Crash(f"before line {frame.f_lineno} in {code.co_name}")
        return local

    def called(frame: FrameType, _: str, __: Any) -> Any:  # noqa: ANN401
        return local if frame.f_code.co_filename in files else None

    former = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(former)
