"""What people do to a job, by name: each one an event of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafka_tx.model import TopicPartition
from kafka_tx.transactions.txid_layout import CURRENT
from tests.properties.people_advice import follow
from tests.properties.simulated_databases import Copy, Table
from tests.properties.simulated_people import Backup, World
from tests.properties.simulated_streams import Checkpoint

Operation = Callable[[World, int], None]


def run(world: World, number: int) -> None:
    """The job goes on for some steps; what it says is done at once."""
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


# --- names, places and settings ---


def rename_id(world: World, number: int) -> None:
    """Of a job that has written: else nothing anywhere knows the former one."""
    former, (first, *others) = world.job, world.job.streams
    if not first.tx_id or not world.held().txid:
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
    if not checkpoint.offsets.keys() <= checkpoint.commits or not checkpoint.offsets:
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
    world.copies = []  # they are of the other one
    world.job = replace(former, store=1 - former.store)
    _can_set_back(world, "tx.store", former)


def change_the_mode(world: World, _: int) -> None:
    """Of all deployments."""
    world.stop()
    world.rivals.clear()
    former = world.job
    modes = {"transactional": "opaque", "opaque": "transactional"}
    streams = tuple(replace(s, mode=modes[s.mode]) for s in former.streams)
    world.job = replace(former, streams=streams)
    _can_set_back(world, "tx.mode", former)


def use_another_sink(world: World, number: int) -> None:
    """Where nothing is under way, nor comes again: else a batch is in both."""
    if not world.is_well():
        return
    world.stop()
    world.rivals.clear()
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
    if world.job.has_ids:
        world.new_checkpoint()


def use_a_former_checkpoint(world: World, number: int) -> None:
    if world.left and world.job.has_ids:
        world.stop()
        world.once.pop("tx.onDisagreement", None)
        former = world.left.pop(number % len(world.left))
        world.left.append(world.checkpoint)
        world.checkpoint = former


def copy_checkpoint(world: World, _: int) -> None:
    world.checkpoint_copy = world.checkpoint.copied()


def put_checkpoint_back(world: World, _: int) -> None:
    if world.checkpoint_copy is not None and world.job.has_ids:
        world.stop()
        world.once.pop("tx.onDisagreement", None)
        world.checkpoint = world.checkpoint_copy.copied()


# --- databases ---


def back_up(world: World, _: int) -> None:
    """All that belongs together: of a job that is well, while nothing runs."""
    if not world.is_well():
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


def fail_over(world: World, number: int) -> None:
    """The database is an older one from now on, for everybody who is connected."""
    if world.copies:
        _back(world, number)


def _back(world: World, number: int) -> None:
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
    if world.plain and world.job.has_ids:
        return  # what was written without ``tx.id`` is elsewhere, and nothing tells
    world.destroyed |= world.missing | _what_is_in(world, world.job.store)
    world.databases[world.job.store].empty()
    world.is_hurt = True


def _last_write(world: World, copy: Copy) -> set[int]:
    """What nobody can know, as the README says: only the newest batch is gone."""
    name = world.job.sink[1]
    now, then = world.held().txid, copy.tables.get(name, Table()).newest.txid
    rows = world.databases[world.job.sink[0]].tables.get(name, Table()).rows
    return {n for txid, n in rows if txid == now} if then + 1 >= now else set()


def _what_is_in(world: World, store: int) -> set[int]:
    """Where nothing is left that knows of it, a text says that it is lost."""
    sinks = [table for where, table in world.sinks if where == store]
    return {n for table in sinks for n in world.databases[store].records(table)}


# --- drivers ---


def deploy_twice(world: World, number: int) -> None:
    """A second deployment of the same, with a checkpoint of its own or without."""
    if world.job.has_ids and len(world.rivals) < 2:
        fresh = Checkpoint(f"rival{number}{world.seen['steps']}")
        world.rivals.append((world.job, world.started(world.job, fresh)))


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
    "grow": (1, grow),
    "hide": (1, hide),
    "trim": (1, trim),
    "rename id": (1, rename_id),
    "run without id": (1, run_without_id),
    "use another store": (1, use_another_store),
    "change the mode": (1, change_the_mode),
    "use another sink": (1, use_another_sink),
    "leave checkpoint": (2, leave_checkpoint),
    "use a former checkpoint": (2, use_a_former_checkpoint),
    "copy checkpoint": (2, copy_checkpoint),
    "put checkpoint back": (2, put_checkpoint_back),
    "back up": (1, back_up),
    "replicate": (3, replicate),
    "put store back": (2, put_store_back),
    "fail over": (2, fail_over),
    "remove the database": (1, remove_the_database),
    "deploy twice": (2, deploy_twice),
    "run a rival": (4, run_a_rival),
}
"""By name: how often, and what."""
