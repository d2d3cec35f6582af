"""``kafka-tx store``: copy a store to another database, and verify its records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated

import typer

from kafka_tx import assembly
from kafka_tx.cli.changes import Change, DryRunOption, YesOption
from kafka_tx.cli.moving import (
    as_moved,
    check_offsets_unused,
    check_unused,
    copy,
    copy_offsets,
    has_gone_on,
    moved_to,
)
from kafka_tx.cli.stores import (
    STORE,
    JsonOption,
    StoreOption,
    checked,
    opened_unasked,
    unknown_id,
)
from kafka_tx.errors import FormatError, StateCorruptedError, StateError
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.store_place import StoreKind, is_file, kind_of
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.stops import stop_id
from kafka_tx.transactions.layout.txid_layout import ALIVE, OWNER, numbering_of
from kafka_tx.transactions.ledger.ledger_repair import examine
from kafka_tx.transactions.ownership.memory import StoredId

_NOT_COPIED = {OWNER, ALIVE}

store = typer.Typer(no_args_is_help=True, help="Copy and verify stores.")


@store.command("copy")
def copy_(
    from_: Annotated[str, typer.Option("--from", help="URL of the store, or @FILE.")],
    to: Annotated[str, typer.Option("--to", help="URL of the new store, or @FILE.")],
    id_: Annotated[
        str | None, typer.Option("--id", help="Copy only this tx.id.")
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Copy all ids to another store, such as from SQLite to PostgreSQL, or back.

    The command fences the jobs. They continue where they were when you start them with
    the new tx.store, the same checkpoints and the same sinks. The old store then
    refuses these jobs, and names the new store. It does not refuse an at-least-once
    topology: never start one with the old store again. If the command is killed, run it
    again.

    Maps and tables in the same database as the store stay where they are, and jobs go
    on writing to them.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    source, target = checked(from_), checked(to)
    found, there = _stored(source, id_), _there(target)
    elsewhere = _moved_ids(found, target) if id_ is None else {}
    for name, url in elsewhere.items():
        change.tell(f"{name}: left out, it goes on in {url}")
    found = {name: one for name, one in found.items() if name not in elsewhere}
    for name, stored in found.items():
        offsets = stored.at_least_once()[1]
        _check(source, target, stored, there.get(name))
        count = f"{len(stored.store.read())} records"
        reads = f"offsets of {len(offsets)} partitions"
        change.tell(f"{name}: {reads if offsets else count}")
        if beside := _beside(source, stored):
            stays = f"{', '.join(beside)} in {stored.store.url}"
            change.tell(f"{name}: not copied, its job goes on writing to: {stays}")
    if not change.is_agreed():
        return
    for name, stored in found.items():
        with opened_unasked(source, name) as old, opened_unasked(target, name) as new:
            if stored.store.read():
                copy(old, new)
        if stored.at_least_once()[1]:
            copy_offsets(source, target, name)
    change.done(
        "Done. Start the jobs with the new tx.store, and never with the old one."
    )


@store.command()
def verify(
    url: StoreOption = STORE,
    against: Annotated[
        str | None,
        typer.Option(help="URL of a copy, or @FILE: also compare each record."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read every record of every id, and compare them with those of a copy.

    The exit code is 1 if a record cannot be read, or differs. Epochs and owners' marks
    are not compared.
    """
    found = assembly.stored_states(checked(url))
    copies = assembly.stored_states(checked(against)) if against else None
    wrong = {name: _problems(one) for name, one in found.items()}
    for name in found.keys() | (copies or {}).keys() if copies is not None else ():
        one, other = found.get(name), (copies or {}).get(name)
        wrong[name] = {**wrong.get(name, {}), **_differences(one, other)}
    wrong = {name: problems for name, problems in sorted(wrong.items()) if problems}
    if as_json:
        typer.echo(json.dumps({"ids": len(found), "problems": wrong}))
    else:
        lines = [f"{n}: {p}: {why}" for n, of in wrong.items() for p, why in of.items()]
        typer.echo("\n".join([*lines, f"{len(found)} ids, {len(lines)} problems"]))
    if wrong:
        raise typer.Exit(1)


def _stored(url: str, wanted: str | None) -> dict[str, StoredId]:
    found = assembly.stored_states(url)
    if wanted is None:
        return found
    if wanted not in found:
        raise unknown_id("that is copied", wanted, list(found))
    ids = {wanted, stop_id(wanted)}
    return {name: one for name, one in found.items() if name in ids}


def _beside(url: str, stored: StoredId) -> list[str]:
    """Names of the maps and tables that the id has written in the store's database."""
    numbering = numbering_of(stored.store.read(), stored.store.url, stored.store.id)
    if numbering is None:
        return []
    with opened_unasked(url, stored.store.id) as opened:
        return sorted(opened.sinks(numbering.name))


def _moved_ids(found: Mapping[str, StoredId], target: str) -> dict[str, str]:
    """The ids that have gone on in another store since they were copied, with it."""
    moved = {}
    for name, stored in found.items():
        url = moved_to(stored.store)
        with opened_unasked(target, name) as new:
            is_a_try = url == new.url and not has_gone_on(stored.store, new)
        if url and not is_a_try:
            moved[name] = url
    return moved


def _check(source: str, target: str, stored: StoredId, there: StoredId | None) -> None:
    """Refuse a place in use, and offsets that would go back or cannot be copied."""
    texts = stored.store.read()
    records.check_formats(texts, stored.store.url, stored.store.id)
    if there is not None:
        check_unused(there.store, texts)
    name, (_, offsets) = stored.store.id, stored.at_least_once()
    if not offsets:
        return
    if StoreKind.ZOOKEEPER in (kind_of(source), kind_of(target)):
        raise StateError(
            f"id '{name}' is an at-least-once topology, whose offsets are only copied"
            " from one SQL database to another. Nothing was changed. Copy other ids by"
            " --id; this topology keeps its store",
            id=name,
        )
    if there is not None:
        with closing(SqlOffsetStore(target, name)) as new:
            check_offsets_unused(new, offsets)


def _there(url: str) -> dict[str, StoredId]:
    """The records of the new store; none if its file does not exist yet."""
    try:
        return assembly.stored_states(url)
    except StateError as error:
        if type(error) is StateError and is_file(url):
            return {}
        raise


def _problems(stored: StoredId) -> dict[str, str]:
    try:
        wrong = dict(examine(stored.store).problems)
    except FormatError as error:
        return {"format": str(error)}
    try:
        stored.at_least_once()
    except (StateCorruptedError, FormatError, ValueError) as error:
        wrong["offsets"] = str(error)
    return wrong


def _here(texts: dict[str, str]) -> dict[str, str]:
    """The same records without the note that the id has moved."""
    try:
        return as_moved(texts, "")
    except (StateCorruptedError, FormatError):  # ``_problems`` names it
        return texts


def _differences(one: StoredId | None, other: StoredId | None) -> dict[str, str]:
    if one is None or other is None:
        return {"id": f"it is only in {'the copy' if one is None else 'the store'}"}
    ours, theirs = _here(one.store.read()), _here(other.store.read())
    paths = (ours.keys() | theirs.keys()) - _NOT_COPIED
    wrong = {p: "it differs" for p in paths if ours.get(p) != theirs.get(p)}
    if one.at_least_once()[1] != other.at_least_once()[1]:
        wrong["offsets"] = "they differ"
    return dict(sorted(wrong.items()))
