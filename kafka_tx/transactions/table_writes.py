"""A batch into a table of a lakehouse: look, write in one commit, look again.

The table's format commits the rows and the attempt together. ``admission`` decides; a
table only has to tell whose commit was the last, and to refuse a commit that is not the
next.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable
from typing import Protocol

from kafka_tx.errors import ConfigError, StateLostError
from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.admission import following, is_written, second_write

logger = logging.getLogger(__name__)

MANY_COMMITS, WITHIN_MS = 60, 60_000
"""More commits in a minute are worth a warning: each is a version and small files."""

NEVER = TransactionAttempt(0, 0)

_left: dict[Hashable, TransactionAttempt] = {}
"""The attempt that this program wrote last, by sink."""


class CommitPace:
    """Warns once of a table whose commits come quickly (driver)."""

    def __init__(self) -> None:
        self._last: dict[Hashable, deque[int]] = {}
        self._told: set[Hashable] = set()

    def committed(self, table: SinkTable, now_ms: int) -> None:
        """Note a commit; ``now_ms`` counts from any point."""
        last = self._last.setdefault(table.sink, deque(maxlen=MANY_COMMITS))
        last.append(now_ms)
        is_many = len(last) == MANY_COMMITS and now_ms - last[0] < WITHIN_MS
        if is_many and table.sink not in self._told:
            self._told.add(table.sink)
            logger.warning(
                "%s: %d commits in less than %d s. Each adds a version and small files."
                " For fewer, set the source's minOffsetsPerTrigger and maxTriggerDelay",
                table.what,
                MANY_COMMITS,
                WITHIN_MS // 1000,
            )


class SinkTable(Protocol):
    """A table, as one sink writes to it."""

    @property
    def sink(self) -> Hashable:
        """Which sink: equal for the same table and the same name of the sink."""

    @property
    def what(self) -> str:
        """The table in words."""

    def stored(self, given: TransactionAttempt) -> TransactionAttempt:
        """The attempt whose commit was the last of this sink; txid 0: there is none.

        Of the numbering of ``given`` where the sink has a commit of it.
        """

    def check_kept(self, stored: TransactionAttempt) -> None:
        """Refuse to skip a batch whose rows were taken out of the table.

        Raises:
            StateLostError: The table was taken back to before this commit.
        """

    def write(self, attempt: TransactionAttempt) -> None:
        """Commit the batch and the attempt; nothing where the txid is there already."""


def write_batch(table: SinkTable, given: TransactionAttempt) -> bool:
    """Write a batch unless its txid is in the table.

    1. Look whose commit was the last one, and ask ``is_written``.
    2. Write.
    3. Look again, also after an error: only the table knows whether the commit is
       there, and whether another driver was faster.

    Returns:
        Whether this call wrote.

    Raises:
        ConfigError: The attempt is opaque, or was written by an earlier call.
        AnotherNumberingError, FencedError, OutOfOrderError, ReplayDiffersError: As
            ``is_written``.
        StateLostError: The table does not hold what this program, or an earlier try at
            the batch, has written.
        Exception: What the write raised, if nothing of the batch is in the table.
    """
    if given.txid < 1:
        raise ConfigError.illegal("txid", given.txid, "1 and above")
    stored = table.stored(given)
    if _is_same(given, stored):
        advice = "give each its own `sink`"
        raise second_write(given, what=table.what, option="table", advice=advice)
    if is_written(given, stored, what=table.what, is_opaque=False):
        table.check_kept(stored)
        return False
    _check_left(table, given, stored)
    try:
        table.write(following(given, stored))
    except Exception:
        if not _is_there(table, given):
            raise
        logger.warning("txid %d is in %s after an error", given.txid, table.what)
    stored = table.stored(given)
    if _is_same(given, stored):
        _left[table.sink] = given
        return True
    if is_written(given, stored, what=table.what, is_opaque=False):
        return False
    raise _lost(table, f"txid {given.txid} was committed and is not there")


def _is_there(table: SinkTable, given: TransactionAttempt) -> bool:
    """Whether the txid is in the table after all; asked while an error is handled."""
    stored = table.stored(given)
    return is_written(given, stored, what=table.what, is_opaque=False)


def _is_same(given: TransactionAttempt, stored: TransactionAttempt) -> bool:
    named = "" not in (given.numbering, stored.numbering)
    return given == stored and (not named or given.numbering == stored.numbering)


def _check_left(
    table: SinkTable, given: TransactionAttempt, stored: TransactionAttempt
) -> None:
    """Refuse to write into a table that does not hold what this program wrote."""
    left = _left.get(table.sink, NEVER)
    is_owner = (given.numbering, given.epoch) == (left.numbering, left.epoch)
    if is_owner and stored.txid < left.txid:
        raise _lost(
            table,
            f"txid {left.txid} was left there by this program, and the last one is"
            f" {stored.txid or 'none'} now",
        )


def _lost(table: SinkTable, how: str) -> StateLostError:
    return StateLostError(
        f"{table.what} does not hold what was written: {how}. The table was dropped,"
        " made anew or replaced by a copy. Nothing was written now. If that was meant,"
        f" start again: the table gets the batch that is under way and all later ones."
        " Earlier ones stay out. If it was not meant, put the table back first, then"
        " start again",
        store=table.what,
        id=str(table.sink),
    )
