"""A sink takes one write of each batch."""

from dataclasses import replace

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.admission import only_write

FIRST = TransactionAttempt.of(1, epoch=3, number=1)
AGAIN = TransactionAttempt.of(1, epoch=3, number=2)


@pytest.fixture
def write(request):
    def write(attempt, sink="rows", dies=False):
        named = {"what": f"table '{sink}'", "option": "table", "advice": "Do else."}
        with only_write((request.node.name, sink), attempt, **named):
            if dies:
                raise ZeroDivisionError

    return write


def test_a_second_write_of_an_attempt_is_refused_by_name(write):
    write(FIRST)

    with pytest.raises(ConfigError, match=r"table 'rows' was written already.*Do else"):
        write(FIRST)


def test_a_replay_another_sink_and_another_try_after_an_error_are_not(write):
    write(FIRST)
    write(AGAIN)
    write(AGAIN, "other")
    with pytest.raises(ZeroDivisionError):
        write(TransactionAttempt.of(2, epoch=3, number=1), dies=True)

    write(TransactionAttempt.of(2, epoch=3, number=1))


def test_an_attempt_of_another_numbering_is_not_the_one_that_wrote(write):
    """A store that begins anew counts txids and owners from 1 again."""
    write(replace(FIRST, numbering="former"))

    write(replace(FIRST, numbering="new"))
