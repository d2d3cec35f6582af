"""Moves an id to another id or store (``kafka-tx rename``); fenced, safe to repeat.

1. The command takes the id over where it is: from now on no job can write there.
2. It writes all records at the new place in one step, with an owner's word that says
   "copied". Another word there means that a job has begun: nothing is overwritten.
3. It writes where it was that the id has moved. If a job came in between, this write is
   refused, and the copy is older than that job's state: it is taken away again.

After a crash the same command does the rest: it overwrites its own copy.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer

from kafka_tx import assembly
from kafka_tx.cli.changes import Change, DryRunOption, YesOption
from kafka_tx.cli.positions import KnownId, doors_of
from kafka_tx.cli.stores import (
    STORE,
    IdOption,
    JsonOption,
    StoreOption,
    opened,
    opened_unasked,
    url_or_file,
)
from kafka_tx.config import check_id, derived_id
from kafka_tx.errors import ConfigError, FencedError, StateConflictError, StateError
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.protocols import Store
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.store_place import StoreKind, kind_of
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.batch_records import read_shape, shape_fields
from kafka_tx.transactions.layout.stops import STOP
from kafka_tx.transactions.layout.txid_layout import (
    ALIVE,
    CALL,
    CURRENT,
    NUMBERING,
    OWNER,
    QUERY,
    Door,
    numbering_of,
    refuse_moved,
)
from kafka_tx.transactions.ownership.guarded_writes import take_over
from kafka_tx.zookeeper.offsets import ZooKeeperOffsetStore
from kafka_tx.zookeeper.store import is_offset

_COPIED = "copied-"
_LEFT_OVER = {OWNER, CALL, STOP}
"""Without other records: a job was here, has planned nothing, and is not alive."""
TASKS_OF_TOOLS = 1_000_003
"""An owner with another number of tasks fences every task of an at-least-once id."""
_EPOCHS_LEFT = 1_000
"""How many starts at the old place stay older than the copy, for sinks to refuse."""


def taken(source: Store) -> tuple[int, dict[str, str]]:
    """Fence the job of an id, and read its records.

    Raises:
        FencedError: A job took over at the same moment.
        StateUnavailableError, StateError: As of ``Store``.
    """
    epoch = take_over(source)
    texts = source.read()
    source.write(epoch, {}, [ALIVE])
    return epoch, texts


def copy(source: Store, target: Store) -> int:
    """Bring all records of ``source`` to ``target``; returns the epoch of the source.

    Raises:
        FencedError: A job has taken the source over meanwhile; there is no copy.
        StateError: The target is in use, or the source was copied elsewhere before.
        StateUnavailableError: A store does not answer: do it again.
    """
    _refuse_elsewhere(source, source.read(), target)
    epoch, texts = taken(source)
    _refuse_elsewhere(source, texts, target)
    found = target.read()
    if _holds_nothing(texts) and not _holds_nothing(found):
        raise StateError(
            f"id '{source.id}' in {source.url} has no records any more, and"
            f" '{target.id}' in {target.url} has some: another command has moved the id"
            " there meanwhile. Nothing was changed: go on with that one",
            store=source.url,
            id=source.id,
        )
    check_unused(target, texts)
    new = {p: t for p, t in as_moved(texts, "").items() if p not in {OWNER, ALIVE}}
    if source.id != target.id:
        new |= renamed(new, source, target)
    there = _write(target, epoch + _EPOCHS_LEFT, new, found)
    moved = as_moved(texts, target.url if target.url != source.url else "")
    try:
        source.write(epoch, {p: moved[p] for p in (NUMBERING,) if p in moved})
    except FencedError:
        target.write(there, {}, new)
        raise
    return epoch


def moved_to(source: Store) -> str:
    """The store to which an id was copied; empty: to none."""
    here = numbering_of(source.read(), source.url, source.id)
    return "" if here is None else here.moved_to


def _refuse_elsewhere(source: Store, texts: Mapping[str, str], target: Store) -> None:
    """Raise StateError if the id was copied to another store than ``target``."""
    here = numbering_of(texts, source.url, source.id)
    if here is not None and here.moved_to != target.url:
        refuse_moved(source, texts)


def _holds_nothing(texts: Mapping[str, str]) -> bool:
    return texts.keys() <= _LEFT_OVER | {ALIVE}


def copy_offsets(source: str, target: str, name: str, to: str = "") -> None:
    """Fence an at-least-once topology, and bring its offsets to another SQL database.

    With a new id (``to``), the old place keeps nothing. What the topology has completed
    stays completed if this is done again, or late.

    Raises:
        FencedError: A job has taken the topology over meanwhile: do it again.
        StateError: Another topology has the id there.
        StateUnavailableError, StateError: As of ``OffsetStore``.
    """
    with (
        closing(SqlOffsetStore(source, name)) as old,
        closing(SqlOffsetStore(target, to or name)) as new,
    ):
        old.acquire(0, TASKS_OF_TOOLS)
        found = assembly.stored_states(source, [name]).get(name)
        offsets = old.load(found.at_least_once()[1]) if found else {}
        check_offsets_unused(new, offsets)
        new.acquire(0, TASKS_OF_TOOLS)
        new.store(offsets)
        if to:
            old.remove()
        else:
            old.store({})  # is it still ours?


def check_offsets_unused(
    target: SqlOffsetStore, ours: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Refuse a place where a topology has stored other offsets under the id.

    Those that a tool has brought there are a former try's.
    """
    theirs = target.load(ours)
    is_unused = not target.topics() or target.tasks() == TASKS_OF_TOOLS
    if is_unused or theirs == ours:
        return
    advice = (
        "another topology has this id there. If it is none that is used, delete its"
        f" offsets first: `kafka-tx offsets reset --store '{target.url}' --id"
        f" {target.id}`"
    )
    for p in theirs.keys() & ours.keys():
        if theirs[p].offset > ours[p].offset:
            advice = (
                f"{p} is at {theirs[p].offset} there, and at {ours[p].offset} in the"
                " old store. If it is the same topology, it has gone on there: start"
                " it with the new store"
            )
    raise StateError(
        f"id '{target.id}' has offsets of its own in {target.url}. Nothing was changed:"
        f" {advice}",
        store=target.url,
        id=target.id,
    )


def remove_offsets(url: str, store: Store) -> None:
    """Fence an at-least-once topology, and delete its offsets; ``url``: of ``store``.

    Raises: as ``copy_offsets``.
    """
    if kind_of(url) is StoreKind.SQL:
        with closing(SqlOffsetStore(url, store.id)) as offsets:
            offsets.acquire(0, TASKS_OF_TOOLS)
            offsets.remove()
        return
    with closing(ZooKeeperOffsetStore(url, store.id)) as nodes:
        nodes.acquire(0, TASKS_OF_TOOLS)
        epoch = store.acquire()
        nodes.store({})  # is it still ours?
        store.write(epoch, {}, filter(is_offset, store.read()))


def as_moved(texts: Mapping[str, str], to: str) -> dict[str, str]:
    """Records that name the store to which the id has moved; ``to`` empty: this one."""
    numbering = numbering_of(texts, "", "")
    if numbering is None:
        return dict(texts)
    return {**texts, **replace(numbering, moved_to=to).record}


def has_gone_on(source: Store, target: Store) -> bool:
    """Whether a job has started on a copy, in the same numbering."""
    found = target.read()
    return _is_same(source.read(), found) and not _is_copy(found, target)


def _is_same(texts: Mapping[str, str], others: Mapping[str, str]) -> bool:
    one, other = numbering_of(texts, "", ""), numbering_of(others, "", "")
    return one is not None and other is not None and one.name == other.name


def check_unused(target: Store, texts: Mapping[str, str]) -> None:
    """Refuse a place that is in use, or where a job has started, by a StateError."""
    found = target.read()
    here = numbering_of(found, target.url, target.id)
    has_left = here is not None and here.moved_to
    is_left_over = found.keys() <= {ALIVE} or found.keys() <= _LEFT_OVER
    if is_left_over or has_left or _is_copy(found, target):
        return
    advice = "it has records of its own: give another id or another store"
    if _is_same(texts, found):
        advice = (
            "a job has gone on there since it was copied: go on with that id in that"
            " store, which knows more than the old place"
        )
    raise StateError(
        f"id '{target.id}' in {target.url} is in use. Nothing was changed: {advice}",
        store=target.url,
        id=target.id,
    )


def _is_copy(found: Mapping[str, str], target: Store) -> bool:
    if OWNER not in found:
        return False
    at = records.Place(OWNER, target.url, target.id)
    word = records.decode(found[OWNER], OWNER, at)
    return str(word).startswith(_COPIED)


def _write(
    target: Store, above: int, new: Mapping[str, str], found: Mapping[str, str]
) -> int:
    word = records.encode(OWNER, _COPIED + secrets.token_hex(8))
    left = {path: found.get(path) for path in (OWNER, CURRENT, NUMBERING)}
    try:
        epoch = target.acquire({OWNER: word}, above=above, expect=left)
    except StateConflictError:
        check_unused(target, new)
        raise
    target.write(epoch, new, [p for p in found if p not in new and p != OWNER])
    return epoch


def renamed(texts: Mapping[str, str], source: Store, target: Store) -> dict[str, str]:
    """The records that name the id, as they are under its new name.

    Raises:
        StateError: Records of other ids name it, too.
    """
    if QUERY not in texts:
        return {}
    at = records.Place(QUERY, source.url, source.id)
    shape = records.decode_as(QUERY, texts[QUERY], read_shape, at)
    if shape.has_several_sources:
        others = " and ".join(
            repr(n) for n in (*shape.numbered, *shape.others) if n != source.id
        )
        raise StateError(
            f"id '{source.id}' in {source.url} is one of several sources of a query,"
            f" beside {others}, and their records name each other. Nothing was changed."
            " Keep the id",
            store=source.url,
            id=source.id,
        )
    named = tuple(target.id if n == source.id else n for n in shape.numbered)
    numbered = replace(shape, numbered=named)
    return {QUERY: records.encode(QUERY, shape_fields(numbered))}


def rename(
    id_: IdOption,
    to: Annotated[str, typer.Option(help="The new tx.id.")],
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give an id another name. It keeps position, unfinished txids and numbering.

    Sinks follow the numbering, so they continue under their own names. Then start the
    job with the new tx.id; a query keeps its checkpoint. If the command is killed, run
    it again.

    If the query uses with_dead_letters, first let it finish its batch: run it to its
    end with trigger(availableNow=True). The sink of its dead letters is named after the
    tx.id, so a batch that comes again under the new id has its dead letters twice.

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
                url = url_or_file(store)
                copy_offsets(url, url, id_, to)
                change.done(f"Done. Start the topology under the id {to}.")
            return
        known = _check(store, old, new)
        change.tell(f"{id_} -> {to}: {', '.join(old.read())}")
        for line in _dead_letters_again(known, id_, to):
            change.tell(line)
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
    if kind_of(url_or_file(url)) is not StoreKind.SQL:
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


def _dead_letters_again(known: list[KnownId], id_: str, to: str) -> Iterator[str]:
    """What must be done first where a query may write dead letters twice.

    Their sink is named after the tx.id, so it begins anew. The store does not know
    whether the query has one; a query that never asked for a txid has none.
    """
    former, new = (derived_id(name, ".dead-letters") for name in (id_, to))
    for one in known:
        if one.door is Door.SOURCE and one.state.unfinished and one.state.is_asked:
            txid = next(iter(one.state.unfinished))
            yield (
                f"attention: the store does not know txid {txid} as finished; without"
                " attach it learns this at the next start. If the query uses"
                f" with_dead_letters, first run it to its end under the id {id_}, with"
                " trigger(availableNow=True), and then rename it. Otherwise dead"
                f" letters of txid {txid} may be written twice: the sink '{new}' does"
                f" not know those of the sink '{former}'"
            )


def _check(url: str, old: Store, new: Store) -> list[KnownId]:
    known = doors_of(url, old)
    doors = {one.door for one in known}
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
    return known
