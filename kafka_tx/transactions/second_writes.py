"""A sink takes one write of each batch: the rule for all that are written once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from kafka_tx.errors import ConfigError
from kafka_tx.model import TransactionAttempt

_written: dict[Hashable, TransactionAttempt] = {}
"""The last attempt that this program has written to each sink."""


@contextmanager
def only_write(
    sink: Hashable, attempt: TransactionAttempt, *, what: str, option: str, advice: str
) -> Iterator[None]:
    """Around the write of an attempt to a sink. One that fails may be tried again.

    A second one would be taken for a replay of the first: dropped, or put in its place.
    Every try at a batch has an attempt of its own, so no replay is refused here.

    The first write is committed when the second one is refused. A union of both would
    come under a txid that the sink has, and the second half of the batch would be
    dropped: so the advice is another sink for the second write.

    Args:
        sink: Which one: equal for the same.
        attempt: Of the batch.
        what: The sink in words.
        option: What names it.
        advice: How the second write gets a sink of its own.

    Raises:
        ConfigError: The attempt is written already.
    """
    if _written.get(sink) == attempt:
        raise second_write(attempt, what=what, option=option, advice=advice)
    yield
    _written[sink] = attempt


def second_write(
    attempt: TransactionAttempt, *, what: str, option: str, advice: str
) -> ConfigError:
    """The error for another write of an attempt; arguments as of ``only_write``."""
    return ConfigError(
        f"{what} was written already in transaction {attempt}, and takes one write of"
        f" each. The first write of txid {attempt.txid} is committed; this second one,"
        " which would be taken for its replay, changed nothing. Leave the first write"
        f" as it is, and {advice}; then start again. Do not join the two: the replay of"
        f" txid {attempt.txid} would leave out what is joined to the first",
        option=option,
    )
