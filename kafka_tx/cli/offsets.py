"""``kafka-tx offsets``: show, set, forget and repair what is committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kafka_tx.cli.changes import Change, DryRunOption, YesOption
from kafka_tx.cli.handover import OffsetFormat, handover_of
from kafka_tx.cli.kafka_logs import KafkaConfigOption, KafkaOption, Logs, kafka_options
from kafka_tx.cli.moving import remove_offsets
from kafka_tx.cli.other_sources import how_to_start, others_of
from kafka_tx.cli.positions import (
    committed_of,
    doors_of,
    only_of_a_source,
    stored_of,
)
from kafka_tx.cli.stores import (
    STORE,
    IdOption,
    JsonOption,
    StoreOption,
    opened,
    url_or_file,
)
from kafka_tx.cli.targets import EXAMPLE, Target, check_whole, confirmed, target_of
from kafka_tx.clock import now_ms
from kafka_tx.errors import (
    ConfigError,
    FormatError,
    StateCorruptedError,
    StateError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import nested
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout.txid_layout import (
    ASKED,
    COMMITTED,
    QUERY,
    Door,
    door_of,
    refuse_moved,
)
from kafka_tx.transactions.ledger.ledger import Committed, Ledger, LedgerState
from kafka_tx.transactions.ledger.ledger_repair import (
    FOR_PEOPLE,
    Examination,
    Repair,
    examine,
)
from kafka_tx.transactions.ledger.manual_changes import (
    beside_unfinished,
    check_read,
    forgotten,
    moved,
    without_topics,
)
from kafka_tx.transactions.ownership.guarded_writes import take_over
from kafka_tx.transactions.ownership.memory import StoredId

_OWNERS = {"kafka_tx_offset_owners", "~owners"}
"""Records of those who may store offsets: in SQL databases, in ZooKeeper."""

offsets = typer.Typer(
    no_args_is_help=True, help="Show, set, delete or repair committed offsets."
)


@offsets.command()
def show(
    id_: IdOption,
    store: StoreOption = STORE,
    as_json: JsonOption = False,
    format_: Annotated[
        OffsetFormat | None,
        typer.Option(
            "--format",
            help="For another reader: spark prints startingOffsets of Spark's own"
            " source; group prints lines topic,partition,offset for --from-file of"
            " kafka-consumer-groups.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="With --format: only this topic. Repeat it for several topics."
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="With --format: the brokers that have the topics."),
    ] = None,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    unchecked: Annotated[
        bool,
        typer.Option("--unchecked", help="With --format: do not ask the brokers."),
    ] = False,
) -> None:
    """Print committed offsets: the next offset to process of each partition.

    With --json in the form that startingOffsets and `offsets set` take.

    With --format, another reader continues where the job was stopped, and misses no
    record. The command asks the brokers for partitions that the job has never read,
    which start at the beginning of their logs, and refuses positions that are not in
    their logs. Notes go to the standard error output: which records the other reader
    reads again, and why. Stop the job before. With --store kafka:, the id is the name
    of the group.
    """
    if format_ is None:
        if topic or bootstrap_servers or kafka or unchecked:
            why = "--topic, --unchecked and what names brokers go with --format"
            raise ConfigError(why, option="--format")
        _show(id_, store, as_json=as_json)
        return
    if as_json:
        why = "--format chooses the form itself: leave --json out"
        raise ConfigError(why, option="--json")
    asks = _brokers(bootstrap_servers, kafka, kafka_config, unchecked=unchecked)
    with asks as logs:
        found = handover_of(store, id_, topic or [], logs)
    for note in found.notes:
        typer.echo(note, err=True)
    typer.echo(found.text(format_))


def _show(id_: str, store: str, *, as_json: bool) -> None:
    with opened(store, id_) as state:
        known = committed_of(store, state)
    if there := known.state.moved_to:
        typer.echo(
            f"'{id_}' was copied to {there}, and goes on there: these offsets are old",
            err=True,
        )
    committed = known.state.position
    if as_json:
        typer.echo(json.dumps(nested(committed.offsets)))
        return
    if known.door is not Door.AT_LEAST_ONCE:
        typer.echo(f"txid {committed.txid}")
    for partition, offset in sorted(committed.offsets.items()):
        typer.echo(f"{partition}\t{offset}")


@contextmanager
def _brokers(
    bootstrap_servers: str | None,
    kafka: list[str] | None,
    kafka_config: Path | None,
    *,
    unchecked: bool,
) -> Iterator[Logs | None]:
    if unchecked and (bootstrap_servers or kafka):
        why = "--unchecked asks no brokers: leave it out, or what names brokers"
        raise ConfigError(why, option="--unchecked")
    if bootstrap_servers is not None:
        options = kafka_options(bootstrap_servers, kafka, kafka_config)
        with closing(Logs(options)) as logs:
            yield logs
        return
    if not unchecked:
        raise ConfigError(
            "no broker can say which partitions the job has never read. Give"
            " --bootstrap-servers, or --unchecked to print what is stored",
            option="--bootstrap-servers",
        )
    yield None


@offsets.command("set")
def set_(
    id_: IdOption,
    offsets_: Annotated[
        str | None, typer.Option("--offsets", help=f"JSON, such as {EXAMPLE}")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Instead of --offsets, for all partitions: earliest, latest, or a time"
            " such as 2026-01-31T12:00:00+00:00 (UTC without an offset)."
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="With --to: only partitions of this topic.")
    ] = None,
    store: StoreOption = STORE,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="Check the offsets with these brokers: host:port,…"),
    ] = None,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Write without a check by brokers.")
    ] = False,
    numbering: Annotated[
        str, typer.Option(help="Numbering in the sink; with --attempt.")
    ] = "",
    attempt: Annotated[
        str,
        typer.Option(help="Last attempt in the sink, txid:attempt, as its error says."),
    ] = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set the committed offsets. Partitions that you do not name keep their offsets.

    The command refuses topics that the brokers do not know, offsets outside of the log,
    offsets with the topic id of a topic that was deleted, and offsets behind the end of
    the log that their leader epoch names (unclean leader election).

    --numbering and --attempt continue the numbering of a sink whose store is lost. Give
    the offsets after the last records that the sink holds. For several sinks, give the
    greatest txid. Each of these sinks must hold all records below the offsets.

    --to sets every partition that the id has read: to the start of its log, to its end,
    or to the first record with this timestamp or a later one (where there is none, to
    the end). Of a --topic that the id has not read, it sets all partitions that the
    brokers have. It needs --bootstrap-servers.

    Unfinished txids without a part of these topics stay. Others are dropped and never
    used again, so that a sink cannot take the next batch for one that it holds. The
    command refuses to drop a txid with records of partitions that you do not name,
    because a sink that holds the txid would get them twice: the text says how to go on.

    Then start the job with a new checkpoint. If no unfinished txid stays, you may start
    it with tx.onDisagreement=store instead. For a query with several sources, set the
    ids of all sources, and then start it with a new checkpoint.
    """
    target = target_of(offsets_, to, topic, has_brokers=bool(bootstrap_servers))
    sink = _sink_at(numbering, attempt)
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    with opened(store, id_) as state:
        only_of_a_source(state, "cannot be set to other offsets")
        ledger = Ledger(state)
        before = ledger.load()
        if bootstrap_servers is not None:
            options = kafka_options(bootstrap_servers, kafka, kafka_config)
            target = confirmed(target, before, options)
        elif change.may_write and not unchecked:
            raise ConfigError(
                "no broker has checked these offsets. Give --bootstrap-servers, or"
                " --unchecked to write them without a check",
                option="--bootstrap-servers",
            )
        else:
            check_whole(target, before)
        _tell_move(change, before, _moved(state, before, target, sink))
        if sink.numbering not in ("", before.numbering):
            change.tell(f"numbering: {before.numbering or 'none'} -> {sink.numbering}")
        if not change.is_agreed():
            return
        # otherwise the sink takes the next owner for an older one
        epoch = ledger.acquire(above=sink.epoch)
        now = ledger.load()
        wanted = _moved(state, now, target, sink)
        ledger.adopt(epoch, wanted, sink.numbering, keeps_later=True)
        if sink.numbering and now.query is not None:
            ledger.describe(epoch, replace(now.query, numberings=()))
    start = how_to_start(id_, now.query)
    if now.unfinished and not _dropped(now, wanted):
        start = _ANEW
    change.done(f"Done. {start}{lost_with_checkpoint(now.query)}")


@offsets.command()
def forget(
    id_: IdOption,
    topic: Annotated[
        list[str], typer.Option(help="Topic to forget. Repeat it for several topics.")
    ],
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the committed offsets of a topic. The job then reads it as a new topic.

    The store keeps the offsets of a topic that the job no longer reads, and the job
    continues there if it reads the topic again. This command deletes these offsets.
    Unfinished txids without a part of the topic stay, and the query replays them.
    Others are dropped and never used again. The command refuses to drop a txid with
    records of other topics: finish it first.

    Then start a query with a new checkpoint. If it has one source and no unfinished
    txid stays, you may start it with tx.onDisagreement=store instead.

    The job stops if the log of a new topic starts above offset 0. If retention has
    removed records, set the offsets of a source to the start of the logs: offsets set
    --to earliest --topic TOPIC. For a topology, set failOnDataLoss=false of its spout.

    For a transactional topology, the command refuses its only topic, and a topic of
    which an unfinished txid has a part.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    with opened(store, id_) as state:
        if door_of(state.read()) is Door.TRANSACTIONAL:
            _forget_in_topology(state, topic, change)
            return
        only_of_a_source(state, "cannot forget a topic")
        ledger = Ledger(state)
        before = ledger.load()
        check_read(id_, topic, {p.topic for p in before.partitions})
        wanted = _forgotten(state, before, topic)
        _tell_move(change, before, wanted)
        if not change.is_agreed():
            return
        epoch = ledger.acquire()
        now = ledger.load()
        wanted = _forgotten(state, now, topic)
        ledger.adopt(epoch, wanted, keeps_later=True)
    is_alone = not now.unfinished and not now.has_several_sources
    goes_on = is_alone or _dropped(now, wanted)
    start = how_to_start(id_, now.query) if goes_on else _ANEW
    change.done(
        "Done. If the job shall read a forgotten topic whose logs start above offset 0,"
        " set their offsets to the start (kafka-tx offsets set --to earliest --topic"
        f" TOPIC). {start}{lost_with_checkpoint(now.query)}"
    )


@offsets.command()
def reset(
    id_: IdOption,
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete everything that the store has of an id. The job starts again with txid 1.

    Also empty the sinks that store txids or Spark's batch ids, as file sinks do. A sink
    of kafka_tx refuses the new numbering. Another sink may skip txid 1 and all later
    txids that it holds, and a file sink the batch ids that it holds.
    For a query with several sources, reset the ids of all sources or none, because the
    sink has records of all of them.

    An at-least-once topology then begins at start_offset_time of its spout.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    with opened(store, id_) as state:
        _refuse_moved(state)
        stored = stored_of(store, state)
        paths, partitions = list(stored.store.read()), _to_be_deleted(stored)
        has_txids = bool(paths) or not partitions
        others = _other_sources(state)
        if has_txids:
            change.tell(f"to be deleted: {', '.join(paths)}")
        for line in partitions:
            change.tell(line)
        if others:
            change.tell(f"the query has other sources: reset {others}, too")
        if not change.is_agreed():
            return
        _refuse_moved(state)
        if partitions:
            remove_offsets(url_or_file(store), state)
        if has_txids:
            state.write(state.acquire(), {}, state.read())
    of_txids = _begun_anew(others) if has_txids else ""
    change.done(f"Done.{of_txids}{_AT_START if partitions else ''}")


@offsets.command()
def repair(
    id_: IdOption,
    store: StoreOption = STORE,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find damaged records of an id, and restore them from the intact ones.

    No other record tells a damaged offset of an at-least-once topology: the command
    names it, and says how to continue.

    Without --yes, the command only shows the damaged records and its plan. The exit
    code is then 1 if a record is damaged.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    with opened(store, id_) as state, change.told():
        stored = stored_of(store, state)
        found, unreadable = examine(stored.store), _unreadable_offsets(stored)
        if not found.problems and unreadable is None:
            change.left(f"every record of '{id_}' in {state.url} can be read")
            return
        for path, reason in found.problems.items():
            change.tell(f"{path}: {reason}")
        if unreadable is not None:
            change.tell(_damage(unreadable))
            if not found.problems:
                raise _lost_offsets(unreadable, state)
        plan = _repair_of(found, state)
        _tell_repair(change, plan)
        if not change.is_agreed():
            raise typer.Exit(1)
        _write_repair(state, spares_owner=_spares_owner(plan))
        change.is_written = True
        doors_of(store, state)
    change.done("Done. Every record can be read.")


_ANEW = "Start the query with a new checkpoint."
"""A txid that stays is replayed, also as a part of a batch of several sources."""

_AT_START = (
    " Unless `store copy` has moved it to another store, the at-least-once topology"
    " begins at start_offset_time of its spout, by default the start of the logs."
    " Before you start it, empty its sinks, or they get records twice."
)


def _refuse_moved(state: Store) -> None:
    """Raise StateError if the id goes on in another store; not for damaged records."""
    with suppress(StateCorruptedError, FormatError):
        refuse_moved(state, state.read())


def _begun_anew(others: str) -> str:
    """What follows on deleted txids; ``others``: ids of the same query."""
    first = f"reset {others} of the same query too, " if others else ""
    return (
        f" The next txid is 1. Now {first}empty sinks that store txids or batch ids,"
        f" and start the job with a new checkpoint.{lost_with_checkpoint(None)}"
    )


def _unreadable_offsets(stored: StoredId) -> StateCorruptedError | None:
    """The error for offsets of an at-least-once topology that cannot be read."""
    try:
        stored.at_least_once()
    except StateCorruptedError as error:
        return error
    return None


def _to_be_deleted(stored: StoredId) -> list[str]:
    """A line for each offset of an at-least-once topology; none: there is none."""
    unreadable = _unreadable_offsets(stored)
    if unreadable is not None:
        damage = _damage(unreadable)
        return [f"all offsets of an at-least-once topology -> deleted ({damage})"]
    found = stored.at_least_once()[1]
    return [f"{p}: {at.offset} -> deleted" for p, at in sorted(found.items())]


def _lost_offsets(error: StateCorruptedError, state: Store) -> StateError:
    """The error that says how an at-least-once topology continues after ``error``."""
    if "command" not in error.fields:  # its text says so itself
        return error
    if error.fields["path"] in _OWNERS:
        advice = (
            "this record says who may store offsets, and the next start makes it anew:"
            " stop the topology, delete the record, and start the topology. In a SQL"
            " database the record is the row of the id in the table"
            " kafka_tx_offset_owners, in ZooKeeper the node ~owners of the id"
        )
    else:
        advice = (
            "no other record tells this offset. Restore the store from a copy, or begin"
            " anew: set start_offset_time of the spout to where the topology shall"
            " begin, and run kafka-tx offsets reset"
            f" --store '{state.url}' --id {state.id}, which deletes the offsets of all"
            " its partitions"
        )
    text = f"{_damage(error)}; {advice}"
    return StateError(text, store=state.url, id=state.id)


def _damage(error: StateCorruptedError) -> str:
    return "{path}: {reason}".format(**error.fields)


def _forget_in_topology(state: Store, topics: list[str], change: Change) -> None:
    without_topics(state, topics)
    for topic in topics:
        change.tell(
            f"{topic} -> deleted. If the topology shall read it, and its logs start"
            " above offset 0, the topology stops unless its spout has"
            " failOnDataLoss=false"
        )
    if not change.is_agreed():
        return
    epoch = take_over(state)
    state.write(epoch, without_topics(state, topics))
    change.done("Done. Start the topology.")


def _moved(
    state: Store, before: LedgerState, target: Target, sink: TransactionAttempt
) -> Committed:
    at, ids, epochs = target.offsets, target.topic_ids, target.leader_epochs
    wanted = moved(before, at, ids, now_ms(), sink.txid, epochs)
    named = at.keys() | {p for p in before.partitions if p.topic in target.gone}
    stay = not sink.numbering
    return beside_unfinished(state, before, wanted, named, may_stay=stay)


def _forgotten(state: Store, before: LedgerState, topics: list[str]) -> Committed:
    named = {p for p in before.partitions if p.topic in topics}
    wanted = forgotten(before, topics, now_ms())
    return beside_unfinished(state, before, wanted, named)


def _other_sources(state: Store) -> str:
    """Ids of the same query; none where the records cannot be read."""
    try:
        query = Ledger(state).load().query
    except StateError:
        return ""
    return others_of(state.id, query)


def _sink_at(numbering: str, attempt: str) -> TransactionAttempt:
    """The last attempt that a sink holds, to continue after it; txid 0: none."""
    if not numbering and not attempt:
        return TransactionAttempt(0, 0)
    if not re.fullmatch("[0-9a-f]{12}", numbering):
        legal = "12 hexadecimal digits, as the sink's error says, with --attempt"
        raise ConfigError.illegal("--numbering", numbering, legal)
    if not re.fullmatch("[0-9]+:[0-9]+", attempt):
        legal = "txid:attempt, as the sink's error says, with --numbering"
        raise ConfigError.illegal("--attempt", attempt, legal)
    return replace(TransactionAttempt.parse(attempt), numbering=numbering)


def _tell_move(change: Change, before: LedgerState, wanted: Committed) -> None:
    former = before.committed.offsets if before.committed else {}
    for partition, offset in sorted(wanted.offsets.items()):
        if former.get(partition) != offset:
            change.tell(f"{partition}: {former.get(partition, 'none')} -> {offset}")
    for partition in sorted(former.keys() - wanted.offsets.keys()):
        change.tell(f"{partition}: {former[partition]} -> deleted")
    dropped = _dropped(before, wanted)
    for txid in before.unfinished:
        is_left = txid not in dropped
        change.tell(f"txid {txid} {'stays unfinished' if is_left else 'is dropped'}")
    change.tell(f"next txid: {wanted.txid + 1}")


def _dropped(state: LedgerState, wanted: Committed) -> list[int]:
    """The unfinished txids that a new position drops; the others stay."""
    return [txid for txid in state.unfinished if txid <= wanted.txid]


def _repair_of(found: Examination, state: Store) -> Repair:
    if found.repair is not None:
        return found.repair
    damaged = "; ".join(f"{path}: {why}" for path, why in found.problems.items())
    raise StateError(
        f"{damaged}; the intact records are not enough to restore these. Restore the"
        " store from a copy, or begin anew: run kafka-tx offsets reset"
        f" --store '{state.url}' --id {state.id}, and give the job startingOffsets from"
        " its checkpoint or from the Kafka group of tx.commitGroupId",
        store=state.url,
        id=state.id,
    )


def _write_repair(state: Store, *, spares_owner: bool) -> None:
    """Judge the records anew, and repair what is damaged now."""
    epoch = (state.epoch() if spares_owner else 0) or state.acquire()
    found = examine(state)
    if not found.problems:
        return  # its job has written them anew
    plan = _repair_of(found, state)
    if spares_owner and not _spares_owner(plan):  # there is more damage by now
        _write_repair(state, spares_owner=False)
    else:
        state.write(epoch, plan.put, plan.delete)


def _spares_owner(plan: Repair) -> bool:
    """Whether a job may go on while this is repaired."""
    return plan.position is None and FOR_PEOPLE.issuperset(plan.delete)


def _tell_repair(change: Change, plan: Repair) -> None:
    position = plan.position
    if position is not None:
        offsets = f" {json.dumps(nested(position.offsets))}" if position.offsets else ""
        change.tell(
            f"repair: committed becomes txid {position.txid}{offsets}, as the record"
            f" '{plan.source}' says"
        )
    if plan.delete:
        change.tell(f"repair: delete {', '.join(plan.delete)}")
    if ASKED in plan.put:
        change.tell(f"repair: write {ASKED} anew")
    if QUERY in plan.delete:
        change.tell(
            "attention: the record of the query's sources and state is lost. The job"
            " writes it anew: keep its checkpoint. If the query has several sources, do"
            " not set tx.onDisagreement before the job has finished a batch, and set"
            " the ids of all its sources with `kafka-tx offsets set` before you start"
            " the query with a new checkpoint."
        )
    if position is not None and position.offsets and plan.source != COMMITTED:
        change.tell(
            "attention: positions of partitions that the stored batches do not read are"
            " lost, such as those of a topic that was deleted or that the query leaves"
            " out. If it comes back, its records are read again from the start of its"
            " log: set its offsets before, with `kafka-tx offsets set`. If more than"
            " two batches without records came last, a query may take its checkpoint"
            " for an older one: with one source, then set tx.onDisagreement=checkpoint."
        )
    for txid in plan.given_up:
        change.tell(
            f"attention: the ranges of open txid {txid} are lost; it will be planned"
            " anew. A sink that holds this txid already would refuse or skip it: look"
            " there first; a query of one source may keep its checkpoint and set"
            " tx.onDisagreement=checkpoint, which takes the ranges from Spark's log."
        )
