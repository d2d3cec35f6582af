"""A table of a lakehouse, drivers that write batches to it, and people, in memory.

Each version of the table holds the txids of its rows. A format decides which evidence
of txids outlives a rollback, a clone, or the expiry of versions.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_tx.errors import FencedError, StateLostError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks import table_writes
from kafka_tx.sinks.table_writes import (
    NEVER,
    Commit,
    Floor,
    OvertakenError,
    Snapshot,
    write_batch,
)
from kafka_tx.testing import Crash
from tests.conformance.sink_suite import attempt

FOREIGN = 0
"""What rows of other writers stand for in a version."""


@dataclass
class Version:
    number: int
    parent: int | None
    rows: tuple[int, ...]
    attempt: TransactionAttempt | None = None
    adds: bool = False
    is_expired: bool = False


@dataclass
class Lake:
    """One table: its versions, the newest one, and what stays beside them."""

    versions: dict[int, Version] = field(default_factory=dict)
    head: int | None = None
    last: int = 0
    removed: set[int] = field(default_factory=set)
    """Txids whose rows a rollback has removed."""
    is_forgetful: bool = False
    """Whether it keeps no former metadata: people roll back no such table."""
    unsafe: set[int] = field(default_factory=set)
    """Txids of which no version and no floor tells any more."""

    def rows(self) -> tuple[int, ...]:
        return () if self.head is None else self.versions[self.head].rows

    def add(self, *rows: int, given: TransactionAttempt | None = None) -> Version:
        self.last += 1
        every = (*self.rows(), *rows)
        made = Version(self.last, self.head, every, given, adds=bool(rows))
        self.versions[made.number] = made
        self.head = made.number
        return made

    def readable(self) -> list[Version]:
        """The newest one and those before it that the table can tell of."""
        found, at = [], self.head
        while at is not None and not (
            self.is_forgetful and self.versions[at].is_expired
        ):
            found.append(self.versions[at])
            at = self.versions[at].parent
        return found

    def expire(self) -> None:
        for number, version in self.versions.items():
            version.is_expired |= number != self.head

    def lose(self, rows: tuple[int, ...]) -> None:
        """Note which rows the newest version will lack that has only these."""
        self.removed |= set((Counter(self.rows()) - Counter(rows)).elements())

    def seen_by(
        self, given: TransactionAttempt, head: int | None
    ) -> TransactionAttempt:
        raise NotImplementedError

    def has_another_since(self, base: int | None) -> bool:
        """Whether a commit refuses to follow this version."""
        return self.head != base

    def committed(self, made: Version) -> None:
        """A second commit of a batch, where the format needs one."""

    def hides_rollback(self, txid: int) -> bool:
        """Whether nothing shows any more that rows of this txid were removed."""
        return False

    def check_stored(self, stored: TransactionAttempt) -> None:
        """Nothing, where a rollback takes the evidence, too."""

    def roll_back(self, version: Version) -> None:
        raise NotImplementedError

    def copy(self) -> Lake:
        """The rows without evidence, in another table."""
        made = type(self)(
            last=self.last,
            removed=self.removed,
            is_forgetful=self.is_forgetful,
            unsafe=self.unsafe,
        )
        made.add(*self.rows())
        return made


@dataclass
class Iceberg(Lake):
    """A rollback goes to another version; the floor stays where it was."""

    floor: Floor | None = None

    def seen_by(self, given, head):
        snapshots = (
            Snapshot(v.number, v.parent, (v.number,), v.attempt)
            for v in self.readable()
        )
        return table_writes.last_written(snapshots, self.floor)

    def add(self, *rows, given=None):
        made = super().add(*rows, given=given)
        if given is not None:
            self.floor = Floor(given, made.number, (made.number,))
        return made

    def roll_back(self, version):
        self.lose(version.rows)
        self.head = version.number


@dataclass
class IcebergBySql(Iceberg):
    """As in Spark Connect: a commit for the rows, and then another one for the floor.

    Nothing is told of a version that has expired. A commit is refused by rows that
    others have added, and not by a compaction.
    """

    def readable(self):
        found = itertools.takewhile(lambda v: not v.is_expired, super().readable())
        return list(found)

    def expire(self):
        for version in self.readable():
            floor = self.floor.attempt.txid if self.floor else 0
            if version.attempt and version.attempt.txid > floor:
                self.unsafe.add(version.attempt.txid)
        super().expire()

    def hides_rollback(self, txid):
        has_expired = any(version.is_expired for version in self.versions.values())
        return txid in self.removed and has_expired

    def roll_back(self, version):
        super().roll_back(version)
        if not any(readable.attempt for readable in self.readable()):
            self.unsafe |= set(version.rows)

    def has_another_since(self, base):
        at = self.head
        while at != base and at is not None:
            version = self.versions[at]
            if version.adds:
                return True
            at = version.parent
        return at != base

    def add(self, *rows, given=None):
        return Lake.add(self, *rows, given=given)

    def committed(self, made):
        is_later = self.floor is None or self.floor.order <= (made.number,)
        if is_later and not made.is_expired:
            self.floor = Floor(made.attempt, made.number, (made.number,))


@dataclass
class Delta(Lake):
    """A rollback is a version more, and the txid stays for good."""

    evidence: TransactionAttempt = NEVER
    restored: dict[int, int] = field(default_factory=dict)
    """The version that a version has restored."""

    def seen_by(self, given, head):
        return self.evidence

    def add(self, *rows, given=None):
        made = super().add(*rows, given=given)
        self.evidence = given or self.evidence
        return made

    def check_stored(self, stored):
        if stored.txid not in self.rows():
            raise StateLostError("restored", store="t", id="s")

    def roll_back(self, version):
        self.lose(version.rows)
        made = self.add()
        made.rows = version.rows


class Sink:
    """The table as one batch of one driver sees it."""

    what, sink = "table 't'", ("t", "s")

    def __init__(self, world: World, driver: Driver, *, is_empty: bool) -> None:
        self._world, self._driver, self._is_empty = world, driver, is_empty
        self._lake, self._base = world.lake, world.lake.head

    def stored(self, given):
        self._world.may_happen(self._driver, "look")
        self._lake, self._base = self._world.lake, self._world.lake.head
        return self._lake.seen_by(given, self._base)

    def commit(self):
        return Commit()

    def check_stored(self, stored):
        self._lake.check_stored(stored)

    def has_rows(self):
        return not self._is_empty

    def write(self, given):
        self._world.may_happen(self._driver, "write")
        if self._is_empty:
            return False
        lake = self._world.lake
        if lake is not self._lake or lake.has_another_since(self._base):
            self._world.seen["overtaken"] += 1
            raise OvertakenError("another version")
        made = lake.add(given.txid, given=given)
        self._world.may_happen(self._driver, "commit")
        lake.committed(made)
        return True


@dataclass
class Driver:
    """A program, with what it remembers."""

    epoch: int
    left: dict = field(default_factory=dict)
    depth: int = 0


class World:
    """A source's store, a table, drivers, and what happens to them.

    Args:
        kind: The table's format.
        seed: Decides everything.
    """

    def __init__(self, kind: type[Lake], seed: int) -> None:
        self._chance = random.Random(seed)
        self.lake: Lake = kind(is_forgetful=seed % 3 == 0)
        self.seen: Counter[str] = Counter()
        self.committed, self.epoch = 0, 0
        self._empty: set[int] = set()
        self._twice: set[int] = set()
        self._disturbed = 0
        self._driver = self._started()

    def play(self, steps: int) -> Counter[str]:
        """Let batches be written while things happen; then check what is there."""
        for _ in range(steps):
            self.seen["steps"] += 1
            if self._chance.random() < 0.25:
                self._people()
            self._batch(self._driver)
        self._is_calm = True
        self._batch(self._driver)
        self._check()
        return self.seen

    _is_calm = False

    # --- a batch ---------------------------------------------------------------------

    def _started(self, depth: int = 0) -> Driver:
        self.epoch += 1
        return Driver(self.epoch, depth=depth)

    def _batch(self, driver: Driver) -> None:
        """Try the batch until a driver has it committed."""
        txid = self.committed + 1
        if self._chance.random() < 0.1:
            self._empty.add(txid)
        while self.committed < txid:
            try:
                self._try(driver, txid)
            except FencedError:
                assert driver.epoch < self.epoch, "the live owner was refused"
                self.seen["FencedError"] += 1
                break
            except (Crash, ConnectionError, StateLostError) as error:
                self.seen[type(error).__name__] += 1
                if str(error).startswith("[KAFKA_TX_STATE_LOST] restored"):
                    self._take_the_restoring_back(txid)
                driver = self._driver = self._started(driver.depth)
        if driver.epoch < self.epoch:
            self._driver = self._started()

    def _try(self, driver: Driver, txid: int) -> None:
        given, before = attempt(txid, epoch=driver.epoch), self._disturbed
        sink = Sink(self, driver, is_empty=txid in self._empty)
        with self._program(driver):
            wrote = write_batch(sink, given)
        self.seen[f"wrote: {wrote}"] += 1
        if driver.epoch < self.epoch:
            return  # it is fenced by the source's store
        is_known = before == self._disturbed and not self.lake.hides_rollback(txid)
        if is_known and wrote is not None:
            assert self.lake.rows().count(txid) >= 1, f"txid {txid} is not there"
        self.committed = max(self.committed, txid)

    @contextmanager
    def _program(self, driver: Driver):
        former, table_writes._left = table_writes._left, driver.left
        try:
            yield
        finally:
            table_writes._left = former

    # --- what happens in between -----------------------------------------------------

    def may_happen(self, driver: Driver, step: str) -> None:
        """A kill, a lost answer, other programs; or the driver freezes for a while."""
        if self._is_calm:
            return
        chance = self._chance.random()
        if chance < 0.04:
            raise Crash
        if chance < 0.06 and step != "look":
            raise ConnectionError
        if chance < 0.16:
            self._others()
        elif chance < 0.20 and driver.depth == 0 and driver.epoch == self.epoch:
            self._frozen(driver)
        elif chance < 0.22:
            self._roll_back()

    def _frozen(self, driver: Driver) -> None:
        """Another driver takes over and writes; then this one goes on."""
        self.seen["frozen"] += 1
        former, table_writes._left = table_writes._left, {}
        try:
            other = self._started(depth=1)
            for _ in range(self._chance.randint(1, 3)):
                self._batch(other)
                other = self._driver if self._driver.depth else other
                if other.epoch < self.epoch:
                    other = self._started(depth=1)
        finally:
            table_writes._left = former

    def _others(self) -> None:
        """Other writers, compaction, expiry: none of them touches rows of ours."""
        what = self._chance.choice(("foreign", "compacted", "expired"))
        self.seen[what] += 1
        if what == "foreign":
            self.lake.add(FOREIGN)
        elif what == "compacted":
            self.lake.add()
        else:
            self.lake.expire()

    def _people(self) -> None:
        what = self._chance.choice((self._roll_back, self._others, self._copied))
        what()

    def _roll_back(self) -> None:
        older = [v for v in self.lake.readable()[1:] if not v.is_expired]
        if not older or self.lake.is_forgetful:
            return
        self.seen["rolled back"] += 1
        self._disturbed += 1
        self.lake.roll_back(self._chance.choice(older[:4]))

    def _copied(self) -> None:
        """A clone takes the table's place, while no driver is at work in it."""
        self.seen["copied"] += 1
        self._disturbed += 1
        self._twice |= set(self.lake.rows()) & {self.committed + 1}
        self.lake = self.lake.copy()

    def _take_the_restoring_back(self, txid: int) -> None:
        """As the error says."""
        with_rows = [v for v in self.lake.versions.values() if txid in v.rows]
        self.lake.roll_back(with_rows[-1])
        self.seen["restored again"] += 1

    # --- what must hold --------------------------------------------------------------

    def _check(self) -> None:
        rows = Counter(self.lake.rows())
        for txid in range(1, self.committed + 1):
            is_unsafe = txid in self._twice or txid in self.lake.unsafe
            most = 2 if is_unsafe else 1
            assert rows[txid] <= most, f"txid {txid} is there {rows[txid]} times"
            is_excused = txid in self._empty or txid in self.lake.removed
            assert rows[txid] or is_excused, f"txid {txid} is lost"


def walk(kind: type[Lake], seed: int) -> Counter[str]:
    """The life of one world, decided by the seed."""
    world = World(kind, seed)
    try:
        return world.play(steps=20)
    except BaseException as error:
        error.add_note(f"walk({kind.__name__}, {seed})")
        raise
