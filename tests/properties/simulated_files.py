"""A folder of published files in memory, drivers that write to it, and clean-ups.

Drivers die or freeze between any two operations on the folder, and answers are lost.
After each operation a reader looks at what is published.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from unittest import mock
from zlib import crc32

from kafka_tx.errors import FencedError, StateUnavailableError
from kafka_tx.running.file_sink import FileSink, OpaqueFileSink, clean
from kafka_tx.sinks import publications, table_writes
from kafka_tx.sinks.publications import (
    Form,
    Name,
    Publication,
    counting,
    with_schemas,
)
from kafka_tx.testing import Crash, ManualClock
from tests.conformance.sink_suite import attempt

FORM = Form(format="text")
MERGED_AT = 3
"""Few, so that files of every level are merged."""
SPARE_MS = 10
"""Above what a driver is frozen for: a clock's tick is a batch."""


@lru_cache(10_000)
def known(text: str) -> list[Publication]:
    """Those in a file."""
    lines = text.splitlines()
    return with_schemas(Publication.of_line(line, "memory") for line in lines)


def known_name(text: str) -> Name:
    name = Name.of(text)
    assert name is not None
    return name


@dataclass
class MemoryFolder:
    """Files by their names; ``step`` is called before and after each operation."""

    step: Callable[[str], None] = lambda _: None
    published: dict[Name, str] = field(default_factory=dict)
    written: dict[str, list[str]] = field(default_factory=dict)
    """Rows of the attempts' folders."""
    clock: ManualClock = field(default_factory=ManualClock)
    is_new: bool = True
    """Whether a reader may find something else than before."""
    path = "memory"

    def names(self):
        self.step("look")
        return [*self.published]

    def lines(self, name: Name):
        self.step("read")
        if name not in self.published:
            raise FileNotFoundError  # merged in between
        return self.published[name].splitlines()

    def put(self, name: Name, text: str):
        self.step("publish")
        assert name not in self.published
        self.published[name] = text
        self.is_new = True
        self.step("published")

    def remove(self, names: Sequence[Name]):
        for name in names:
            self.step("remove")
            self.published.pop(name, None)
            self.is_new = True

    def write(self, rows, name, form, options):
        self.step("write")
        self.written[str(name)] = []
        self.step("half written")
        self.written[str(name)] = list(rows)
        self.step("written")
        return ["part-0"]

    def schema(self, rows):
        """Differs from time to time, also in a replay with other rows."""
        return f"has x: {crc32(''.join(rows).encode()) % 5 == 0}"

    def strangers(self):
        return []

    def folders(self):
        self.step("list")
        return [known_name(name) for name in self.written]

    def remove_folders(self, folders: Sequence[Name]):
        for folder in folders:
            self.step("remove")
            self.written.pop(str(folder), None)
            self.is_new = True

    # --- a reader ---------------------------------------------------------------------

    def found(self) -> dict[int, tuple[str, list[str]]]:
        """The folder and the rows of each txid, as ``read_files`` finds them."""
        texts = self.published.values()
        every = [p for text in texts for p in known(text)]
        assert publications.missing(every) is None
        found = counting(every)
        for p in found:
            assert p.schema == self.schema(self.written[p.folder]), p.attempt
        return {p.attempt.txid: (p.folder, self.written[p.folder]) for p in found}


def put_in_pieces(self, name, text):
    """What a file system does that shows a file before it is whole."""
    self.step("publish")
    self.published[name] = text[: len(text) // 2]
    self.is_new = True
    self.step("half published")
    self.published[name] = text
    self.step("published")


class World:
    """A source's store, a folder, drivers, and what happens to them.

    Args:
        seed: Decides everything.
        is_opaque: Whether each try at a batch has other rows.
    """

    def __init__(self, seed: int, *, is_opaque: bool) -> None:
        self._chance = random.Random(seed)
        self._is_opaque = is_opaque
        self.seen: Counter[str] = Counter()
        self.folder = MemoryFolder(self.may_happen)
        self.committed: dict[int, list[str]] = {}
        """Rows by txid."""
        self._epoch, self._tries, self._depth, self._is_calm = 0, 0, 0, False
        self._settled: dict[int, str] = {}
        """The folder of each txid that a later one was published after."""
        self._expired = 0

    def play(self, steps: int) -> Counter[str]:
        with mock.patch.object(publications, "MERGED_AT", MERGED_AT):
            for _ in range(steps):
                self.seen["steps"] += 1
                self._batch(len(self.committed) + 1)
                if self._chance.random() < 0.1:
                    self._clean()
            self._is_calm = True
            self._batch(len(self.committed) + 1)
            self._check_rows()
        return self.seen

    def _batch(self, txid: int) -> None:
        """Drivers try until the batch is committed by one that owns the id."""
        epoch = self._started()
        while txid not in self.committed:
            try:
                rows = self._try(txid, epoch)
            except FencedError:
                assert epoch < self._epoch, "the live owner was refused"
                self.seen["FencedError"] += 1
                return
            except (Crash, StateUnavailableError, FileNotFoundError) as error:
                self.seen[type(error).__name__] += 1
                epoch = self._started()
                continue
            if epoch < self._epoch:
                return  # the store fences it
            self.committed[txid] = rows
            self.folder.clock.advance(1)

    def _started(self) -> int:
        self._epoch += 1
        return self._epoch

    def _try(self, txid: int, epoch: int) -> list[str]:
        self._tries += 1
        rows = [f"{txid}" + f"-{self._tries}" * self._is_opaque]
        kind = OpaqueFileSink if self._is_opaque else FileSink
        sink = kind(self.folder, FORM, {}, clock=self.folder.clock)
        sink.retry_ms = 0  # type: ignore[misc]
        with self._program():
            wrote = sink(rows, attempt(txid, epoch=epoch, number=self._tries))
        self.seen[f"wrote: {wrote}"] += 1
        return rows

    @contextmanager
    def _program(self):
        """What another program knows is not known here."""
        former, table_writes._left = table_writes._left, {}
        try:
            yield
        finally:
            table_writes._left = former

    # --- what happens in between ------------------------------------------------------

    def may_happen(self, step: str) -> None:
        self._check_rows()
        if self._is_calm:
            return
        chance = self._chance.random()
        if chance < 0.03:
            raise Crash
        if chance < 0.05:
            raise ConnectionError
        if chance < 0.09 and not self._depth:
            self.seen["frozen"] += 1
            self.seen[f"frozen at {step}"] += 1
            self._depth += 1
            for _ in range(self._chance.randint(1, 2 * MERGED_AT)):
                self._batch(len(self.committed) + 1)
            self._depth -= 1
        elif chance < 0.10 and self._depth < 2:
            self._clean()

    def _clean(self) -> None:
        """At any moment, also while a driver is frozen; it may be killed."""
        self._depth += 2
        keep = self._chance.choice((None, 20))
        now_ms = self.folder.clock.now_ms()
        try:
            gone = clean(self.folder, keep_ms=keep, spare_ms=SPARE_MS, now_ms=now_ms)
            self.seen["cleaned"] += bool(gone)
        except (Crash, ConnectionError, FileNotFoundError):
            self.seen["clean-up killed"] += 1
        finally:
            self._depth -= 2

    # --- what must hold ---------------------------------------------------------------

    def _check_rows(self) -> None:
        if not self.folder.is_new:
            return
        self.folder.is_new = False
        # what was merged has a level above 0
        self.seen["merged"] += any(name.level for name in self.folder.published)
        found = self.folder.found()
        first = min(found, default=1)
        assert first >= self._expired, "expired rows are back"
        self.seen["expired"] += first > self._expired > 0
        self._expired = max(first, self._expired)
        for txid, rows in self.committed.items():
            if txid >= first:
                assert found[txid][1] == rows, f"txid {txid} is {found[txid][1]}"
        assert set(found) <= {*self.committed, len(self.committed) + 1}
        for txid, (folder, _) in found.items():
            if txid < max(found):
                known = self._settled.setdefault(txid, folder)
                assert known == folder, f"the files of txid {txid} have changed"


def walk(seed: int, *, is_opaque: bool) -> Counter[str]:
    """The life of one world, decided by the seed."""
    world = World(seed, is_opaque=is_opaque)
    try:
        return world.play(steps=40)
    except BaseException as error:
        error.add_note(f"walk({seed}, is_opaque={is_opaque})")
        raise
