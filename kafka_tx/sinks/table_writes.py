"""Write a batch to a lakehouse table: read, write in one commit, read again.

The table's format commits the rows and the attempt together. ``admission`` decides; a
table only has to report the last commit's attempt, and to refuse a commit if another
one came first.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_tx.errors import ConfigError, StateGivenUpError, StateLostError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.admission import attempt_to_store, is_written, second_write
from kafka_tx.sinks.delta_rollbacks import Rollback
from kafka_tx.stored import TABLES
from kafka_tx.transactions.layout.commit_stats import TableWrite

logger = event_log(__name__)

MANY_COMMITS, WITHIN_MS = 60, 60_000
"""More commits in a minute cause a warning: each adds a version and small files."""

NEVER = TransactionAttempt(0, 0)
KEY = "kafka_tx"
"""The name of our record in the metadata of a commit."""
RETENTION = "delta.setTransactionRetentionDuration"
"""The property with which a Delta table forgets transactions; sinks refuse it."""

TRIES = 10
"""Tries to write a batch while other writers commit first."""

_KEPT = 100
_noted: dict[tuple[str, str, int], list[TableWrite]] = {}
"""Recent table writes of this program, by id, numbering and txid."""

_left: dict[Hashable, TransactionAttempt] = {}
"""The attempt that this program wrote, or found written, last, by sink."""


class CommitPace:
    """Warns once about a table with many commits a minute (driver)."""

    def __init__(self) -> None:
        self._last: dict[Hashable, deque[int]] = {}
        self._warned: set[Hashable] = set()

    def committed(self, table: SinkTable, now_ms: int) -> None:
        """Count a commit; ``now_ms`` may count from any point in time."""
        last = self._last.setdefault(table.sink, deque(maxlen=MANY_COMMITS))
        last.append(now_ms)
        is_many = len(last) == MANY_COMMITS and now_ms - last[0] < WITHIN_MS
        if is_many and table.sink not in self._warned:
            self._warned.add(table.sink)
            logger.warning(
                "%s: %d commits in less than %d s. Each adds a version and small files."
                " For fewer, set the source's minOffsetsPerTrigger and maxTriggerDelay",
                table.what,
                MANY_COMMITS,
                WITHIN_MS // 1000,
            )


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table; None: the table does not report the value.

    Attributes:
        version: Version, or id of the snapshot.
        files: Data files that the commit has added.
        rows: In these files.
        location: Address of the table; empty: unknown.
    """

    version: int | None = None
    files: int | None = None
    rows: int | None = None
    location: str = ""


def record_commit(
    table: SinkTable, attempt: TransactionAttempt, seconds: float | None
) -> None:
    """Record the table's commit of a source's attempt, for people.

    The table was read after the commit. ``seconds`` is the duration of the write; None:
    an earlier try has written.
    """
    name, sink = table.sink
    found = table.commit()
    write = TableWrite(
        txid=attempt.txid,
        table=name,
        sink=sink,
        version=None if found.version is None else str(found.version),
        files=found.files,
        rows=found.rows,
        location=found.location,
        seconds=seconds,
    )
    key = attempt.source, attempt.numbering, attempt.txid
    others = [
        each for each in _noted.get(key, ()) if (each.table, each.sink) != table.sink
    ]
    _noted[key] = [*others, write]
    while len(_noted) > _KEPT:
        del _noted[next(iter(_noted))]


def recorded_commits(id: str, numbering: str, txid: int) -> tuple[TableWrite, ...]:  # noqa: A002
    """The table writes that ``note`` recorded of a transaction."""
    return tuple(_noted.get((id, numbering, txid), ()))


def warn_of_rollback(what: str, given: TransactionAttempt) -> None:
    """Say that a rolled-back table lacks batches that the source has committed."""
    logger.warning(
        "%s was rolled back: rows of its last batches before txid %d are missing. They"
        " stay out, because the source has committed these batches. If you need them,"
        " stop the query and undo the rollback",
        *(what, given.txid),
        attempt=given,
    )


class OvertakenError(Exception):
    """Another commit came after the read of the table: nothing was written."""


class SinkTable(Protocol):
    """A table with the operations that one sink needs."""

    @property
    def sink(self) -> tuple[str, str]:
        """Key of the sink: the table, and the sink's name."""

    @property
    def what(self) -> str:
        """The table's description in error texts."""

    def stored(self, given: TransactionAttempt) -> TransactionAttempt:
        """The attempt of this sink's last commit; txid 0: there is none.

        If the sink has commits of the numbering of ``given``, only these count.
        """

    def commit(self) -> Commit:
        """The commit that ``stored`` found last."""

    def check_stored(self, stored: TransactionAttempt) -> None:
        """Raise StateLostError if a rollback of the table removed a batch's rows."""

    def has_rows(self) -> bool:
        """Whether ``write`` would commit the batch."""

    def write(self, attempt: TransactionAttempt) -> bool:
        """Commit the batch and the attempt; nothing if the txid was committed before.

        False: the batch has no rows, and nothing was committed.

        Raises:
            OvertakenError: There was another commit since ``stored`` read the table.
        """


def write_batch(
    table: SinkTable,
    given: TransactionAttempt,
    *,
    is_opaque: bool = False,
    is_again: bool = False,
    apart: tuple[str, str] = ("table", "give each its own `sink`"),
) -> bool | None:
    """Write a batch unless its txid is in the table; return whether this call wrote.

    1. Read the last commit's attempt, and ask ``is_written``.
    2. Write; a batch without rows needs no commit: its replay has no rows either. The
       result is None then.
    3. Read again, also after an error: only the table shows whether the commit landed,
       and whether another driver was faster.

    If another commit came in between, all steps are repeated.

    Args:
        table: The sink, with the batch.
        given: The attempt.
        is_opaque: Whether the write also takes back an earlier attempt of the txid.
        is_again: Whether an earlier try of this very call may have written.
        apart: The option that names the sink, and how a second write of a batch gets a
            sink of its own.

    Raises:
        ConfigError: The attempt is opaque, or was written by an earlier call.
        AnotherNumberingError, FencedError, OutOfOrderError, ReplayDiffersError: As
            ``is_written``.
        StateLostError: The table lacks rows that this program, or an earlier try at the
            batch, has written.
        StateGivenUpError: Other writers were faster at each of ten tries.
        Exception: The write's own error, if the table has nothing of the batch.
    """
    if given.txid < 1:
        raise ConfigError.illegal("txid", given.txid, "1 and above")
    left = _left.get(table.sink, NEVER)  # before the table is asked: others write now
    stored = table.stored(given)
    if is_again and _is_same(given, stored):
        return _is_ours(table, given, is_opaque=is_opaque)
    _check_first(table, given, stored, apart)
    overtaken: OvertakenError | None = None
    for _ in range(TRIES):
        if _is_done(table, given, stored, is_opaque=is_opaque):
            table.check_stored(stored)
            _pass(table, given, left, apart)
            return False
        _check_left(table, left, given, stored)
        try:
            has_rows = table.write(attempt_to_store(given, stored))
        except OvertakenError as error:
            logger.info("written again into %s: %s", table.what, error, attempt=given)
            overtaken = error
            left = _left.get(table.sink, NEVER)
            stored = table.stored(given)
            continue
        except Exception:
            there = table.stored(given)
            if not _is_done(table, given, there, is_opaque=is_opaque):
                raise
            logger.warning("it is in %s after an error", table.what, attempt=given)
            has_rows = True
        return _is_ours(table, given, is_opaque=is_opaque) if has_rows else None
    raise StateGivenUpError(
        f"{table.what}: other writers were faster at each of {TRIES} tries to commit"
        f" txid {given.txid}. Nothing of it was written, and it comes again when the"
        " query is started again. Let the others commit less often, or let the batch"
        " be computed in less time, for example with df.persist() before it is written",
        store=table.what,
        txid=given.txid,
    ) from overtaken


def _check_first(
    table: SinkTable,
    given: TransactionAttempt,
    former: TransactionAttempt,
    apart: tuple[str, str],
) -> None:
    if _is_same(given, former):
        option, advice = apart
        raise second_write(given, what=table.what, option=option, advice=advice)


def _pass(
    table: SinkTable,
    given: TransactionAttempt,
    left: TransactionAttempt,
    apart: tuple[str, str],
) -> None:
    """Remember a replay; refuse its second write, as that of the first try."""
    if table.has_rows():
        _check_first(table, given, left, apart)
        _left[table.sink] = given


def _is_done(
    table: SinkTable,
    given: TransactionAttempt,
    stored: TransactionAttempt,
    *,
    is_opaque: bool,
) -> bool:
    """Whether the table needs no write; raises as ``is_written``."""
    is_there = is_written(given, stored, what=table.what, is_opaque=is_opaque)
    return is_there and (not is_opaque or _is_same(given, stored))


def _is_ours(table: SinkTable, given: TransactionAttempt, *, is_opaque: bool) -> bool:
    stored = table.stored(given)
    if _is_same(given, stored):
        _left[table.sink] = given
        return True
    if _is_done(table, given, stored, is_opaque=is_opaque):
        return False
    raise _lost(table, f"txid {given.txid} was committed and is not there")


def _is_same(given: TransactionAttempt, stored: TransactionAttempt) -> bool:
    named = "" not in (given.numbering, stored.numbering)
    return given == stored and (not named or given.numbering == stored.numbering)


def _check_left(
    table: SinkTable,
    left: TransactionAttempt,
    given: TransactionAttempt,
    stored: TransactionAttempt,
) -> None:
    """Refuse to write to a table that has lost this program's writes.

    ``left`` is from before ``stored`` was asked: what another thread has written since
    is no loss.
    """
    if _is_owners(left, given) and stored.txid < left.txid:
        raise _lost(
            table,
            f"txid {left.txid} was left there by this program, and the last one is"
            f" {stored.txid or 'none'} now",
        )


def _is_owners(left: TransactionAttempt, given: TransactionAttempt) -> bool:
    return (given.numbering, given.epoch) == (left.numbering, left.epoch)


def check_replaced(
    table: SinkTable, given: TransactionAttempt, rollback: Rollback
) -> None:
    """Raise StateLostError if a table was replaced under the owner of an attempt."""
    is_left = _is_owners(_left.get(table.sink, NEVER), given)
    if rollback.is_replacement and is_left:
        raise _lost(table, str(rollback))


def _lost(table: SinkTable, how: str) -> StateLostError:
    return StateLostError(
        f"{table.what} does not hold what was written: {how}. It was dropped, made"
        " anew or replaced by a copy. Nothing was written now. If that was meant, start"
        " again: the sink gets the batch that is under way and all later ones. Earlier"
        " ones stay out. If it was not meant, put what was there back first, then start"
        " again",
        store=table.what,
        id=str(table.sink),
    )


# --- an attempt in a table's commits ------------------------------------------------


def record_of(name: str, attempt: TransactionAttempt) -> dict[str, Any]:
    """An attempt of a sink, as stored in a commit of the table."""
    said = {
        "sink": name,
        "attempt": str(attempt),
        "source": attempt.source,
        "numbering": attempt.numbering,
        "plan": attempt.plan,
    }
    return TABLES.stamped(said)


def record_in(text: str | None) -> dict[str, Any]:
    """A record in the metadata of a table; empty: the text is no JSON object."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def attempt_in(record: Any, name: str) -> TransactionAttempt | None:  # noqa: ANN401
    """The sink's attempt in a commit; None: the commit is not of this sink.

    Raises FormatError: It is, and of a format that this version does not read.
    """
    try:
        if record["sink"] != name:
            return None
        TABLES.check_members(record, f"the last commit of the table sink '{name}'")
        attempt = TransactionAttempt.parse(record["attempt"])
        named = {key: str(record[key]) for key in ("source", "numbering", "plan")}
    except (ValueError, LookupError, TypeError):
        return None
    return TransactionAttempt(attempt.txid, attempt.attempt_id, **named)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table that expires old versions.

    Attributes:
        parent: The version before it; None: it is the first one.
        order: Greater for each later version, also across branches.
        attempt: The sink's attempt in this version, if any.
    """

    number: int
    parent: int | None
    order: tuple[int, ...]
    attempt: TransactionAttempt | None


@dataclass(frozen=True, slots=True)
class Floor:
    """The sink's attempt, stored in the table itself: it stays when snapshots expire.

    It is the last attempt, or an earlier one, with the snapshot that was current then.
    """

    attempt: TransactionAttempt
    snapshot: int
    order: tuple[int, ...]


def floor_in(text: str | None, name: str) -> Floor | None:
    """The sink's floor in a property of a table, if it is there."""
    record = record_in(text)
    attempt = attempt_in(record, name)
    if attempt is None:
        return None
    return Floor(attempt, int(record["snapshot"]), tuple(record["order"]))


def last_written(
    snapshots: Iterable[Snapshot], floor: Floor | None
) -> TransactionAttempt:
    """The last attempt whose rows are in the current version of a table.

    A floor counts only with its snapshot: a table that was rolled back keeps the floor
    and has lost the rows. If the snapshot may have expired, the floor counts, too.
    ``snapshots`` are the current one and its ancestors, as far as not expired.
    """
    oldest = None
    for oldest in snapshots:
        if floor is not None and oldest.number == floor.snapshot:
            return floor.attempt
        if oldest.attempt is not None:
            return oldest.attempt
    if floor is None or oldest is None or oldest.parent is None:
        return NEVER
    has_expired = oldest.parent == floor.snapshot or floor.order < oldest.order
    return floor.attempt if has_expired else NEVER
