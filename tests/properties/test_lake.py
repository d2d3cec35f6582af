"""Tables of a lakehouse, under what drivers, other programs and people can do."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from kafka_tx.errors import KafkaTxError
from kafka_tx.sinks import table_writes
from kafka_tx.sinks.table_writes import NEVER
from tests.properties.rounds import SIMULATED_STEPS, is_enough
from tests.properties.simulated_lake import Delta, Iceberg, IcebergBySql, walk

WHAT_MUST_HAPPEN = (
    *("Crash", "ConnectionError", "frozen", "foreign", "compacted", "expired"),
    *("rolled back", "copied", "StateLostError", "FencedError", "wrote: False"),
    "overtaken",
)


@pytest.mark.parametrize("kind", [Delta, Iceberg, IcebergBySql])
def test_every_batch_is_there_once_or_is_a_documented_loss(kind):
    """A failure names the walk."""
    seen: Counter[str] = Counter()

    for seed in itertools.count():
        if is_enough(seen, SIMULATED_STEPS // 4, WHAT_MUST_HAPPEN):
            break
        seen.update(walk(kind, seed))

    print(dict(seen.most_common()))


def without_floor(snapshots, floor):
    return next((s.attempt for s in snapshots if s.attempt), NEVER)


def believes_any_floor(snapshots, floor):
    return NEVER if floor is None else floor.attempt


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("last_written", without_floor),
        ("last_written", believes_any_floor),
        ("is_written", lambda given, stored, **_: False),
    ],
)
def test_the_simulation_notices(monkeypatch, name, broken):
    """What would lose or double a batch, within some known walks."""
    monkeypatch.setattr(table_writes, name, broken)

    with pytest.raises((AssertionError, KafkaTxError)):
        any(walk(Iceberg, seed) is None for seed in range(300))
