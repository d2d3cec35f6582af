"""Published files, under what drivers, clean-ups and lost answers can do."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import partial

import pytest

from kafka_tx.errors import AnotherNumberingError, KafkaTxError, StateCorruptedError
from kafka_tx.running import file_sink
from kafka_tx.running.file_sink import FileSink, OpaqueFileSink, clean
from kafka_tx.sinks import publications, table_writes
from kafka_tx.testing import Crash
from tests.conformance.sink_suite import SinkSuite, attempt
from tests.properties import simulated_files
from tests.properties.rounds import SIMULATED_STEPS, is_enough
from tests.properties.simulated_files import FORM, MemoryFolder, walk

WHAT_MUST_HAPPEN = (
    *("Crash", "StateUnavailableError", "frozen", "cleaned", "clean-up killed"),
    *("frozen at publish", "merged", "expired", "FencedError", "wrote: False"),
)


@pytest.mark.parametrize("is_opaque", [False, True])
def test_readers_find_each_batch_once_at_every_step(is_opaque):
    """A failure names the walk."""
    seen: Counter[str] = Counter()
    awaited = WHAT_MUST_HAPPEN[: -1 if is_opaque else None]

    for seed in itertools.count():
        if is_enough(seen, SIMULATED_STEPS // 40, awaited):
            break
        seen.update(walk(seed, is_opaque=is_opaque))

    print(dict(seen.most_common()))


def counts_the_first(every, as_of=None):
    found: dict[int, publications.Publication] = {}
    for each in sorted(every, key=lambda p: p.order):
        found.setdefault(each.attempt.txid, each)
    return list(found.values())


def removes_first(folder, names, level):
    text = publications.merged(p for n in names for p in file_sink.read(folder, n))
    folder.remove(names)
    last = max(names)
    folder.put(file_sink.name_of(last.txid, last.attempt_id, level), text)


@pytest.mark.parametrize(
    ("room", "name", "broken"),
    [
        (publications, "counting", counts_the_first),
        (file_sink, "merge", removes_first),
        (publications, "left_over", lambda folders, *_: [*folders]),
        (table_writes, "is_written", lambda given, stored, **_: False),
        (simulated_files.MemoryFolder, "put", simulated_files.put_in_pieces),
    ],
)
def test_the_simulation_notices(monkeypatch, room, name, broken):
    """What would lose or double a batch, or change its files, within known walks."""
    monkeypatch.setattr(room, name, broken)

    with pytest.raises((AssertionError, KafkaTxError, LookupError, OSError)):
        any(walk(seed, is_opaque=seed % 2 == 1) is None for seed in range(60))


@dataclass
class Files:
    """The sink of ``append_files``, on a folder in memory."""

    folder: MemoryFolder
    is_opaque: bool

    def write(self, given, rows):
        kind = OpaqueFileSink if self.is_opaque else FileSink
        return kind(self.folder, FORM, {}, clock=self.folder.clock)(rows, given)

    def dies(self, given, rows, step):
        left = itertools.count(step, -1)

        def dies_at(_):
            if next(left) == 0:
                raise Crash

        self.folder.step = dies_at
        try:
            self.write(given, rows)
        except Crash:
            return True
        finally:
            self.folder.step = lambda _: None
            table_writes._left.clear()
        return False

    def rows(self):
        return sorted(row for _, rows in self.folder.found().values() for row in rows)


class TestFilesAsSink(SinkSuite):
    @pytest.fixture
    def open_sink(self):
        table_writes._left.clear()
        return partial(Files, MemoryFolder(), self.takes_back)


class TestOpaqueFilesAsSink(TestFilesAsSink):
    takes_back = True


@pytest.fixture
def folder():
    """With four batches."""
    table_writes._left.clear()
    folder = MemoryFolder()
    for txid in (1, 2, 3, 4):
        FileSink(folder, FORM, {}, clock=folder.clock)([f"{txid}"], attempt(txid))
    return folder


def cleaned(folder):
    return clean(folder, keep_ms=None, spare_ms=0, now_ms=folder.clock.now_ms())


def test_a_clean_up_that_misses_files_which_are_merged_meanwhile_lists_again(
    folder, monkeypatch
):
    listings = [folder.names()[-1:], folder.names()]
    monkeypatch.setattr(folder, "names", lambda: listings.pop(0))

    assert cleaned(folder) == 0
    assert [*folder.found()] == [1, 2, 3, 4]


def test_a_publication_that_was_removed_is_missed_and_its_files_stay(folder):
    del folder.published[sorted(folder.published)[1]]

    with pytest.raises(StateCorruptedError, match=r"publication of txid 2.*as_of=1"):
        cleaned(folder)

    assert len(folder.written) == 4
    assert len(file_sink.published(folder, as_of=1)[1]) == 3


def test_an_opaque_replay_follows_what_its_first_try_followed(folder):
    sink = OpaqueFileSink(folder, FORM, {}, clock=folder.clock)
    sink(["other"], attempt(4, epoch=2))

    del folder.published[sorted(folder.published)[2]]
    with pytest.raises(StateCorruptedError, match="publication of txid 3"):
        cleaned(folder)


def test_a_replay_with_another_schema_changes_that_of_no_earlier_batch(folder):
    rows = ["1"], ["2"], ["3"], ["x 1"], ["5"]
    schemas = [*map(folder.schema, rows)]
    assert schemas[3] != schemas[2]
    sink = OpaqueFileSink(folder, FORM, {}, clock=folder.clock)

    for txid in (4, 5):
        sink(rows[txid - 1], attempt(txid, epoch=2))
        cleaned(folder)
        found = publications.counting(file_sink.published(folder)[1])
        assert [p.schema for p in found] == schemas[:txid]


@pytest.mark.parametrize("kind", [FileSink, OpaqueFileSink])
@pytest.mark.parametrize("epoch", [1, 3])
def test_of_two_numberings_that_publish_at_once_none_hides_the_other(epoch, kind):
    table_writes._left.clear()
    folder = MemoryFolder()
    others = [attempt(1, epoch=2, numbering="two", source="two")]

    def other_comes(step):
        if step == "publish" and others:
            assert kind(folder, FORM, {})(["b"], others.pop())

    folder.step = other_comes
    with pytest.raises(AnotherNumberingError, match="numbering two"):
        kind(folder, FORM, {})(["a"], attempt(1, epoch=epoch))

    assert [rows for _, rows in folder.found().values()] == [["b"]]


def test_two_numberings_that_both_step_back_try_again():
    table_writes._left.clear()
    folder = MemoryFolder()
    sink = FileSink(folder, FORM, {})
    other = publications.Name(1, 1, 0, "0" * 16)
    line = (
        FileSink(folder, FORM, {})
        .stage([], attempt(1, numbering="two", source="two"))
        .as_line()
    )

    def other_comes_and_goes(step):
        if step == "publish" and not seen:
            seen.append(other)
            folder.published[other] = line
        if step == "remove":
            folder.published.pop(other)

    seen = []
    folder.step = other_comes_and_goes
    assert sink(["a"], attempt(1))

    assert [rows for _, rows in folder.found().values()] == [["a"]]
