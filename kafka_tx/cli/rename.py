"""``kafka-tx rename``: an id goes on under another name."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_tx.cli.changes import Change, DryRunOption, YesOption
from kafka_tx.cli.moving import check_unused, copy, has_gone_on, renamed, taken
from kafka_tx.cli.positions import doors_of
from kafka_tx.cli.stores import (
    STORE,
    IdOption,
    JsonOption,
    StoreOption,
    opened,
    opened_unasked,
)
from kafka_tx.config import check_id
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.protocols import Store
from kafka_tx.transactions.txid_layout import Door


def rename(
    id_: IdOption,
    to: Annotated[str, typer.Option(help="The new tx.id.")],
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give an id another name: position, unfinished txids and numbering go with it.

    Sinks follow the numbering, so they go on, too. Then start the job with the new
    tx.id; a query keeps its checkpoint. If the command is killed, run it again.

    An at-least-once topology, and one of several sources of a query, keep their ids.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    if check_id(to, "--to") == id_:
        raise ConfigError.illegal("--to", to, "another id than --id")
    with opened(store, id_) as old, opened_unasked(store, to) as new:
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
