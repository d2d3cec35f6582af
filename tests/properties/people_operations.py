"""What people do to a job, by name: each one an event of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from kafka_tx.errors import (
    FencedError,
    OtherTopicsError,
    OwnerLivesError,
    StateLostError,
)
from kafka_tx.model import TopicPartition
from kafka_tx.transactions.layout.txid_layout import CURRENT
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.properties.people_advice import follow
from tests.properties.simulated_databases import Copy, Table
from tests.properties.simulated_log import Brokers
from tests.properties.simulated_people import KAFKA, Backup, World
from tests.properties.simulated_streams import Checkpoint, Planners, Run, Stream

Operation = Callable[[World, int], None]


def run(world: World, number: int) -> None:
    """The job goes on for some steps; what it says is done at once."""
    world.seen["positions met another cluster"] += world.is_elsewhere and _knows(world)
    world.is_elsewhere = False
    for _ in range(1 + number % 12):
        if world.refusal:
            return
        if world.step():
            follow(world)


def produce(world: World, number: int) -> None:
    world.brokers.append(world.partition(number), 1 + number // 7 % 6)


def kill(world: World, _: int) -> None:
    world.stop()


def lose_commit_entry(world: World, _: int) -> None:
    world.stop()
    newest = max(world.checkpoint.commits, default=-1)
    if (world.checkpoint.name, newest) not in world.kept_commits:
        world.checkpoint.commits.discard(newest)


# --- topics ---


def make_anew(world: World, number: int) -> None:
    """With fewer, as many, or more records."""
    partition = world.partition(number)
    length = world.brokers.log(partition).end + number // 7 % 7 - 3
    world.rivals.clear()
    if world.run is not None and world.run.is_under_way:
        return
    _again(world, partition, max(0, length))


def make_anew_under_way(world: World, number: int) -> None:
    """While a batch is planned, and its tasks may read."""
    partition = world.partition(number)
    length = world.brokers.log(partition).end + number // 7 % 7 - 3
    _again(world, partition, max(0, length))


def use_another_cluster(world: World, number: int) -> None:
    """At the same address. Its topics have these names, and records of their own."""
    world.stop()
    world.rivals.clear()
    for at, name in enumerate(sorted(world.brokers.topics_)):
        length = world.brokers.log(TopicPartition(name, 0)).end + (number + at) % 7 - 3
        _again(world, TopicPartition(name, 0), max(0, length))
    world.is_elsewhere = True


def _knows(world: World) -> bool:
    """Whether the store has positions, of a batch that is in the sink of today."""
    database = world.databases[world.job.store]
    ids = [s.tx_id for s in world.job.streams if s.tx_id in database.ids]
    is_stored = any(CURRENT in database.store(id_).read() for id_ in ids)
    return is_stored and world.held().txid > 0


def _again(world: World, partition: TopicPartition, length: int) -> None:
    partitions = len(world.brokers.topics_[partition.topic].logs)
    world.brokers.make(partition.topic, partitions)
    world.brokers.append(TopicPartition(partition.topic, 0), length)


def grow(world: World, number: int) -> None:
    topic = world.brokers.topics_[world.partition(number).topic]
    if len(topic.logs) < 3:
        topic.logs.append(type(topic.logs[0])())


def hide(world: World, number: int) -> None:
    """Only where positions are kept of what is out of sight."""
    if not world.job.has_ids:
        return
    topic = world.brokers.topics_[world.partition(number).topic]
    topic.is_hidden = not topic.is_hidden


def trim(world: World, number: int) -> None:
    world.brokers.trim(world.partition(number), number // 7 % 5)


def elect(world: World, number: int) -> None:
    """Another leader, unclean if records are lost: others may take their offsets.

    While a batch is under way, also one of two sources: before its tasks read.
    """
    partition = world.partition(number)
    made = world.brokers.topics_[partition.topic]

    def happen() -> None:
        if world.brokers.topics_.get(partition.topic) is made:
            world.brokers.elect(partition, number // 7 % 3)
            world.brokers.append(partition, number // 21 % 4)
            world.copies, world.backup = [], None  # else two disasters at once
            world.seen["leaders moved"] += 1

    if isinstance(world.run, Run) and world.run.is_under_way:
        world.brokers.before_reading.append(happen)
    else:  # the attempts of a topology may be under way, too
        happen()


# --- names, places and settings ---


def rename_id(world: World, number: int) -> None:
    """Of a job that has written: else nothing anywhere knows the former one.

    A topology is known by its sink alone, so that is the one that it always had.
    """
    former, (first, *others) = world.job, world.job.streams
    if not first.tx_id or not world.held().txid:
        return
    if former.door == "topology" and len(world.sinks) > 1:
        return
    world.stop()
    renamed = replace(first, tx_id=f"{first.tx_id}{number % 3}")
    world.job = replace(former, streams=(renamed, *others))
    _can_set_back(world, "tx.id", former)


def run_without_id(world: World, _: int) -> None:
    """Somebody tries without ``tx.id`` for a while, and gives it again.

    What is written then counts no txids: nothing may be under way, and neither other
    checkpoints and deployments nor copies can know of it.
    """
    job, checkpoint = world.job, world.checkpoint
    if job.kind != "one source" or world.seen["deploy twice"] or world.left:
        return
    if not world.is_well() or world.once:
        return
    if not checkpoint.offsets or not checkpoint.offsets.keys() <= checkpoint.commits:
        return
    world.once = {}
    world.forget_what_was_kept()
    world.stop()
    world.rivals.clear()
    without = tuple(replace(s, tx_id="") for s in job.streams)
    world.job = replace(job, streams=without)
    for _ in range(40):
        if world.step() or (world.run is not None and world.run.is_idle):
            break
    world.stop()
    world.job = job
    world.keep_commits()
    for _ in range(5):  # its checkpoint alone knows how far that went
        run(world, 11)


def use_another_store(world: World, _: int) -> None:
    """``tx.store`` names another place: a folder, a database, a default."""
    former = world.job
    if not world.held().txid:
        return
    world.stop()
    world.copies, world.went_back = [], None  # they are of the other one
    world.job = replace(former, store=1 - former.store)
    _can_set_back(world, "tx.store", former)


def change_the_mode(world: World, number: int) -> None:
    """Of all deployments, or of this one alone."""
    world.stop()
    if number % 2:
        world.rivals.clear()
    former = world.job
    modes = {"transactional": "opaque", "opaque": "transactional"}
    streams = tuple(replace(s, mode=modes[s.mode]) for s in former.streams)
    world.job = replace(former, streams=streams)
    _can_set_back(world, "tx.mode", former)


def subscribe_otherwise(world: World, number: int) -> None:
    """One topic less, or all of them again; where positions are kept of the rest."""
    job = world.job
    first, *others = job.streams
    theirs = {topic for stream in others for topic in stream.topics}
    every = tuple(sorted(world.brokers.topics_.keys() - theirs))
    if not job.has_ids or len(every) < 2:
        return
    world.stop()
    topics = every[number % 2 :][:1] if world.reads_all() else every
    world.job = replace(job, streams=(replace(first, topics=topics), *others))


def change_the_parts(world: World, number: int) -> None:
    """Of a Kafka sink; a bolt keeps its number while an earlier run may live."""
    if world.job.sink[0] == KAFKA:
        world.stop()
        world.rivals.clear()
        world.job = replace(world.job, parts=1 + number % 4)


def switch_speculation_on(world: World, _: int) -> None:
    if world.job.sink[0] == KAFKA:
        world.stop()
        world.job = replace(world.job, speculates=True)


def die_between_parts(world: World, number: int) -> None:
    """What is written then is half of a batch."""
    world.kafka.dies_after = number % 4


def use_another_sink(world: World, number: int) -> None:
    """Where nothing is under way, nor comes again: else a batch is in both."""
    if not world.is_well() or world.seen["deploy twice"] or world.undo:
        return
    world.stop()
    world.forget_what_was_kept()
    world.keep_commits()
    world.job = replace(world.job, sink=(world.job.sink[0], f"sink{number}"))
    world.sinks.add(world.job.sink)


def _can_set_back(world: World, what: str, former: object) -> None:
    def set_back() -> None:
        world.stop()
        world.job = former  # type: ignore[assignment]
        world.undo.clear()

    world.undo.setdefault(what, set_back)


# --- checkpoints ---


def leave_checkpoint(world: World, _: int) -> None:
    """Not while nobody knows yet that the database went back."""
    if world.job.has_ids and not world.is_hurt:
        world.new_checkpoint()


def use_a_former_checkpoint(world: World, number: int) -> None:
    if world.left and world.job.has_ids:
        world.stop()
        world.once.pop("tx.onDisagreement", None)
        former = world.left.pop(number % len(world.left))
        world.left.append(world.checkpoint)
        world.checkpoint, world.is_older_checkpoint = former, True


def copy_checkpoint(world: World, _: int) -> None:
    world.checkpoint_copy = world.checkpoint.copied()


def put_checkpoint_back(world: World, _: int) -> None:
    if world.checkpoint_copy is not None and world.job.has_ids:
        world.stop()
        world.once.pop("tx.onDisagreement", None)
        world.checkpoint = world.checkpoint_copy.copied()
        world.is_older_checkpoint = True


# --- databases ---


def back_up(world: World, _: int) -> None:
    """All that belongs together: of a job that is well, while nothing runs."""
    if not world.is_well() or world.job.sink[0] == KAFKA:
        return
    world.stop()
    world.rivals.clear()
    copies = tuple(database.copied() for database in world.databases)
    world.backup = Backup(world.job, copies, world.checkpoint.copied())


def replicate(world: World, _: int) -> None:
    """An asynchronous standby has come so far."""
    copies = tuple(database.copied() for database in world.databases)
    world.copies = [*world.copies[-3:], copies]


def put_store_back(world: World, number: int) -> None:
    """From a copy, while nothing runs; what it wrote is elsewhere."""
    if world.copies and world.job.sink[0] != world.job.store:
        world.stop()
        world.rivals.clear()
        _back(world, number)


def reset_an_id(world: World, number: int) -> None:
    """``offsets reset``: of all ids as its text says, or of one of two by mistake.

    It refuses an id that the store does not have, and then nobody empties a sink.
    """
    job = world.job
    if job.kind != "two sources" or world.is_hurt:
        return
    chosen = job.streams if number % 4 == 0 else job.streams[number % 2 :][:1]
    stores = [world.databases[job.store].store(s.tx_id) for s in chosen]
    if not all(store.read() for store in stores):
        return
    world.stop()
    world.rivals.clear()
    world.went_back = None
    for store in stores:
        store.write(store.acquire(), {}, store.read())
    if len(chosen) > 1:
        for where, table in world.sinks:
            world.databases[where].drop(table)
        world.undo.clear()
        world.forget_what_was_kept()
        world.new_checkpoint()
        world.left = []


def fail_over(world: World, number: int) -> None:
    """The database is an older one from now on, for everybody who is connected."""
    if world.copies:
        _back(world, number)


def _back(world: World, number: int) -> None:
    world.once.pop("tx.onDisagreement", None)  # that was for another contradiction
    which = number % len(world.copies)
    store = world.job.store
    world.went_back = world.copies[which]
    world.missing |= _what_is_in(world, store)
    if world.job.sink[0] == store:
        world.destroyed |= _last_write(world, world.went_back[store])
    if not any(CURRENT in s.values for s in world.went_back[store].stores.values()):
        world.destroyed |= world.missing
    world.databases[store].put_back(world.went_back[store])
    world.is_hurt = True
    del world.copies[which + 1 :]


def remove_the_database(world: World, _: int) -> None:
    """Somebody tidies up, under a living job; what was written there is gone."""
    if not world.held().txid and len(world.sinks) > 1:
        return  # the store alone remembers what is in the former sink
    if world.plain and world.job.has_ids:
        return  # what was written without ``tx.id`` is elsewhere, and nothing tells
    world.once.pop("tx.onDisagreement", None)
    world.destroyed |= world.missing | _what_is_in(world, world.job.store)
    world.databases[world.job.store].empty()
    world.went_back, world.is_hurt = None, True


def _last_write(world: World, copy: Copy) -> set[int]:
    """What nobody can know, as the guarantees say: only the newest batch is gone.

    From an older checkpoint, the one after all that went back. What an opaque replay
    had left of it for later is in Spark's log, too.
    """
    name = world.job.sink[1]
    now, then = world.held().txid, copy.tables.get(name, Table()).newest.txid
    rows = world.databases[world.job.sink[0]].tables.get(name, Table()).rows
    if world.is_older_checkpoint:
        now = min(now, then + 1)
    if then + 1 < now:
        return set()
    return {n for txid, n in rows if txid == now} | _left_for_later(world, now)


def _left_for_later(world: World, txid: int) -> set[int]:
    """What Spark's log has of a batch, and its replay, as stored, has not."""
    if world.job.door == "topology" or not world.job.has_ids:
        return set()
    left = set()
    for stream in world.job.streams:
        store = world.databases[world.job.store].store(stream.tx_id)
        batch = Ledger(store).load().planned.get(txid)
        if batch is None:
            continue
        for p, end in batch.logged.items():
            log = world.brokers.log(p).numbered()
            left |= {n for at, n in log if batch.ends()[p] <= at < end}
    return left


def _what_is_in(world: World, store: int) -> set[int]:
    """Where nothing is left that knows of it, a text says that it is lost."""
    sinks = [table for where, table in world.sinks if where == store]
    return {n for table in sinks for n in world.databases[store].records(table)}


# --- drivers ---


def deploy_twice(world: World, number: int) -> None:
    """A second deployment of the same, with a checkpoint of its own or without.

    Nobody does while a person decides: the text says that no other run may live then.
    """
    if world.job.has_ids and len(world.rivals) < 2 and not world.once:
        fresh = Checkpoint(f"rival{number}{world.seen['steps']}")
        world.rivals.append((world.job, world.started(world.job, fresh)))


def _use_the_id_by_mistake(world: World, number: int) -> None:
    """A stranger's query, on its own topic. Refused, it has changed nothing."""
    job = world.job
    if job.door != "query" or not job.has_ids:
        return
    named = job.streams[number % len(job.streams)]
    opened = world.databases[job.store].store
    before = opened(named.tx_id).snapshot()
    if not Ledger(opened(named.tx_id)).load().partitions:
        return
    brokers, mine = Brokers(), TopicPartition("mine", 0)
    brokers.make(mine.topic)
    brokers.append(mine, 3)
    streams = (Stream((mine.topic,), named.tx_id, named.mode),)
    planners = Planners(streams, brokers, world.clock, opened)
    stranger = Run(streams, planners, brokers, Checkpoint("mine"), world.never_written)
    assert not stranger.step(), "it has taken over"
    assert isinstance(stranger.error, OtherTopicsError)
    assert opened(named.tx_id).snapshot() == before
    world.seen["strangers refused"] += 1


def start_a_former_deployment(world: World, number: int) -> None:
    """With the checkpoint that it had. Refused, it has changed nothing for anybody.

    Somebody else has copied its ``tx.id``, too.
    """
    job = world.job
    _use_the_id_by_mistake(world, number)
    if job.kind != "one source" or not world.left or world.once:
        return
    checkpoint = world.left[number % len(world.left)]
    store = world.databases[job.store].store(job.streams[0].tx_id)
    before = store.snapshot()
    former = world.started(job, checkpoint)
    if former.step():
        world.left.remove(checkpoint)
        world.rivals.append((job, former))
        return
    if before.values:
        assert store.snapshot() == before, f"refused after it took over: {former.error}"
    world.seen["starts refused beside others"] += 1


def overlap_a_bounded_run(world: World, number: int) -> None:
    """A schedule starts the next run; this one lives, is frozen for a while, or died.

    One that is frozen answers too late, or when another run has its place.
    """
    job, running = world.job, world.run
    if job.kind != "one source" or world.once or not isinstance(running, Run):
        return
    (stream,) = job.streams
    store = world.databases[job.store].store(stream.tx_id)
    is_owner = running.owns(store.epoch())
    is_alive, is_late = is_owner and number % 4 > 1, is_owner and number % 4 == 1

    def thaw() -> None:
        running.answer()
        world.clock.beats = running.answer

    world.clock.beats = running.answer if is_alive else None
    world.databases[job.store].before_takeover = thaw if is_late else None
    spares = replace(stream, once={"tx.ifOwned": "refuse"})
    bounded = world.started(replace(job, streams=(spares,)), world.checkpoint)
    before = store.epoch()
    went_on, world.clock.beats = bounded.step(), None
    world.databases[job.store].before_takeover = None
    refused = isinstance(bounded.error, OwnerLivesError)
    assert refused == is_alive or is_late, f"{is_alive=}: {bounded.error}"
    if is_alive or is_late:
        assert store.epoch() == before, "the living one was fenced"
        world.seen["bounded runs refused"] += refused
        world.seen["answers too late"] += refused and is_late
    else:
        world.seen["bounded runs after a crash"] += went_on
        world.run = bounded if went_on else None
        _thaw_too_late(running, store)


def _thaw_too_late(running: Run, store: MemoryStore) -> None:
    """One that was only frozen goes on in another run's place: it changes nothing."""
    before = store.snapshot()
    with suppress(FencedError, StateLostError):
        running.answer()
    if running.owns(store.epoch()):  # the bounded run was refused before it took over
        return
    assert store.snapshot() == before, "a fenced run has answered"


def run_a_rival(world: World, number: int) -> None:
    if world.rivals:
        at = number % len(world.rivals)
        _, rival = world.rivals[at]
        for _ in range(1 + number % 7):
            world.seen["steps"] += 1
            if not rival.step():
                world.seen[f"rival: {type(rival.error).__name__}"] += 1
                del world.rivals[at]
                return


OPERATIONS: dict[str, tuple[int, Operation]] = {
    "run": (40, run),
    "produce": (16, produce),
    "kill": (4, kill),
    "lose commit entry": (2, lose_commit_entry),
    "make anew": (2, make_anew),
    "make anew under way": (2, make_anew_under_way),
    "use another cluster": (1, use_another_cluster),
    "grow": (1, grow),
    "hide": (1, hide),
    "trim": (1, trim),
    "elect": (1, elect),
    "rename id": (1, rename_id),
    "run without id": (1, run_without_id),
    "use another store": (1, use_another_store),
    "change the mode": (1, change_the_mode),
    "change the parts": (2, change_the_parts),
    "switch speculation on": (1, switch_speculation_on),
    "die between parts": (2, die_between_parts),
    "use another sink": (1, use_another_sink),
    "subscribe otherwise": (2, subscribe_otherwise),
    "leave checkpoint": (2, leave_checkpoint),
    "use a former checkpoint": (2, use_a_former_checkpoint),
    "copy checkpoint": (2, copy_checkpoint),
    "put checkpoint back": (2, put_checkpoint_back),
    "back up": (1, back_up),
    "replicate": (3, replicate),
    "put store back": (2, put_store_back),
    "fail over": (2, fail_over),
    "remove the database": (1, remove_the_database),
    "reset an id": (1, reset_an_id),
    "deploy twice": (2, deploy_twice),
    "run a rival": (4, run_a_rival),
    "start a former deployment": (2, start_a_former_deployment),
    "overlap a bounded run": (2, overlap_a_bounded_run),
}
"""By name: how often, and what."""

AROUND_FILES = (
    *(
        "run",
        "produce",
        "kill",
        "lose commit entry",
        "leave checkpoint",
        "deploy twice",
    ),
    *("use a former checkpoint", "copy checkpoint", "put checkpoint back"),
    "run a rival",
)
"""What is played around a sink that remembers Spark's batch ids."""
