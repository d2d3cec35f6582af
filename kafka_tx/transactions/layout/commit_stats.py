"""Numbers about the last committed transactions, stored for people and metrics.

The record is written with the commit, in one step. Metrics come from it. Nothing is
decided by it, so an unreadable record counts as none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import Skipped, TopicPartition
from kafka_tx.planning.offset_json import flat, nested
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import read_skipped, skipped_fields

_T = TypeVar("_T")

STATS = "held"

LEAST_HISTORY = 8
"""Least number of transactions: metrics may be some batches behind the commit."""

HISTORY = 100
"""Default number of stored transactions."""

_PHASES = ("planning", "processing", "waiting", "committing")

_MOST_TABLES = 100
"""Most table sinks whose last write is stored after its transaction is dropped."""

_MOST_SKIPS = 1_000
"""Most partitions with skips or dead letters in older entries, to keep nodes small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """A write of a transaction to a lakehouse table, as the driver saw it.

    Attributes:
        table: Name in the job or its catalog.
        version: Version of a Delta table, or snapshot id of an Iceberg table as text
            (too large for numbers in JSON); None if the table has expired it.
        files: Data files that the commit has added; None: unknown.
        rows: In these files.
        location: Address of the table; empty: unknown.
        seconds: From the read before the commit to the read after it; None if an
            earlier try has written the transaction.
    """

    txid: int
    table: str
    sink: str
    version: str | None = None
    files: int | None = None
    rows: int | None = None
    location: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSums:
    """Sums of a transaction's task reports; None if a task did not report the value.

    Attributes:
        records: Number of records that the tasks read.
        bytes: Of keys and values.
        newest_ms: Newest record timestamp (Unix time); None also if no record has one.
        skipped: Offsets that were gone when a task read them.
        dead_letters: Number of dead letters; None if the query writes none.
        tables: Tables that the transaction was written to, once for each sink.
        phases_ms: Duration in ms of the last try, by phase (``catalogue.PHASE``);
            phases that were not measured are left out.
    """

    records: int | None = None
    bytes: int | None = None
    newest_ms: int | None = None
    skipped: Skipped = field(default_factory=dict)
    dead_letters: Mapping[TopicPartition, int] | None = None
    tables: tuple[TableWrite, ...] = ()
    phases_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitStats:
    """A committed transaction.

    Attributes:
        epoch: Of the owner that committed it.
        committed_ms: Unix time of the commit.
        attempts: Known tries; the last one was committed.
        skipped: Offsets that the plan skipped.
        from_tasks: Sums of what its tasks reported.
        earlier: Last writes to tables, of transactions before the stored ones.
        is_bounded: The run that committed it ends by itself.
    """

    txid: int
    epoch: int
    committed_ms: int
    attempts: int = 1
    skipped: Skipped = field(default_factory=dict)
    from_tasks: TaskSums = field(default_factory=TaskSums)
    earlier: tuple[TableWrite, ...] = ()
    is_bounded: bool = False

    def all_skipped(self, from_tasks: TaskSums) -> Skipped:
        """Offsets that the plan or the tasks skipped."""
        every = {*self.skipped, *from_tasks.skipped}
        both = (self.skipped, from_tasks.skipped)
        return {key: sum(each.get(key, 0) for each in both) for key in every}


def history_of(url: str, wanted: int) -> int:
    """Number of transactions that a store holds; ZooKeeper's nodes stay small."""
    return LEAST_HISTORY if url.startswith("zookeeper") else max(LEAST_HISTORY, wanted)


def stats_record(
    texts: Mapping[str, str], stats: CommitStats, most: int = LEAST_HISTORY
) -> dict[str, str]:
    """The record after the commit of ``stats``, with the ``most`` last transactions."""
    known = [each for each in _decoded(texts, list) if each["txid"] < stats.txid]
    first, skips = len(known), 0
    while first and len(known) - first + 1 < most:
        skips += sum(_leaves(known[first - 1].get(name, {})) for name in _LARGE)
        if skips > _MOST_SKIPS:
            break
        first -= 1
    stored = [*known[first:], _fields(stats)]
    dropped = [e for e in known[:first] if {"tables", "tables_before"} & e.keys()]
    writes = last_writes(_read(dropped))
    if writes:
        stored[0] = {**stored[0], "tables_before": [asdict(write) for write in writes]}
    return {STATS: records.encode(STATS, stored)}


_LARGE = ("skipped", "skipped_by_tasks", "letters")


def _leaves(value: Any) -> int:  # noqa: ANN401 - any JSON
    return sum(map(_leaves, value.values())) if isinstance(value, dict) else 1


def _decoded(
    texts: Mapping[str, str], read: Callable[[Any], Iterable[_T]]
) -> Iterable[_T]:
    """Decode the record; empty if it cannot be read."""
    text = texts.get(STATS)
    if text is not None:
        with suppress(StateCorruptedError):
            return records.decode_as(STATS, text, read, records.Place(STATS, "", ""))
    return ()


def with_task_sums(
    texts: Mapping[str, str], from_tasks: Mapping[tuple[int, int], TaskSums]
) -> dict[str, str]:
    """The record with new task reports, by epoch and txid; empty if nothing is new."""
    known = stats_in(texts)
    wanted = [
        replace(
            each, from_tasks=from_tasks.get((each.epoch, each.txid), each.from_tasks)
        )
        if each.from_tasks == TaskSums()
        else each
        for each in known
    ]
    if wanted == [*known]:
        return {}
    return {STATS: records.encode(STATS, [_fields(each) for each in wanted])}


def stats_in(texts: Mapping[str, str]) -> tuple[CommitStats, ...]:
    """The last committed transactions, ascending; empty where nothing can be read."""
    return tuple(_decoded(texts, _read))


def last_writes(stats: Iterable[CommitStats]) -> tuple[TableWrite, ...]:
    """The last write of each sink to each table, by table and sink."""
    every = [w for each in stats for w in (*each.earlier, *each.from_tasks.tables)]
    ascending = sorted(every, key=lambda write: write.txid)
    last = {(write.table, write.sink): write for write in ascending}
    newest = sorted(last.values(), key=lambda write: write.txid)[-_MOST_TABLES:]
    return tuple(sorted(newest, key=lambda write: (write.table, write.sink)))


def newest_ms(stats: tuple[CommitStats, ...]) -> int | None:
    """The newest record timestamp, at most the time of its commit.

    None if the last transaction has no task report: its records may be newer.
    """
    if stats and stats[-1].from_tasks.records is None:
        return None
    found = [
        min(each.from_tasks.newest_ms, each.committed_ms)
        for each in stats
        if each.from_tasks.newest_ms is not None
    ]
    return max(found, default=None)


def is_bounded(stats: tuple[CommitStats, ...]) -> bool:
    """Whether a run that ends by itself made the last commit."""
    return bool(stats) and stats[-1].is_bounded


def _fields(stats: CommitStats) -> dict[str, Any]:
    from_tasks = stats.from_tasks
    found = {
        "txid": stats.txid,
        "epoch": stats.epoch,
        "committed_ms": stats.committed_ms,
        "attempts": stats.attempts,
        "skipped": skipped_fields(stats.skipped),
        "records": from_tasks.records,
        "bytes": from_tasks.bytes,
        "newest_ms": from_tasks.newest_ms,
        "skipped_by_tasks": skipped_fields(from_tasks.skipped),
        "letters": nested(from_tasks.dead_letters or {}),
        "tables": [asdict(write) for write in from_tasks.tables],
        "took_ms": [from_tasks.phases_ms.get(name, 0) for name in _PHASES]
        if from_tasks.phases_ms
        else None,
        "tables_before": [asdict(write) for write in stats.earlier],
        "bounded": stats.is_bounded or None,
    }
    return {name: value for name, value in found.items() if value not in (None, {}, [])}


def _read(payload: Any) -> tuple[CommitStats, ...]:  # noqa: ANN401 - any JSON
    return tuple(
        CommitStats(
            txid=int(each["txid"]),
            epoch=int(each["epoch"]),
            committed_ms=int(each["committed_ms"]),
            attempts=int(each["attempts"]),
            skipped=read_skipped(each.get("skipped", {})),
            from_tasks=TaskSums(
                records=each.get("records"),
                bytes=each.get("bytes"),
                newest_ms=each.get("newest_ms"),
                skipped=read_skipped(each.get("skipped_by_tasks", {})),
                dead_letters=flat(each["letters"]) if "letters" in each else None,
                tables=_writes(each.get("tables", [])),
                phases_ms=dict(zip(_PHASES, each.get("took_ms", ()), strict=False)),
            ),
            earlier=_writes(each.get("tables_before", [])),
            is_bounded=bool(each.get("bounded", False)),
        )
        for each in payload
    )


def _writes(payload: Any) -> tuple[TableWrite, ...]:  # noqa: ANN401 - any JSON
    names = [each.name for each in fields(TableWrite)]
    return tuple(
        TableWrite(**{name: each[name] for name in names if name in each})
        for each in payload
    )
