"""Published files, under what drivers, clean-ups and lost answers can do."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from kafka_tx.errors import KafkaTxError
from kafka_tx.running import file_sink
from kafka_tx.transactions import publications, table_writes
from tests.properties import simulated_files
from tests.properties.rounds import SIMULATED_STEPS, is_enough
from tests.properties.simulated_files import walk

WHAT_MUST_HAPPEN = (
    *("Crash", "StateUnavailableError", "frozen", "cleaned", "clean-up killed"),
    *("expired", "FencedError", "wrote: False"),
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
    text = publications.merged(file_sink.read(folder, names))
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
