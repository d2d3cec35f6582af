"""``kafka-tx skip``: go on behind a batch that can never be processed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from kafka_tx.cli.changes import Change, DryRunOption, YesOption
from kafka_tx.cli.stores import STORE, IdOption, JsonOption, StoreOption, opened
from kafka_tx.errors import StateConflictError, StateError
from kafka_tx.model import BatchMetadata
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.protocols import Store
from kafka_tx.transactions.by_hand import moved, not_first, skipping
from kafka_tx.transactions.following import take_over
from kafka_tx.transactions.ledger import Committed, Ledger, LedgerState
from kafka_tx.transactions.ledger_reading import stored_batches
from kafka_tx.transactions.txid_layout import Door, door_of


def skip(
    id_: IdOption,
    txid: Annotated[int, typer.Option(help="The first unfinished txid, to be sure.")],
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take an unfinished batch for processed although it is not.

    This breaks exactly-once for the records of the batch: nobody processes those that
    your function has not processed yet. What sinks have of the batch already, stays in
    them. Use it for a batch that fails on every replay, after you have stored its
    ranges: the command shows them.

    Only the first unfinished txid can be skipped. Of a source, the later ones are
    planned anew. An at-least-once topology has dead letters instead.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    with opened(store, id_) as state:
        door = door_of(state.read())
        if door is Door.TRANSACTIONAL:
            _skip_in_topology(state, txid, change)
        elif door is Door.SOURCE:
            _skip_in_source(state, txid, change)
        else:
            raise StateError(
                f"id '{id_}' in {state.url} has no batches with a txid. Nothing was"
                " changed. An at-least-once topology gives records up by itself: set"
                " retry_limit and dead_letter_topic of its spout",
                store=state.url,
                id=id_,
            )


def _skip_in_source(state: Store, txid: int, change: Change) -> None:
    ledger = Ledger(state)
    before = ledger.load()
    batch = _first(before, txid, state)
    _tell(change, batch)
    for later in before.unfinished:
        if later != txid:
            change.tell(f"txid {later} is dropped, and its records are planned anew")
    if not change.is_agreed():
        return
    epoch = ledger.acquire()
    now = ledger.load()
    if _first(now, txid, state) != batch:
        raise _moved(state)
    ledger.adopt(epoch, _behind(now, batch))
    change.done(
        "Done. Start the query with a new checkpoint: its old one has the skipped"
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


def _first(state: LedgerState, txid: int, store: Store) -> BatchMetadata:
    first = next(iter(state.unfinished), None)
    if first is None or txid != first:
        raise not_first(store, txid, first)
    return state.unfinished[first]


def _behind(state: LedgerState, batch: BatchMetadata) -> Committed:
    now_ms = int(time.time() * 1000)
    epochs = batch.leader_epochs()
    return moved(state, batch.ends(), batch.topic_ids, now_ms, 0, epochs)


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
