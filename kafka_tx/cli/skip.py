"""``kafka-tx skip``: continue after a batch or records that cannot be processed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from kafka_tx.cli.changes import Change, DryRunOption, YesOption
from kafka_tx.cli.kafka_logs import KafkaConfigOption, KafkaOption, Logs, kafka_options
from kafka_tx.cli.lag import row_of
from kafka_tx.cli.moving import TASKS_OF_TOOLS
from kafka_tx.cli.other_sources import unfinished_beside
from kafka_tx.cli.stores import (
    STORE,
    IdOption,
    JsonOption,
    StoreOption,
    opened,
    opened_unasked,
    url_or_file,
)
from kafka_tx.clock import now_ms
from kafka_tx.errors import ConfigError, KafkaError, StateConflictError, StateError
from kafka_tx.model import BatchMetadata, CommittedOffset, LogPosition, OffsetRange
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.runs import OffsetRuns
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.protocols import Store
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.store_place import StoreKind, kind_of
from kafka_tx.transactions.layout.txid_layout import Door, door_of
from kafka_tx.transactions.ledger.ledger import Committed, Ledger, LedgerState
from kafka_tx.transactions.ledger.ledger_reading import stored_batches
from kafka_tx.transactions.ledger.manual_changes import moved, not_first, skipping
from kafka_tx.transactions.ownership.guarded_writes import take_over


def skip(
    id_: IdOption,
    txid: Annotated[
        int | None, typer.Option(help="The first unfinished txid, to be sure.")
    ] = None,
    records: Annotated[
        str | None,
        typer.Option(help="At least once, instead of --txid: TOPIC-PARTITION:FROM-TO"),
    ] = None,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="With --records: the brokers that have these records."),
    ] = None,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Mark an unfinished batch, or records, as processed although they are not.

    This breaks exactly-once for the records of the batch: those that your function has
    not processed yet are never processed. Rows that sinks already have of the batch
    stay there. Use it for a batch that fails on every replay, after you have stored its
    ranges: the command shows them.

    Only the first unfinished txid can be skipped. Of a source, the later ones are
    planned again. Start a query with a new checkpoint afterwards. If it has several
    sources, first skip the txids of the batch in all of them: the command names those
    that are not skipped yet. If one of them has committed its txid, nothing is skipped:
    start the query, which finishes the others.

    --records is for at-least-once topologies in a SQL database, such as orders-0:17-18
    for offset 17. It breaks at-least-once for these records: those that are not
    processed yet are never processed, and do not become dead letters. Set retry_limit
    and dead_letter_topic of the spout to have records given up by themselves.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    if (txid is None) == (records is None):
        raise ConfigError("give one of --txid and --records", option="--txid")
    with opened(store, id_) as state:
        if txid is None:
            wanted = OffsetRange.of_option("--records", records or "")
            if bootstrap_servers is None:
                why = "--records is checked by brokers: add --bootstrap-servers"
                raise ConfigError(why, option="--bootstrap-servers")
            options = kafka_options(bootstrap_servers, kafka, kafka_config)
            _skip_records(url_or_file(store), id_, wanted, Logs(options), change)
            return
        door = door_of(state.read())
        if door is Door.TRANSACTIONAL:
            _skip_in_topology(state, txid, change)
        elif door is Door.SOURCE:
            _skip_in_source(state, txid, change, partial(_state_of, store))
        else:
            raise StateError(
                f"id '{id_}' in {state.url} has no batches with a txid. Nothing was"
                " changed. Skip records of an at-least-once topology by --records"
                " TOPIC-PARTITION:FROM-TO instead of --txid. To have records given up"
                " by themselves, set retry_limit and dead_letter_topic of its spout",
                store=state.url,
                id=id_,
            )


def _state_of(url: str, id_: str) -> LedgerState:
    with opened_unasked(url, id_) as store:
        return Ledger(store).load()


def _skip_in_source(
    state: Store, txid: int, change: Change, state_of: Callable[[str], LedgerState]
) -> None:
    ledger = Ledger(state)
    before = ledger.load()
    batch = _first(before, txid, state)
    others = unfinished_beside(state.id, batch, state_of)
    _tell(change, batch)
    for later in before.unfinished:
        if later != txid:
            change.tell(f"txid {later} is dropped, and its records are planned anew")
    if others:
        change.tell(f"the batch also has {others}")
    if not change.is_agreed():
        return
    epoch = ledger.acquire()
    now = ledger.load()
    if _first(now, txid, state) != batch:
        raise _moved(state)
    others = unfinished_beside(state.id, batch, state_of)
    ledger.adopt(epoch, _behind(now, batch))
    first = f"First skip {others}, too. Then start" if others else "Start"
    change.done(
        f"Done. {first} the query with a new checkpoint: its old one has the skipped"
        f" batch.{lost_with_checkpoint(before.query)}"
    )


def _skip_in_topology(state: Store, txid: int, change: Change) -> None:
    skipping(state, txid)
    batch = stored_batches(state).planned[txid]
    _tell(change, batch)
    if not change.is_agreed():
        return
    epoch = take_over(state)
    put, gone = skipping(state, txid)
    if stored_batches(state).planned[txid] != batch:
        raise _moved(state)
    state.write(epoch, put, gone)
    change.done("Done. Start the topology.")


def _skip_records(
    url: str, id_: str, wanted: OffsetRange, logs: Logs, change: Change
) -> None:
    partition = wanted.topic_partition
    if kind_of(url) is not StoreKind.SQL:
        raise StateError(
            f"records of '{id_}' are only skipped in a SQL database. Nothing was"
            " changed. Set retry_limit and dead_letter_topic of its spout instead",
            store=url,
            id=id_,
        )
    with closing(logs), closing(SqlOffsetStore(url, id_)) as offsets:
        before = offsets.load([partition]).get(partition)
        left = (
            list(OffsetRuns(*_done(before)).gaps(wanted.start, wanted.end))
            if before
            else []
        )
        if before is None or not left:
            raise StateError(
                f"id '{id_}' in {offsets.url} has no unfinished record in"
                f" {partition}: [{wanted.start}, {wanted.end}). Nothing was changed."
                " `kafka-tx offsets show` shows its partitions, and its log names the"
                " records that fail",
                store=offsets.url,
                id=id_,
            )
        _check_log(before, wanted, id_, logs)
        for start, end in left:
            change.tell(f"{partition}: [{start}, {end})")
        change.tell(
            "these records are skipped. At-least-once does not hold for them: nobody"
            " processes those that are not processed yet, and they are no dead letters"
        )
        if not change.is_agreed():
            return
        offsets.acquire(0, TASKS_OF_TOOLS)
        now = offsets.load([partition])[partition]
        offsets.store({partition: skipped(now, wanted)})
    change.done("Done. Start the topology.")


def _check_log(
    before: CommittedOffset, wanted: OffsetRange, id_: str, logs: Logs
) -> None:
    partition = wanted.topic_partition
    if is_another(before.topic_id or None, wanted.topic_id):
        raise ConfigError(
            f"{partition}: id '{id_}' has offsets of the topic with the id"
            f" {before.topic_id}, and the records are of {wanted.topic_id}. Nothing was"
            " changed",
            option="--records",
        )
    at = LogPosition(wanted.end, wanted.topic_id or before.topic_id or None)
    row = row_of(partition, at, logs.poll({id_: {partition: at}})[id_].get(partition))
    if row.get("is_outside") or "error" in row:
        raise KafkaError(
            f"{partition}: [{wanted.start}, {wanted.end}) is not in the log: {row}."
            " Nothing was changed"
        )


def _done(stored: CommittedOffset) -> list[tuple[int, int]]:
    return [(0, stored.offset), *stored.completed]


def skipped(stored: CommittedOffset, wanted: OffsetRange) -> CommittedOffset:
    """The progress of a partition as if these records were done."""
    runs = OffsetRuns(*_done(stored))
    runs.add(wanted.start, wanted.end)
    offset = next((end for start, end in runs if start <= stored.offset), stored.offset)
    completed = [run for run in runs if run[0] > offset]
    parts = [
        part
        for start, end, times in stored.failures
        for part in (
            (start, min(end, wanted.start), times),
            (max(start, wanted.end), end, times),
        )
        if part[0] < part[1]
    ]
    return replace(
        stored, offset=offset, completed=tuple(completed), failures=tuple(parts)
    )


def _first(state: LedgerState, txid: int, store: Store) -> BatchMetadata:
    first = next(iter(state.unfinished), None)
    if first is None or txid != first:
        raise not_first(store, txid, first)
    return state.unfinished[first]


def _behind(state: LedgerState, batch: BatchMetadata) -> Committed:
    epochs = batch.leader_epochs()
    return moved(state, batch.ends(), batch.topic_ids, now_ms(), 0, epochs)


def _tell(change: Change, batch: BatchMetadata) -> None:
    for wanted in sorted(batch.ranges):
        if len(wanted):
            change.tell(f"{wanted.topic_partition}: [{wanted.start}, {wanted.end})")
    change.tell(
        f"txid {batch.txid} is skipped. Exactly-once does not hold for these records:"
        " nobody processes those that are not processed yet"
    )


def _moved(store: Store) -> StateConflictError:
    return StateConflictError(
        f"id '{store.id}' in {store.url} has moved since its batch was shown. Nothing"
        " was skipped. Stop the job, and look again",
        store=store.url,
        id=store.id,
    )
