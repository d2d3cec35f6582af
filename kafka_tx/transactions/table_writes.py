"""A batch into a table of a lakehouse: look, write in one commit, look again.

The table's format commits the rows and the attempt together. ``admission`` decides; a
table only has to tell whose commit was the last, and to refuse a commit that is not the
next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_tx.errors import ConfigError, StateGivenUpError, StateLostError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.transactions.admission import following, is_written, second_write
from kafka_tx.transactions.held import TableWrite

logger = event_log(__name__)

MANY_COMMITS, WITHIN_MS = 60, 60_000
"""More commits in a minute are worth a warning: each is a version and small files."""

NEVER = TransactionAttempt(0, 0)

TRIES = 10
"""How often a batch is written again because others were faster."""

_KEPT = 100
_noted: dict[tuple[str, str, int], list[TableWrite]] = {}
"""What this program has written lately, by id, numbering and txid."""

_left: dict[Hashable, TransactionAttempt] = {}
"""The attempt that this program wrote last, by sink."""


class CommitPace:
    """Warns once of a table whose commits come quickly (driver)."""

    def __init__(self) -> None:
        self._last: dict[Hashable, deque[int]] = {}
        self._reported: set[Hashable] = set()

    def committed(self, table: SinkTable, now_ms: int) -> None:
        """Note a commit; ``now_ms`` counts from any point."""
        last = self._last.setdefault(table.sink, deque(maxlen=MANY_COMMITS))
        last.append(now_ms)
        is_many = len(last) == MANY_COMMITS and now_ms - last[0] < WITHIN_MS
        if is_many and table.sink not in self._reported:
            self._reported.add(table.sink)
            logger.warning(
                "%s: %d commits in less than %d s. Each adds a version and small files."
                " For fewer, set the source's minOffsetsPerTrigger and maxTriggerDelay",
                table.what,
                MANY_COMMITS,
                WITHIN_MS // 1000,
            )


@dataclass(frozen=True, slots=True)
class Commit:
    """What a table tells of one commit; None is what it does not tell.

    Attributes:
        version: Or the id of the snapshot.
        files: Data files that it has added.
        rows: In these files.
        location: Where the table is; empty where nothing tells.
    """

    version: int | None = None
    files: int | None = None
    rows: int | None = None
    location: str = ""


def note(table: SinkTable, attempt: TransactionAttempt, seconds: float | None) -> None:
    """Keep what the table has of an attempt, for people.

    Args:
        table: It has the attempt, and was looked at since.
        attempt: Of a source.
        seconds: That the write took; None: an earlier try has written it.
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


def noted(id: str, numbering: str, txid: int) -> tuple[TableWrite, ...]:  # noqa: A002
    """What ``note`` has kept of a transaction."""
    return tuple(_noted.get((id, numbering, txid), ()))


class OvertakenError(Exception):
    """Another commit came between the look and this one: nothing was written."""


class SinkTable(Protocol):
    """A table, as one sink writes to it."""

    @property
    def sink(self) -> tuple[str, str]:
        """Which sink: the table, and the name of the sink."""

    @property
    def what(self) -> str:
        """The table in words."""

    def stored(self, given: TransactionAttempt) -> TransactionAttempt:
        """The attempt whose commit was the last of this sink; txid 0: there is none.

        Of the numbering of ``given`` where the sink has a commit of it.
        """

    def commit(self) -> Commit:
        """The commit that ``stored`` found last."""

    def check_kept(self, stored: TransactionAttempt) -> None:
        """Refuse to skip a batch whose rows were taken out of the table.

        Raises:
            StateLostError: The table was taken back to before this commit.
        """

    def write(self, attempt: TransactionAttempt) -> bool:
        """Commit the batch and the attempt; nothing where the txid is there already.

        Returns:
            False where the batch has no rows, and nothing was committed.

        Raises:
            OvertakenError: There was another commit since ``stored`` looked.
        """


def write_batch(table: SinkTable, given: TransactionAttempt) -> bool | None:
    """Write a batch unless its txid is in the table.

    1. Look whose commit was the last one, and ask ``is_written``.
    2. Write; a batch without rows needs no commit, for a replay has none either.
    3. Look again, also after an error: only the table knows whether the commit is
       there, and whether another driver was faster.

    Where another commit came in between, all is done again.

    Returns:
        Whether this call wrote; None: there were no rows, and nothing was committed.

    Raises:
        ConfigError: The attempt is opaque, or was written by an earlier call.
        AnotherNumberingError, FencedError, OutOfOrderError, ReplayDiffersError: As
            ``is_written``.
        StateLostError: The table does not hold what this program, or an earlier try at
            the batch, has written.
        StateGivenUpError: Other writers were faster at each of ten tries.
        Exception: What the write raised, if nothing of the batch is in the table.
    """
    if given.txid < 1:
        raise ConfigError.illegal("txid", given.txid, "1 and above")
    stored = table.stored(given)
    if _is_same(given, stored):
        advice = "give each its own `sink`"
        raise second_write(given, what=table.what, option="table", advice=advice)
    overtaken: OvertakenError | None = None
    for _ in range(TRIES):
        if is_written(given, stored, what=table.what, is_opaque=False):
            table.check_kept(stored)
            return False
        _check_left(table, given, stored)
        try:
            has_rows = table.write(following(given, stored))
        except OvertakenError as error:
            logger.info("written again into %s: %s", table.what, error, attempt=given)
            overtaken = error
            stored = table.stored(given)
            continue
        except Exception:
            if not _is_there(table, given):
                raise
            logger.warning("it is in %s after an error", table.what, attempt=given)
            has_rows = True
        return _is_ours(table, given) if has_rows else None
    raise StateGivenUpError(
        f"{table.what}: other writers were faster at each of {TRIES} tries to commit"
        f" txid {given.txid}. Nothing of it was written, and it comes again when the"
        " query is started again. Let the others commit less often, or let the batch"
        " be computed in less time, for example with df.persist() before it is written",
        store=table.what,
        txid=given.txid,
    ) from overtaken


def _is_ours(table: SinkTable, given: TransactionAttempt) -> bool:
    """Whether it was this call that wrote the txid."""
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


# --- what a table keeps of an attempt ------------------------------------------------


def record_of(name: str, attempt: TransactionAttempt) -> dict[str, str]:
    """An attempt of a sink as a commit of the table keeps it."""
    return {
        "sink": name,
        "attempt": str(attempt),
        "source": attempt.source,
        "numbering": attempt.numbering,
        "plan": attempt.plan,
    }


def attempt_in(record: Any, name: str) -> TransactionAttempt | None:  # noqa: ANN401
    """The attempt of the sink that a commit keeps; None: it is somebody else's."""
    try:
        if record["sink"] != name:
            return None
        attempt = TransactionAttempt.parse(record["attempt"])
        named = {key: str(record[key]) for key in ("source", "numbering", "plan")}
    except (ValueError, LookupError, TypeError):
        return None
    return TransactionAttempt(attempt.txid, attempt.attempt_id, **named)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table that forgets old ones.

    Attributes:
        number: Its id.
        parent: The version before it; None: it is the first one.
        order: Greater for each later version, whether it is one of a branch or not.
        attempt: That the sink wrote in it, if it did.
    """

    number: int
    parent: int | None
    order: tuple[int, ...]
    attempt: TransactionAttempt | None


@dataclass(frozen=True, slots=True)
class Floor:
    """What the table itself keeps of the sink: it stays when snapshots expire.

    Attributes:
        attempt: That the sink wrote last, or some time before.
        snapshot: That was current then.
        order: Of that snapshot.
    """

    attempt: TransactionAttempt
    snapshot: int
    order: tuple[int, ...]


def last_written(
    snapshots: Iterable[Snapshot], floor: Floor | None
) -> TransactionAttempt:
    """The last attempt whose rows are in the current version of a table.

    A floor counts only with its snapshot: a table that was rolled back keeps the floor
    and has lost the rows. Where that snapshot may have expired, the floor is believed.

    Args:
        snapshots: The current one and those before it, as far as the table has them.
        floor: What the table keeps.
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
