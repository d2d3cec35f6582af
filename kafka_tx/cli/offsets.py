"""``kafka-tx offsets``: look at, set, forget and repair what is committed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from kafka_tx.cli.lag import KafkaConfigOption, KafkaOption, kafka_options, look
from kafka_tx.cli.positions import committed_of, known_id, only_of_a_source
from kafka_tx.cli.stores import (
    STORE,
    IdOption,
    JsonOption,
    StoreOption,
    YesOption,
    opened,
)
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import (
    AtOffset,
    LogBounds,
    LogPosition,
    TopicPartition,
    TransactionAttempt,
    Unavailable,
)
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import MARK, nested, parse_positions
from kafka_tx.planning.standing import Finding, stand
from kafka_tx.protocols import Store
from kafka_tx.transactions.by_hand import forgotten, moved
from kafka_tx.transactions.ledger import Committed, Ledger, LedgerState
from kafka_tx.transactions.ledger_repair import Examination, Repair, examine
from kafka_tx.transactions.txid_layout import Door

EXAMPLE = """'{"orders": {"0": 250, "1": 0}}'"""
_NOTHING_WRITTEN = (
    "Nothing was written. To do it, stop the job and add --yes; a job that still runs"
    " is fenced."
)

offsets = typer.Typer(
    no_args_is_help=True, help="Look at, set, forget or repair what is committed."
)


@offsets.command()
def show(
    id_: IdOption, store: StoreOption = STORE, as_json: JsonOption = False
) -> None:
    """Print committed offsets: the next offset to process of each partition.

    With --json in the form that startingOffsets and `offsets set` take.
    """
    with opened(store, id_) as state:
        door, committed = committed_of(store, state)
    if as_json:
        typer.echo(json.dumps(nested(committed.offsets)))
        return
    if door is not Door.AT_LEAST_ONCE:
        typer.echo(f"txid {committed.txid}")
    for partition, offset in sorted(committed.offsets.items()):
        typer.echo(f"{partition}\t{offset}")


@offsets.command("set")
def set_(
    id_: IdOption,
    to: Annotated[str, typer.Option("--offsets", help=f"JSON, such as {EXAMPLE}")],
    store: StoreOption = STORE,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="Ask these brokers whether the logs reach there.")
    ] = None,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Write without asking any broker.")
    ] = False,
    numbering: Annotated[
        str, typer.Option(help="Of a sink that shall be gone on with; with --attempt.")
    ] = "",
    attempt: Annotated[
        str, typer.Option(help="That the sink holds, txid:attempt, as its error says.")
    ] = "",
    yes: YesOption = False,
) -> None:
    """Go on from other offsets. Partitions that are not named keep theirs.

    Refused for topics that the brokers do not know, for offsets outside of the log, and
    where the offsets name the id of a topic that was deleted since.

    With --numbering and --attempt the id counts on where a sink is that knew another
    store: give the offsets where in the topic that ends what the sink holds. For
    several sinks give the greatest txid; each of them must hold all up to there.

    Open txids are given up and never used again, so that a sink does not take the next
    batch for one it has seen. Start the job with a new checkpoint afterwards, or with
    tx.onDisagreement=store.
    """
    given, ids = _given(to), json.loads(to).get(MARK, {}).get("topic_ids", {})
    sink = _sink_at(numbering, attempt)
    with opened(store, id_) as state:
        only_of_a_source(state, "cannot be set to other offsets")
        if bootstrap_servers is not None:
            options = kafka_options(bootstrap_servers, kafka, kafka_config)
            ids = _checked(given, ids, look(options, tuple(given)))
        elif yes and not unchecked:
            raise ConfigError(
                "whether the logs reach to these offsets is not known: give"
                " --bootstrap-servers, or --unchecked to write them all the same",
                option="--bootstrap-servers",
            )
        ledger = Ledger(state)
        before = ledger.load()
        wanted = moved(before, given, ids, _now_ms(), sink.txid)
        _tell_move(before, wanted)
        if sink.numbering not in ("", before.numbering):
            typer.echo(f"numbering: {before.numbering or 'none'} -> {sink.numbering}")
        if not yes:
            typer.echo(_NOTHING_WRITTEN)
            return
        epoch = ledger.acquire()
        while epoch < sink.epoch:  # else the sink takes the next owner for an old one
            epoch = ledger.acquire()
        now = moved(ledger.load(), given, ids, _now_ms(), sink.txid)
        ledger.adopt(epoch, now, sink.numbering)
    typer.echo(
        "Done. Start the job with a new checkpoint or tx.onDisagreement=store."
        f"{lost_with_checkpoint(before.query)}"
    )


@offsets.command()
def forget(
    id_: IdOption,
    topic: Annotated[str, typer.Option("--topic", help="Topic to forget.")],
    store: StoreOption = STORE,
    yes: YesOption = False,
) -> None:
    """Forget what is committed of a topic: it is new when it is read again.

    The offsets of a topic that is not read any more stay in the store, so that it goes
    on where it was when it comes back. Open txids are given up and never used again.
    Start the job with a new checkpoint afterwards.
    """
    with opened(store, id_) as state:
        only_of_a_source(state, "cannot forget a topic")
        ledger = Ledger(state)
        before = ledger.load()
        known = before.committed.offsets if before.committed else {}
        if all(partition.topic != topic for partition in known):
            names = ", ".join(sorted({p.topic for p in known})) or "none"
            raise ConfigError.illegal("--topic", topic, f"a topic of '{id_}': {names}")
        _tell_move(before, forgotten(before, topic, _now_ms()))
        if not yes:
            typer.echo(_NOTHING_WRITTEN)
            return
        epoch = ledger.acquire()
        ledger.adopt(epoch, forgotten(ledger.load(), topic, _now_ms()))
    typer.echo(
        "Done. Start the job with a new checkpoint."
        f"{lost_with_checkpoint(before.query)}"
    )


@offsets.command()
def reset(id_: IdOption, store: StoreOption = STORE, yes: YesOption = False) -> None:
    """Forget everything of an id: the job begins anew, with txid 1.

    A sink that stores txids has seen 1 and those after it: empty it too, or it skips
    them.
    """
    with opened(store, id_) as state:
        paths = list(state.read())
        typer.echo(f"to be deleted: {', '.join(paths)}")
        if not yes:
            typer.echo(_NOTHING_WRITTEN)
            return
        state.write(state.acquire(), {}, state.read())
    typer.echo(
        "Done. The next txid is 1: empty sinks that store txids, and start the job with"
        f" a new checkpoint.{lost_with_checkpoint(None)}"
    )


@offsets.command()
def repair(id_: IdOption, store: StoreOption = STORE, yes: YesOption = False) -> None:
    """Find records that cannot be read, and mend them from those that can.

    Without --yes it only shows what is wrong and what it would do, with exit code 1 if
    anything is wrong.
    """
    with opened(store, id_) as state:
        found = examine(state)
        if not found.problems:
            typer.echo(f"every record of '{id_}' in {state.url} can be read")
            return
        for path, reason in found.problems.items():
            typer.echo(f"{path}: {reason}")
        plan = _repair_of(found, state)
        _tell_repair(plan)
        if not yes:
            typer.echo(_NOTHING_WRITTEN)
            raise typer.Exit(1)
        epoch = state.acquire()
        plan = _repair_of(examine(state), state)
        state.write(epoch, plan.put, plan.delete)
        known_id(store, state, state.read())
    typer.echo("Done. Every record can be read.")


def _given(text: str) -> dict[TopicPartition, int]:
    positions = parse_positions("--offsets", text)
    numbers = {p: at.offset for p, at in positions.items() if isinstance(at, AtOffset)}
    if not numbers or len(numbers) != len(positions):
        raise ConfigError.illegal(
            "--offsets", text, f"offsets of 0 and more, as in {EXAMPLE}"
        )
    return numbers


def _sink_at(numbering: str, attempt: str) -> TransactionAttempt:
    """What a sink holds that shall be gone on with; txid 0: none."""
    if not numbering and not attempt:
        return TransactionAttempt(0, 0)
    if not re.fullmatch("[0-9a-f]{12}", numbering):
        legal = "12 hexadecimal digits, as the sink's error says, with --attempt"
        raise ConfigError.illegal("--numbering", numbering, legal)
    if not re.fullmatch("[0-9]+:[0-9]+", attempt):
        legal = "txid:attempt, as the sink's error says, with --numbering"
        raise ConfigError.illegal("--attempt", attempt, legal)
    return replace(TransactionAttempt.parse(attempt), numbering=numbering)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _checked(
    given: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    found: Mapping[TopicPartition, LogBounds | Unavailable],
) -> dict[str, str]:
    """Ids of the topics whose offsets these are, as the brokers tell them.

    Raises:
        ConfigError: The offsets cannot be those of the topics that are there now.
    """
    wrong, now = [], dict(ids)
    for partition, offset in sorted(given.items()):
        bounds = found.get(partition, Unavailable("the brokers do not know it"))
        if isinstance(bounds, Unavailable):
            wrong.append(f"{partition}: {bounds.reason}")
            continue
        position = LogPosition(offset, ids.get(partition.topic))
        reason = _why_not(position, bounds)
        if reason:
            wrong.append(f"{partition}: {reason}")
        elif bounds.topic_id is not None:
            now[partition.topic] = bounds.topic_id
    if wrong:
        raise ConfigError(
            f"these offsets cannot be set. {'; '.join(wrong)}. Nothing was changed",
            option="--offsets",
        )
    return now


def _why_not(position: LogPosition, bounds: LogBounds) -> str:
    match stand(position, bounds).finding:
        case Finding.WITHIN:
            return ""
        case Finding.ANEW:
            return (
                f"{position.offset} is of the topic with the id {position.topic_id},"
                f" which was deleted; the one there now has the id {bounds.topic_id}"
            )
        case Finding.UNANSWERED:
            return f"no broker tells whether its topic has the id {position.topic_id}"
        case _:
            return (
                f"{position.offset} is outside of the log, which holds"
                f" {bounds.log_start} to {bounds.end}"
            )


def _tell_move(before: LedgerState, wanted: Committed) -> None:
    former = before.committed.offsets if before.committed else {}
    for partition, offset in sorted(wanted.offsets.items()):
        if former.get(partition) != offset:
            typer.echo(f"{partition}: {former.get(partition, 'none')} -> {offset}")
    for partition in sorted(former.keys() - wanted.offsets.keys()):
        typer.echo(f"{partition}: {former[partition]} -> forgotten")
    for txid in before.unfinished:
        typer.echo(f"txid {txid} is given up")
    typer.echo(f"next txid: {wanted.txid + 1}")


def _repair_of(found: Examination, state: Store) -> Repair:
    if found.repair is not None:
        return found.repair
    raise StateError(
        "the records that can be read do not say how to mend these. Put the store back"
        " from a copy, or begin anew: kafka-tx offsets reset"
        f" --store '{state.url}' --id {state.id}, and give the job startingOffsets from"
        " its checkpoint or from the Kafka group of tx.commitGroupId",
        store=state.url,
        id=state.id,
    )


def _tell_repair(plan: Repair) -> None:
    position = plan.position
    offsets = f" {json.dumps(nested(position.offsets))}" if position.offsets else ""
    typer.echo(
        f"repair: committed becomes txid {position.txid}{offsets}, as the record"
        f" '{plan.source}' says"
    )
    if plan.delete:
        typer.echo(f"repair: delete {', '.join(plan.delete)}")
    for txid in plan.given_up:
        typer.echo(
            f"attention: the ranges of open txid {txid} are lost; it will be planned"
            " anew. A sink that holds this txid already would refuse or skip it: look"
            " there first; a query may keep its checkpoint and set"
            " tx.onDisagreement=checkpoint, which takes the ranges from Spark's log."
        )
