"""Doing what an error says, to the letter: each way out that a text may name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from kafka_tx.errors import (
    DataLossError,
    FencedError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.planning.offset_json import MARK, SourceOffset
from kafka_tx.transactions.by_hand import moved
from kafka_tx.transactions.ledger import Ledger
from tests.properties.simulated_databases import Table
from tests.properties.simulated_people import OFF, World
from tests.properties.simulated_query import TaskFailedError


def follow(world: World) -> None:
    """The job has ended: read why, and do what it says.

    Where a text names several ways, chance takes one; where it names none that is open
    to this person, the job stands still for good.
    """
    assert world.run is not None
    error, world.run = world.run.error, None
    assert isinstance(error, KafkaTxError | TaskFailedError), error
    world.seen[_name(error)] += 1
    if _passes(world, error):
        return
    assert isinstance(error, KafkaTxError)
    told = Told(world, error, str(error))
    ways = [way for way in WAYS if way.is_open(told)]
    if any(way.is_first for way in ways):
        ways = [way for way in ways if way.is_first]
    if not ways:
        world.refusal = told.text
        world.seen[f"refused: {_name(error)}"] += 1
        return
    way = world.chance.choice(ways)
    world.seen[f"did: {way.name}"] += 1
    way.do(told)


def _passes(world: World, error: KafkaTxError | TaskFailedError) -> bool:
    """What needs no decision: it is started again."""
    is_away = isinstance(error, TaskFailedError | UnknownTopicError)
    if is_away or getattr(error, "retryable", False):
        if world.seen["steps"] % 5 == 0:  # what was hidden is found sooner or later
            for topic in world.brokers.topics_.values():
                topic.is_hidden = False
        return True
    if isinstance(error, FencedError) and "another owner" in str(error):
        return True  # one of the two goes on: this one
    if world.rivals and "this one must stop" in str(error):
        world.let_a_rival_go_on()
        return True
    is_loss = isinstance(error, DataLossError | OffsetOutOfRangeError)
    if is_loss and "failOnDataLoss" not in world.once:
        world.once["failOnDataLoss"] = "false"
        return True
    return False


def _name(error: BaseException) -> str:
    case = getattr(error, "fields", {}).get("case")
    name = type(error).__name__
    return f"{name} {case}" if case else name


@dataclass(frozen=True)
class Told:
    """An error that waits for a person."""

    world: World
    error: KafkaTxError
    text: str

    @property
    def txid(self) -> int:
        """Which one the sink is to be looked at for."""
        found = re.search(r"look whether the sink has txid (\d+)", self.text)
        return int(found[1] if found else str(self.error.fields["txid"]))

    @property
    def table(self) -> Table:
        """What the sink holds."""
        where, name = self.world.job.sink
        return self.world.databases[where].tables.get(name, Table())


@dataclass(frozen=True)
class Way:
    """A way out.

    Attributes:
        words: How texts name it.
        may: Whether what the text asks for is so.
        is_first: Where it is open, the others are for those who do not have it.
    """

    name: str
    words: str
    do: Callable[[Told], None]
    may: Callable[[Told], bool] = lambda told: True
    is_first: bool = False

    def is_open(self, told: Told) -> bool:
        is_named = self.name not in OFF and re.search(self.words, told.text)
        return bool(is_named) and self.may(told)


def _set_back(option: str) -> Way:
    return Way(
        f"set {option} back",
        rf"[Ss]et {re.escape(option)} (back|right|to)",
        lambda told: told.world.undo[option](),
        may=lambda told: option in told.world.undo,
        is_first=True,
    )


def _decide(side: str) -> Way:
    def do(told: Told) -> None:
        told.world.once["tx.onDisagreement"] = side

    return Way(side, rf"tx\.onDisagreement={side}", do)


def _sink_is_beside(told: Told) -> bool:
    return told.world.job.sink[0] == told.world.job.store


def _may_be_opaque(told: Told) -> bool:
    return told.world.job.is_opaque or told.table.newest.txid < told.txid


def _become_opaque(told: Told) -> None:
    world = told.world
    streams = tuple(replace(s, mode="opaque") for s in world.job.streams)
    world.job = replace(world.job, streams=streams)
    world.undo.pop("tx.mode", None)


def _put_all_back(told: Told) -> None:
    world, backup = told.world, told.world.backup
    assert backup is not None
    world.rivals.clear()
    world.undo.clear()
    world.left.clear()
    for database, copy in zip(world.databases, backup.databases, strict=True):
        database.put_back(copy)
    world.job, world.checkpoint = backup.job, backup.checkpoint.copied()


def _put_sink_back(told: Told) -> None:
    """To the time of the store."""
    world = told.world
    assert world.went_back is not None
    where, _ = world.job.sink
    world.databases[where].put_back(world.went_back[where], stores=False)


def _empty_sink(told: Told) -> None:
    where, name = told.world.job.sink
    told.world.databases[where].tables.pop(name, None)


def _set_offsets(told: Told) -> None:
    """As the command that is printed: which one depends on what the sink has."""
    world, text = told.world, told.text
    world.rivals.clear()
    has_it, has_it_not = text.split("--offsets '")[1:]
    chosen = has_it if told.table.newest.txid >= told.txid else has_it_not
    offsets = json.loads(chosen.partition("'")[0])
    ids = offsets.pop(MARK)["topic_ids"]
    positions = SourceOffset.from_json(offsets).positions
    stream = next(s for s in world.job.streams if f"--id {s.tx_id} " in text)
    ledger = Ledger(world.databases[world.job.store].store(stream.tx_id))
    ledger.adopt(ledger.acquire(), moved(ledger.load(), positions, ids, 0))
    world.new_checkpoint()


def _use_the_former_checkpoint(told: Told) -> None:
    world = told.world
    world.left, world.checkpoint = world.left[:-1], world.left[-1]
    world.stop()


WAYS = (
    Way(
        "the former checkpoint",
        r"Start the query with the checkpointLocation and the sources",
        _use_the_former_checkpoint,
        may=lambda told: bool(told.world.left),
        is_first=True,
    ),
    _set_back("tx.id"),
    _set_back("tx.store"),
    _set_back("tx.mode"),
    _decide("checkpoint"),
    _decide("store"),
    Way(
        "new checkpoint",
        r"(?<!not )start with a\s+new checkpointLocation",
        lambda told: told.world.new_checkpoint(),
        may=lambda told: "offsets set" not in told.text,
    ),
    Way("offsets set", r"--offsets '", _set_offsets),
    Way(
        "start again",
        r"Maps and tables in the same database went back with it",
        lambda told: told.world.stop(),
        may=_sink_is_beside,
    ),
    Way(
        "put the sink back",
        r"put that back to the same time first",
        _put_sink_back,
        may=lambda told: not _sink_is_beside(told) and told.world.went_back is not None,
    ),
    Way(
        "empty the sink",
        r"empty what it writes first",
        _empty_sink,
        may=lambda told: told.world.job.door == "topology",
    ),
    Way(
        "an opaque spout",
        r"An opaque spout under the same id",
        _become_opaque,
        may=_may_be_opaque,
    ),
    Way(
        "put all back",
        r"copies that were made together",
        _put_all_back,
        may=lambda told: told.world.backup is not None,
    ),
)
"""What texts name, in no order."""
