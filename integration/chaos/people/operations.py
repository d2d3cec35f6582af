"""What people do to a job on real parts: each one by name, for the jobs it can hit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from integration.chaos.lake import Table
from integration.chaos.people.jobs import Setup
from integration.chaos.people.person import Person
from integration.chaos.schedule import TABLES
from integration.cluster.waiting import wait_until

BEHIND_S = 3.0


@dataclass(frozen=True)
class Operation:
    """Something that people do.

    Attributes:
        name: For the account.
        do: Carries it out; the job may live before and after.
        fits: Whether it can hit a job that is set up so.
    """

    name: str
    do: Callable[[Person], None]
    fits: Callable[[Setup], bool] = lambda setup: True


def is_query(setup: Setup) -> bool:
    return setup.door != "topology"


def is_file(setup: Setup) -> bool:
    return setup.store != "postgresql"


def is_cut(setup: Setup) -> bool:
    """Whether its batches may be written in parts."""
    return setup.sink == "kafka" and not setup.opaque


def is_table(setup: Setup) -> bool:
    return setup.sink in TABLES


def is_delta(setup: Setup) -> bool:
    return setup.sink == "delta"


def takes_opaque(setup: Setup) -> bool:
    return not is_table(setup)


def die(person: Person) -> None:
    """The driver dies before or after it writes a batch, and is started again."""
    person.starter.dies = person.chance.choice(["before", "after"])
    time.sleep(2)
    person.starter.dies = ""


def stop(person: Person) -> None:
    person.end()


def rename_id(person: Person) -> None:
    person.change("tx.id", replace(person.setup, id=f"{person.setup.id}-v2"))


def run_without_id(person: Person) -> None:
    """A run that knows no transactions, until it has read what is there.

    What it writes counts no txids, so no batch may be under way.
    """
    setup = person.setup
    if not person.end_between_batches():
        person.note("not done: a batch was under way each time")
        return

    def write(df: object, _batch: int) -> None:
        rows = df.selectExpr("cast(value as string)").collect()  # type: ignore[attr-defined]
        person.plain.update(int(row[0]) for row in rows)

    query = (
        person.starter.read(setup, lambda _: {})
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(person.parts.work / setup.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(60)
    except Exception as error:  # noqa: BLE001 - what it says is in the account
        person.note(f"without tx.id it said {str(error)[:160]}")
    finally:
        query.stop()


def use_another_store(person: Person) -> None:
    """A job that is started from another folder, say."""
    person.change(
        "tx.store", replace(person.setup, store=f"other/{person.setup.store}")
    )
    (person.parts.work / "other").mkdir(exist_ok=True)


def change_the_mode(person: Person) -> None:
    other = {"transactional": "opaque", "opaque": "transactional"}
    mode = other[person.setup.mode]
    person.change("tx.mode", replace(person.setup, mode=mode))


def change_the_parts(person: Person) -> None:
    person.end()
    person.setup = replace(person.setup, parts=person.chance.choice([1, 2, 3]))


def leave_the_checkpoint(person: Person) -> None:
    person.new_checkpoint()


def remove_the_checkpoint(person: Person) -> None:
    person.remove_checkpoint()


def put_checkpoint_back(person: Person) -> None:
    person.copy_checkpoint()
    person.go_on()
    person.put_checkpoint_back()


def put_store_back(person: Person) -> None:
    """From a copy that is some batches older."""
    person.copy_store()
    person.go_on()
    person.put_store_back()


def remove_the_store(person: Person) -> None:
    person.remove_store()


def fail_over(person: Person) -> None:
    """To an asynchronous standby that is behind, under the living job."""
    person.parts.database.fall_behind()
    time.sleep(BEHIND_S)
    person.parts.database.fail_over()


def make_the_topic_anew(person: Person) -> None:
    """With fewer, as many or more records, while the job stands; of two the first."""
    person.go_on()
    person.end()
    _anew(person)


def make_the_topic_anew_under_it(person: Person) -> None:
    """All that was sent is read, and the job looks."""
    person.go_on()
    _anew(person)


def _anew(person: Person) -> None:
    had = len(person.parts.numbers.in_first())
    person.note(f"{had} numbers went with the topic")
    records = max(0, had + person.chance.choice([-15, 0, 15]))
    person.parts.numbers.make_anew(min(records, 200))


def deploy_twice(person: Person) -> None:
    """The same again beside it, with a checkpoint of its own."""
    fresh = replace(person.setup, checkpoint=f"{person.setup.checkpoint}-rival")
    person.rival = person.starter.start(fresh)
    time.sleep(3)


def switch_speculation(person: Person) -> None:
    """A new session, with speculation; what refuses it is started without."""
    person.end()
    person.starter.renew_session(speculation=not person.starter.speculates())


def _filled(person: Person) -> Table:
    """The table, once the job has written to it."""
    table = person.table()
    wait_until("the table has rows", table.rows)
    return table


def compact(person: Person) -> None:
    """Under the living job."""
    person.note(_filled(person).compact())


def expire(person: Person) -> None:
    """Between two batches."""
    table = _filled(person)
    person.end_between_batches()
    person.note(table.expire())


def write_beside(person: Person) -> None:
    """Another program, under the living job."""
    table = _filled(person)
    for _ in range(3):
        person.note(table.append())


def take_a_batch_back(person: Person) -> None:
    """The table goes to the version before the batch that is under way."""
    table = _filled(person)
    person.starter.dies = "after"
    try:
        wait_until("it died", lambda: not (person.run and person.run.is_alive()))
    finally:
        person.starter.dies = ""
    person.end()
    person.note(table.take_back())


def drop_the_table(person: Person) -> None:
    """Its rows are given up; the batch under way and later ones go into a new one."""
    table = _filled(person)
    person.end()
    gone = person.counts().keys() - person.parts.numbers.forgone
    person.note(f"{len(gone)} numbers went with the table")
    person.parts.numbers.forgone |= gone
    table.drop()


def go_on_in_a_clone(person: Person) -> None:
    """A copy without txids takes the place of the table, between two batches."""
    table = _filled(person)
    if not person.end_between_batches():
        person.note("not done: a batch was under way each time")
        return
    copy = f"{person.setup.table or person.setup.name}-clone"
    person.setup = replace(person.setup, table=copy)
    table.clone(person.table())
    person.go_on()
    wait_until("the clone has a txid", person.newest)


OPERATIONS = (
    Operation("dies in a batch", die, is_query),
    Operation("is stopped", stop),
    Operation("tx.id renamed", rename_id),
    Operation("run without tx.id", run_without_id, is_query),
    Operation("another store", use_another_store, is_file),
    Operation("another mode", change_the_mode, takes_opaque),
    Operation("other parts", change_the_parts, is_cut),
    Operation("checkpoint left", leave_the_checkpoint, is_query),
    Operation("checkpoint removed", remove_the_checkpoint, is_query),
    Operation("checkpoint put back", put_checkpoint_back, is_query),
    Operation("store put back", put_store_back, is_file),
    Operation("store removed", remove_the_store, is_file),
    Operation("database failed over", fail_over),
    Operation("topic made anew", make_the_topic_anew),
    Operation("topic made anew under it", make_the_topic_anew_under_it),
    Operation("deployed twice", deploy_twice),
    Operation("speculation switched", switch_speculation),
    Operation("table compacted", compact, is_table),
    Operation("table expired", expire, is_table),
    Operation("table written beside", write_beside, is_table),
    Operation("batch taken back", take_a_batch_back, is_table),
    Operation("table dropped", drop_the_table, is_table),
    Operation("table cloned", go_on_in_a_clone, is_delta),
)
"""All of them."""
