"""``kafka-tx rename``: give an id another name."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_tx.cli.changes import Change, DryRunOption, YesOption
from kafka_tx.cli.moving import (
    check_unused,
    copy,
    copy_offsets,
    has_gone_on,
    renamed,
    taken,
)
from kafka_tx.cli.positions import doors_of
from kafka_tx.cli.stores import (
    STORE,
    IdOption,
    JsonOption,
    StoreOption,
    opened,
    opened_unasked,
    text_or_file,
)
from kafka_tx.config import check_id
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.protocols import Store
from kafka_tx.store_place import StoreKind, kind_of
from kafka_tx.transactions.txid_layout import Door


def rename(
    id_: IdOption,
    to: Annotated[str, typer.Option(help="The new tx.id.")],
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give an id another name. It keeps position, unfinished txids and numbering.

    Sinks follow the numbering, so they continue. Then start the job with the new tx.id;
    a query keeps its checkpoint. If the command is killed, run it again.

    Of an at-least-once topology the offsets are moved, in SQL stores. One of several
    sources of a query keeps its id.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    if check_id(to, "--to") == id_:
        raise ConfigError.illegal("--to", to, "another id than --id")
    with opened(store, id_) as old, opened_unasked(store, to) as new:
        if _moves_offsets(store, old, new):
            change.tell(f"{id_} -> {to}: the offsets of an at-least-once topology")
            if change.is_agreed():
                url = text_or_file(store)
                copy_offsets(url, url, id_, to)
                change.done(f"Done. Start the topology under the id {to}.")
            return
        _check(store, old, new)
        change.tell(f"{id_} -> {to}: {', '.join(old.read())}")
        if not change.is_agreed():
            return
        if has_gone_on(old, new):
            epoch, _ = taken(old)
        else:
            epoch = copy(old, new)
        old.write(epoch, {}, old.read())
    change.done(f"Done. Start the job with tx.id={to}.")


def _moves_offsets(url: str, old: Store, new: Store) -> bool:
    """Whether the id is that of an at-least-once topology, and can be moved."""
    if [one.door for one in doors_of(url, old)] != [Door.AT_LEAST_ONCE]:
        return False
    if kind_of(text_or_file(url)) is not StoreKind.SQL:
        raise StateError(
            f"id '{old.id}' in {old.url} is an at-least-once topology, which is only"
            " renamed in a SQL database. Nothing was changed. Keep the id",
            store=old.url,
            id=old.id,
        )
    check_unused(new, old.read())
    ours, theirs = (
        [one.state.committed for one in doors_of(url, store)] for store in (old, new)
    )
    if theirs not in ([], ours):  # the same: an earlier try has come this far
        raise StateError(
            f"id '{new.id}' in {new.url} has offsets of its own. Nothing was changed:"
            " give another id",
            store=new.url,
            id=new.id,
        )
    return True


def _check(url: str, old: Store, new: Store) -> None:
    doors = {one.door for one in doors_of(url, old)}
    if Door.AT_LEAST_ONCE in doors or not doors:
        raise StateError(
            f"id '{old.id}' in {old.url} has no batches with a txid, or those of two"
            " topologies: it cannot be renamed. Nothing was changed. Keep the id",
            store=old.url,
            id=old.id,
        )
    if not has_gone_on(old, new):
        check_unused(new, old.read())
    renamed(old.read(), old, new)
