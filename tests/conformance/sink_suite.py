"""What every sink promises that counts a txid once; a subclass gives ``open_sink``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import pytest

from kafka_tx.errors import (
    AnotherNumberingError,
    ConfigError,
    FencedError,
    OutOfOrderError,
    ReplayDiffersError,
)
from kafka_tx.model import TransactionAttempt

Rows = Sequence[str]


class Sink(Protocol):
    """A sink under test, in a program of its own."""

    def write(self, attempt: TransactionAttempt, rows: Rows) -> bool:
        """Write a batch; whether this call wrote."""

    def dies(self, attempt: TransactionAttempt, rows: Rows, step: int) -> bool:
        """Write a batch in a program that dies before this step (from 0).

        False: the write has no such step, and has ended. A new program follows.
        """

    def rows(self) -> list[str]:
        """All rows that readers see, in order of their text."""


def attempt(txid: int, epoch: int = 1, number: int = 1, **names: str):
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
    def sink(self, open_sink):
        return open_sink()

    def test_a_txid_is_written_once(self, sink):
        assert sink.write(attempt(1), ["a", "b"])
        assert sink.write(attempt(2), ["c"])

        for replay in (attempt(2, number=2), attempt(2, epoch=2), attempt(2, epoch=5)):
            assert sink.write(replay, ["c"]) is self.takes_back

        assert sink.rows() == ["a", "b", "c"]

    def test_a_new_program_knows_what_the_former_one_wrote(self, open_sink):
        open_sink().write(attempt(1), ["a"])

        assert open_sink().write(attempt(1, epoch=2), ["a"]) is self.takes_back
        assert open_sink().write(attempt(2, epoch=3), ["b"])
        assert open_sink().rows() == ["a", "b"]

    def test_a_batch_without_rows_is_counted(self, sink):
        sink.write(attempt(1), ["a"])
        sink.write(attempt(2), [])
        sink.write(attempt(2, epoch=2), [])

        assert sink.write(attempt(3, epoch=2), ["c"])
        assert sink.rows() == ["a", "c"]

    def test_a_txid_may_be_skipped(self, sink):
        sink.write(attempt(1), ["a"])

        assert sink.write(attempt(4), ["d"])
        assert sink.write(attempt(4, epoch=2), ["d"]) is self.takes_back
        assert sink.rows() == ["a", "d"]

    def test_a_txid_before_the_last_one_is_refused(self, sink):
        sink.write(attempt(2), ["b"])

        with pytest.raises(OutOfOrderError, match="transaction 1 comes after 2"):
            sink.write(attempt(1, number=9), ["a"])

        assert sink.rows() == ["b"]

    def test_an_older_owner_is_refused_whatever_txid_it_brings(self, sink):
        sink.write(attempt(2, epoch=7), ["b"])

        for txid in (1, 2, 3):
            with pytest.raises(FencedError, match="is older than .*epochs 6 and 7"):
                sink.write(attempt(txid, epoch=6, number=99), ["x"])

        assert sink.write(attempt(3, epoch=7, number=2), ["c"])
        assert sink.rows() == ["b", "c"]

    def test_the_txid_of_another_numbering_is_refused(self, sink):
        sink.write(attempt(2, epoch=2), ["b"])

        for txid, epoch in itertools.product((1, 2, 3), repeat=2):
            with pytest.raises(AnotherNumberingError) as reported:
                sink.write(attempt(txid, epoch, numbering="two", source="job"), ["x"])
            for words in (
                "numbering one ('orders')",
                "numbering two ('job')",
                "--numbering one --attempt 2:20000000000",
            ):
                assert words in str(reported.value)

        assert sink.write(attempt(3, epoch=2), ["c"])
        assert sink.rows() == ["b", "c"]

    def test_attempts_made_by_hand_are_compared_as_far_as_they_tell(self, sink):
        assert sink.write(TransactionAttempt(1, 1), ["a"])
        assert sink.write(attempt(2), ["b"])
        assert sink.write(TransactionAttempt.of(3, epoch=1, number=7), ["c"])

        with pytest.raises(AnotherNumberingError):
            sink.write(attempt(4, numbering="two", source="job"), ["x"])
        with pytest.raises(FencedError):
            sink.write(TransactionAttempt(4, 1), ["x"])
        assert sink.rows() == ["a", "b", "c"]

    def test_a_replay_with_other_records_is_refused_or_takes_their_place(self, sink):
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
        self, open_sink
    ):
        expected: list[str] = []
        for step in itertools.count():
            txid, epoch = step + 1, 2 * step + 1
            rows = [f"{txid:03}-{name}" for name in "ab"]
            expected += rows

            died = open_sink().dies(attempt(txid, epoch), rows, step)
            after = open_sink().rows()
            open_sink().write(attempt(txid, epoch + 1), rows)

            assert after in (expected, expected[: -len(rows)])
            assert open_sink().rows() == expected
            if not died:
                break
        assert step > 1


class SinkSuite(RuleSuite):
    """The suite for what users call: it also judges the call itself."""

    def test_an_opaque_attempt_is_written_where_it_can_be_taken_back(self, sink):
        if self.takes_back:
            assert sink.write(attempt(1, mode="opaque"), ["a"])
            assert sink.write(attempt(2), ["b"])
            assert sink.rows() == ["a", "b"]
            return
        with pytest.raises(ConfigError, match="of 'orders' is opaque: .*OpaqueMap"):
            sink.write(attempt(1, mode="opaque"), ["a"])
        assert sink.rows() == []

    def test_a_second_write_of_an_attempt_is_refused(self, sink):
        sink.write(attempt(1), ["a"])

        with pytest.raises((ConfigError, ReplayDiffersError)):
            sink.write(attempt(1), ["b"])

        assert sink.write(attempt(2), ["c"])
        assert sink.rows() == ["a", "c"]
