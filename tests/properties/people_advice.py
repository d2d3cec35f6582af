"""Doing what an error says, to the letter: each way out that a text may name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from kafka_tx.errors import (
    AnotherNumberingError,
    CheckpointDisagreesError,
    DataLossError,
    FencedError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.transactions.layout.txid_layout import CURRENT, numbering_of
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ledger.manual_changes import moved
from tests.properties.simulated_databases import EMPTY, Copy, Table
from tests.properties.simulated_people import KAFKA, OFF, World
from tests.properties.simulated_query import TaskFailedError
from tests.properties.simulated_streams import Checkpoint
from tests.properties.told_offsets import set_offsets

IN_A_CIRCLE = 30
"""Texts that were followed one after the other, after which a person gives up."""


def follow(world: World) -> None:
    """The job has ended: read why, and do what it says.

    Where a text names several ways, chance takes one; where it names none that is open
    to this person, the job stands still for good.
    """
    assert world.run is not None
    error, world.run, world.is_hurt = world.run.error, None, False
    assert isinstance(error, KafkaTxError | TaskFailedError), error
    world.seen[_name(error)] += 1
    if _passes(world, error):
        return
    assert isinstance(error, KafkaTxError)
    if isinstance(error, CheckpointDisagreesError):
        world.refused.add(world.checkpoint.name)
    refusal = Refusal(world, error, str(error))
    ways = [way for way in WAYS if way.is_open(refusal)]
    if any(way.is_first for way in ways):
        ways = [way for way in ways if way.is_first]
    if not ways:
        world.refusal = refusal.text
        world.seen[f"refused: {_name(error)}"] += 1
        return
    world.followed += 1
    if world.followed > IN_A_CIRCLE:
        world.refusal = f"in a circle: {refusal.text}"
        world.seen[f"in a circle: {_name(error)}"] += 1
        return
    way = world.chance.choice(ways)
    world.seen[f"did: {way.name}"] += 1
    way.do(refusal)


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
class Refusal:
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
    def is_in_sink(self) -> bool:
        """Whether the sink has what it is to be looked at for."""
        newest = self.table.newest
        named = re.search(r"look whether the sink has txid \d+ of '(\w+)'", self.text)
        is_of_it = named is None or newest.source == named[1]
        return is_of_it and newest.txid >= self.txid

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
    do: Callable[[Refusal], None]
    may: Callable[[Refusal], bool] = lambda refusal: True
    is_first: bool = False

    def is_open(self, refusal: Refusal) -> bool:
        is_named = self.name not in OFF and re.search(self.words, refusal.text)
        return bool(is_named) and self.may(refusal)


def _set_back(option: str) -> Way:
    return Way(
        f"set {option} back",
        rf"[Ss]et {re.escape(option)} (back|right|to)|read with {re.escape(option)}=",
        lambda refusal: _undo(refusal, option),
        may=lambda refusal: (
            option in refusal.world.undo and _may_change_the_mode(refusal)
        ),
        is_first=True,
    )


def _undo(refusal: Refusal, option: str) -> None:
    refusal.world.once.pop("tx.onDisagreement", None)
    refusal.world.undo[option]()


def _decide(side: str) -> Way:
    def do(refusal: Refusal) -> None:
        if "no other run" in refusal.text:
            refusal.world.rivals.clear()
        refusal.world.once["tx.onDisagreement"] = side
        if side == "checkpoint":  # the store knows from now on what that has ended
            refusal.world.keep_commits()

    def may(refusal: Refusal) -> bool:
        """Where the text asks for the sink's txid, it decides."""
        if refusal.world.job.door != "query" or not _is_by_checkpoint(refusal):
            return False
        most = re.search(r"if no sink holds a txid above (\d+)", refusal.text)
        if side == "checkpoint" and most and refusal.table.newest.txid > int(most[1]):
            return False
        done = re.search(r"Txid (\d+) or later", refusal.text)
        stored = re.search(r"Txid (?:\d+ or )?(\d+), because", refusal.text)
        if not done or not stored:
            return True
        has_all = refusal.table.newest.txid >= int(done[1])
        went_back = refusal.table.newest.txid <= int(stored[1])
        return has_all if side == "checkpoint" else went_back and not has_all

    return Way(side, rf"tx\.onDisagreement={side}", do, may)


def _sink_is_beside(refusal: Refusal) -> bool:
    return refusal.world.job.sink[0] == refusal.world.job.store


MODE = r"(?:[Ss]et tx\.mode to\s+'|read with tx\.mode=)(\w+)"


def _may_change_the_mode(refusal: Refusal) -> bool:
    """Some texts ask what the sink takes."""
    is_asked = "If all sinks of the query take" in refusal.text
    return refusal.world.job.is_opaque or not is_asked


def _use_the_mode(refusal: Refusal) -> None:
    world = refusal.world
    found = re.search(MODE, refusal.text)
    mode = found[1] if found else "opaque"
    streams = tuple(replace(s, mode=mode) for s in world.job.streams)
    world.job = replace(world.job, streams=streams)
    world.undo.pop("tx.mode", None)


def _put_all_back(refusal: Refusal) -> None:
    world, backup = refusal.world, refusal.world.backup
    assert backup is not None
    world.backup = None  # it was of no use if that does not do
    is_older = [c for c in world.copies if c[0].at <= backup.databases[0].at]
    world.copies = is_older  # the others are of what did not happen
    world.rivals.clear()
    world.undo.clear()
    world.left.clear()
    world.copies = []  # of what has not happened
    for database, copy in zip(world.databases, backup.databases, strict=True):
        database.put_back(copy)
    world.job, world.checkpoint = backup.job, backup.checkpoint.copied()


def _is_known(went_back: tuple[Copy, ...] | None, refusal: Refusal) -> bool:
    """The time to which the store went back, if it held anything then."""
    if went_back is None:
        return False
    stores = went_back[refusal.world.job.store].stores.values()
    return any(CURRENT in kept.values for kept in stores)


def _put_sink_back(refusal: Refusal) -> None:
    """To the time of the store."""
    world = refusal.world
    assert world.went_back is not None
    where, name = world.job.sink
    store = world.databases[world.job.store].store(world.job.streams[0].tx_id)
    is_query = world.job.door == "query"
    if is_query and Ledger(store).load().committed is None:
        # the text that follows says what is not read again then
        world.destroyed |= set(world.databases[where].records(name))
    world.databases[where].put_back(world.went_back[where], stores=False)


def _empty_sink(refusal: Refusal) -> None:
    where, name = refusal.world.job.sink
    refusal.world.databases[where].drop(name)


def _switch_speculation_off(refusal: Refusal) -> None:
    refusal.world.job = replace(refusal.world.job, speculates=False)


def _use_the_parts_that_are_named(refusal: Refusal) -> None:
    """For the batch that was begun; later on the number may change again."""
    found = re.search(
        r"comes after part \d+ of txid \d+ in (\d+)\s+parts", refusal.text
    )
    assert found is not None
    refusal.world.job = replace(refusal.world.job, parts=int(found[1]))


def _may_set_offsets(refusal: Refusal) -> bool:
    is_asked = "that the store did not go back" in refusal.text
    if _has_half(refusal):
        return False
    return _is_not_later(refusal) and not (is_asked and refusal.world.went_back)


def _has_half(refusal: Refusal) -> bool:
    """Whether the sink has some parts of the batch that a text asks for, as it says."""
    where, name = refusal.world.job.sink
    is_asked = "the sink has only a part of the batch" in refusal.text
    txid = refusal.world.kafka.halves.get(name, 0) if where == KAFKA else 0
    return is_asked and txid == refusal.txid


def _may_begin_anew(refusal: Refusal) -> bool:
    """Some texts offer it where nothing else is right."""
    is_asked = "the sink has only a part of the batch" in refusal.text
    return refusal.world.backup is None and (not is_asked or _has_half(refusal))


def _holds_all_of_its_txid(refusal: Refusal) -> bool:
    where, name = refusal.world.job.sink
    return where != KAFKA or name not in refusal.world.kafka.halves


def _has_left_a_store(refusal: Refusal) -> bool:
    """Whether the job's store is in another database than the sink."""
    return refusal.world.job.store != refusal.world.job.sink[0]


def _remove_the_store_left(refusal: Refusal) -> None:
    for stream in refusal.world.job.streams:
        refusal.world.databases[refusal.world.job.sink[0]].store(stream.tx_id).restore(
            EMPTY
        )


def _is_not_later(refusal: Refusal) -> bool:
    is_asked = re.search(r"A later one there means", refusal.text)
    return not (is_asked and refusal.table.newest.txid > refusal.txid)


def _checkpoint_of_the_sink(refusal: Refusal) -> Checkpoint | None:
    """The newest that counts in the sink's numbering; the present one may not."""
    if refusal.world.job.door == "topology":
        return None
    named = refusal.table.newest.numbering
    every = [refusal.world.checkpoint, *refusal.world.left]
    ours = [found for found in every if found.numbering() == named]
    if len(refusal.world.job.streams) > 1:  # nothing decides for what was refused
        ours = [found for found in ours if found.name not in refusal.world.refused]
    return max(ours, key=Checkpoint.txid, default=None)


def _start_with_that_checkpoint(refusal: Refusal) -> None:
    world, found = refusal.world, _checkpoint_of_the_sink(refusal)
    assert found is not None
    if found is not world.checkpoint:
        world.left.remove(found)
        world.left.append(world.checkpoint)
        world.checkpoint = found
    world.stop()
    world.once["tx.onDisagreement"] = "checkpoint"


def _store_of(refusal: Refusal, named: str) -> int | None:
    """Which database has a store that counts in this numbering."""
    world, id_ = refusal.world, refusal.world.job.streams[0].tx_id
    for number, database in enumerate(world.databases):
        store = database.store(id_)
        found = numbering_of(store.read(), store.url, id_)
        if found is not None and found.name == named:
            return number
    return None


def _may_use_the_store_of_the_checkpoint(refusal: Refusal) -> bool:
    named = refusal.world.checkpoint.numbering()
    is_another = _store_of(refusal, named) not in (None, refusal.world.job.store)
    return _is_by_checkpoint(refusal) and is_another


def _is_by_checkpoint(refusal: Refusal) -> bool:
    """Where the text asks for the sink's numbering: it is that of the checkpoint."""
    if "the numbering of the checkpoint, or none" in refusal.text:
        return refusal.table.newest.numbering == refusal.world.checkpoint.numbering()
    return not isinstance(refusal.error, AnotherNumberingError)


def _may_leave_the_checkpoint(refusal: Refusal) -> bool:
    found = re.search(
        r"If the sinks have (\w+), the numbering of the store", refusal.text
    )
    if found and refusal.table.newest.numbering not in ("", found[1]):
        return False
    asked = re.search(
        r"If it shows txid (\d+) of '(\w+)', finished or not", refusal.text
    )
    if asked:
        return _has_txid(refusal, asked[2], int(asked[1]))
    return not (found and refusal.world.plain) and "offsets set" not in refusal.text


def _has_txid(refusal: Refusal, id_: str, txid: int) -> bool:
    """Whether the store of a query shows it as finished or planned."""
    if refusal.world.job.door == "topology":
        return False
    state = Ledger(refusal.world.databases[refusal.world.job.store].store(id_)).load()
    return max([state.txid, *state.planned]) >= txid


def _may_put_the_sink_back(refusal: Refusal) -> bool:
    is_elsewhere = refusal.world.job.door == "topology" and not _sink_is_beside(refusal)
    may_go_back = is_elsewhere and refusal.world.job.sink[0] != KAFKA
    return may_go_back and refusal.world.went_back is not None


def _use_the_store(refusal: Refusal, named: str) -> None:
    world, found = refusal.world, _store_of(refusal, named)
    assert found is not None
    world.stop()
    world.once.pop("tx.onDisagreement", None)
    world.job = replace(world.job, store=found)
    world.undo.clear()


def _go_on_where_the_sink_is(refusal: Refusal) -> None:
    """Looks where in the topics that ends what is there, and names that."""
    world, held = refusal.world, refusal.table.newest
    world.rivals.clear()
    there = set(world.records())
    for stream in world.job.streams:
        positions = {
            p: max(
                (at + 1 for at, n in world.brokers.log(p).numbered() if n in there),
                default=0,
            )
            for p in world.brokers.partitions()
            if p.topic in stream.topics
        }
        topics = world.brokers.topics_
        ids = {name: topics[name].topic_id for name in stream.topics}
        ledger = Ledger(world.databases[world.job.store].store(stream.tx_id))
        epoch = ledger.acquire()
        is_numbering = stream is world.job.streams[0]
        while is_numbering and epoch < held.epoch:
            epoch = ledger.acquire()
        txid, numbering = (held.txid, held.numbering) if is_numbering else (0, "")
        state = ledger.load()
        ledger.adopt(epoch, moved(state, positions, ids, 0, txid), numbering)
        if is_numbering and state.query:
            ledger.describe(epoch, replace(state.query, numberings=()))
    world.new_checkpoint()


def _give_the_sink_a_new_name(refusal: Refusal) -> None:
    """All is read again, into another one; the former one is given up."""
    world = refusal.world
    where, _ = world.job.sink
    name = f"sink after {world.seen['steps']}"
    world.job = replace(world.job, sink=(where, name))
    world.sinks = {world.job.sink}
    world.plain = {}  # what was written without tx.id is in the former one
    world.undo.clear()
    world.copies, world.backup = [], None


def _set_offsets(refusal: Refusal) -> None:
    """As the commands that are printed: which depend on what the sink has."""
    world, text = refusal.world, refusal.text
    world.rivals.clear()
    has_it, *has_it_not = re.split(r"If it has not", text)
    chosen = has_it
    if has_it_not and not refusal.is_in_sink:
        (chosen,) = has_it_not
    for id_, given in re.findall(r"--id (\w+) .*?--offsets '(.*?)'", chosen):
        set_offsets(world.databases[world.job.store].store(id_), given)
    world.new_checkpoint()


def _begin_anew(refusal: Refusal) -> None:
    """Other ids, another sink: all is read again."""
    world = refusal.world
    _give_the_sink_a_new_name(refusal)
    streams = tuple(replace(s, tx_id=f"{s.tx_id}x") for s in world.job.streams)
    world.job = replace(world.job, streams=streams)
    world.rivals.clear()
    world.new_checkpoint()
    world.left = []


def _use_the_former_checkpoint(refusal: Refusal) -> None:
    world = refusal.world
    world.left, world.checkpoint = world.left[:-1], world.left[-1]
    world.stop()


def _may_go_back(refusal: Refusal) -> bool:
    world = refusal.world
    return bool(world.left) and world.left[-1].name not in world.refused


def _ignore_batch_ids(refusal: Refusal) -> None:
    refusal.world.stop()
    refusal.world.once["tx.sinkBatchIds"] = "ignored"


def _use_a_new_folder(refusal: Refusal) -> None:
    """With a new checkpoint, as the text says."""
    world = refusal.world
    word = re.search(r"tx\.sinkBatchIds=(forgotten@\d+)", refusal.text)
    world.job = replace(world.job, sink=(0, f"folder{world.seen['steps']}"))
    world.sinks = {world.job.sink}
    world.rivals.clear()
    world.new_checkpoint()
    world.left = []  # they are of the former folder
    world.checkpoint_copy = None
    if word is not None:
        world.once["tx.sinkBatchIds"] = word[1]


def _newest_of_the_sink(refusal: Refusal) -> Checkpoint | None:
    """The checkpoint with the sink's newest batch, if it is kept and another one."""
    world = refusal.world
    newest = max(world.folders.get(world.job.sink[1], {}), default=-1)
    kept = [c for c in world.left if max(c.offsets, default=-1) >= newest]
    return kept[-1] if kept and newest >= 0 else None


def _use_the_newest_of_the_sink(refusal: Refusal) -> None:
    world, found = refusal.world, _newest_of_the_sink(refusal)
    assert found is not None
    world.stop()
    world.once.pop("tx.onDisagreement", None)
    world.left.remove(found)
    world.checkpoint = found


def _read_both(refusal: Refusal) -> None:
    """The former topics, too: of the source whose id the error names."""
    world = refusal.world
    named = re.search(r": subscribe=(\S+)\. ", refusal.text)
    assert named is not None
    topics, of_id = tuple(named[1].split(",")), refusal.error.fields["id"]
    world.job = replace(
        world.job,
        streams=tuple(
            replace(s, topics=topics) if s.tx_id == of_id else s
            for s in world.job.streams
        ),
    )


WAYS = (
    Way("the former topics, too", r"start it with (both|the former)", _read_both),
    Way(
        "the batch ids are ignored",
        r"set tx\.sinkBatchIds=ignored",
        _ignore_batch_ids,
        may=lambda refusal: not refusal.world.job.remembers,
        is_first=True,
    ),
    Way(
        "a new folder",
        r"new, empty output\s+folder",
        _use_a_new_folder,
        may=lambda refusal: (
            refusal.world.job.remembers
            and refusal.error.error_class == "KAFKA_TX_BATCH_IDS_AGAIN"
        ),
        is_first=True,
    ),
    Way(
        "the sink's newest checkpoint",
        r"If you still have the newest checkpoint of this sink, start with it",
        _use_the_newest_of_the_sink,
        may=lambda refusal: (
            refusal.world.job.remembers and _newest_of_the_sink(refusal) is not None
        ),
        is_first=True,
    ),
    Way(
        "the former checkpoint",
        r"Start the query with the checkpointLocation and the sources",
        _use_the_former_checkpoint,
        may=_may_go_back,
        is_first=True,
    ),
    _set_back("tx.id"),
    _set_back("tx.store"),
    _decide("checkpoint"),
    _decide("store"),
    Way(
        "new checkpoint",
        r"(?<!not )start with a\s+new checkpointLocation",
        lambda refusal: refusal.world.new_checkpoint(),
        may=_may_leave_the_checkpoint,
    ),
    Way(
        "the checkpoint's store",
        r"[Ss]et tx\.store to the store of this checkpoint",
        lambda refusal: _use_the_store(refusal, refusal.world.checkpoint.numbering()),
        may=_may_use_the_store_of_the_checkpoint,
        is_first=True,
    ),
    Way(
        "the sink's store",
        r"set tx\.store right; `kafka-tx\s+status`",
        lambda refusal: _use_the_store(refusal, refusal.table.newest.numbering),
        may=lambda refusal: (
            _store_of(refusal, refusal.table.newest.numbering) is not None
        ),
        is_first=True,
    ),
    Way(
        "speculation off",
        r"Start the SparkContext .* with false",
        _switch_speculation_off,
    ),
    Way(
        "the parts that are named",
        r"set that again for one run",
        _use_the_parts_that_are_named,
        is_first=True,
    ),
    Way("offsets set", r"--offsets '", _set_offsets, may=_may_set_offsets),
    Way(
        "the sink's checkpoint",
        r"start with the newest one and\s+tx\.onDisagreement=checkpoint",
        _start_with_that_checkpoint,
        may=lambda refusal: _checkpoint_of_the_sink(refusal) is not None,
        is_first=True,
    ),
    Way(
        "go on where the sink is",
        r"offsets set --numbering",
        _go_on_where_the_sink_is,
        may=lambda refusal: (
            refusal.world.job.door == "query" and _holds_all_of_its_txid(refusal)
        ),
    ),
    Way(
        "remove the store that was left",
        r"remove it with `kafka-tx offsets reset",
        _remove_the_store_left,
        may=_has_left_a_store,
        is_first=True,
    ),
    Way(
        "new sink",
        r"give its sinks new names",
        _give_the_sink_a_new_name,
        may=lambda refusal: refusal.world.job.door == "topology",
    ),
    Way(
        "begin anew",
        r"begin anew: give each source another tx\.id",
        _begin_anew,
        may=_may_begin_anew,
    ),
    Way(
        "start again",
        r"start a query again|continues from there when you start it again",
        lambda refusal: refusal.world.stop(),
        may=lambda refusal: (
            refusal.world.job.door == "query" or _sink_is_beside(refusal)
        ),
    ),
    Way(
        "put the sink back",
        r"restore these sinks to the same time first",
        _put_sink_back,
        may=_may_put_the_sink_back,
    ),
    Way(
        "empty the sink",
        r"empty its sinks first",
        _empty_sink,
        may=lambda refusal: refusal.world.job.door == "topology",
    ),
    Way(
        "the mode that is named",
        MODE,
        _use_the_mode,
        may=_may_change_the_mode,
        is_first=True,
    ),
    Way(
        "an opaque spout",
        r"an opaque spout under the same id",
        _use_the_mode,
        may=lambda refusal: refusal.world.job.is_opaque,
    ),
    Way(
        "put all back",
        r"copies that were made together",
        _put_all_back,
        may=lambda refusal: refusal.world.backup is not None,
    ),
)
"""What texts name, in no order."""
