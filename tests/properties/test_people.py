"""People, time and neighbours around all that runs: nothing is lost or doubled."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import OffsetRange
from kafka_tx.source import agreement
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.transactions import admission
from tests.properties import simulated_databases
from tests.properties.people_advice import WAYS, follow
from tests.properties.people_operations import OPERATIONS
from tests.properties.rounds import SIMULATED_STEPS
from tests.properties.simulated_people import KINDS, OFF, SETTLED_AFTER, World, is_off

STEPS = max(100_000, SIMULATED_STEPS)
Script = list[tuple[str, int]]

seen: Counter[str] = Counter()


def script(seed: int, length: int = 60) -> Script:
    """What happens in a walk: names of operations, each with a number of its own."""
    chance = random.Random(f"script {seed}")
    kind = World(seed).job.kind
    names = [name for name in OPERATIONS if not is_off(name, kind)]
    weights = [OPERATIONS[name][0] for name in names]
    drawn = chance.choices(names, weights, k=chance.randint(length // 4, length))
    return [(name, chance.randrange(1_000)) for name in drawn]


def seeds() -> Iterator[int]:
    """Those whose job is played, without end."""
    return (n for n in itertools.count() if World(n).job.kind not in OFF)


def play(seed: int, what: Script) -> World:
    """Live through it, then let the job read all that is left."""
    world = World(seed)
    for name, number in what:
        world.seen[name] += 1
        OPERATIONS[name][1](world, number)
        world.check()
        if world.refusal:
            return world
    settle(world)
    return world


def settle(world: World) -> None:
    world.stop()
    world.rivals.clear()
    for topic in world.brokers.topics_.values():
        topic.is_hidden = False
    for _ in range(SETTLED_AFTER):
        if world.refusal:
            return
        if world.step():
            follow(world)
        elif world.run is not None and world.run.is_idle and not world.once:
            break
    else:
        raise AssertionError(f"never settled: {world.seen}")
    world.check_all()


def shortest(seed: int, what: Script) -> Script:
    """The same failure with fewer operations, each left out that is not needed."""
    size = max(1, len(what) // 2)
    while True:
        for at in range(0, len(what), size):
            fewer = what[:at] + what[at + size :]
            if fewer != what and _fails(seed, fewer):
                what = fewer
                break
        else:
            if size == 1:
                return what
            size = max(1, size // 2)


def _fails(seed: int, what: Script) -> bool:
    try:
        play(seed, what)
    except Exception:  # noqa: BLE001 - any failure
        return True
    return False


def walk(seed: int) -> World:
    what = script(seed)
    try:
        return play(seed, what)
    except Exception as error:
        error.add_note(f"play({seed}, {shortest(seed, what)})")
        raise


@pytest.fixture(autouse=True)
def quiet():
    """Warnings by the ten thousand are half of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(max(300, STEPS // 500))
def test_whatever_people_do_nothing_is_lost_or_doubled():
    """A failure names the operations that lead to it, and ``play`` repeats them."""
    began = time.monotonic()
    seen.clear()

    for seed in seeds():
        seen.update(walk(seed).seen)
        if seen["steps"] >= STEPS:
            break

    print(f"\n{time.monotonic() - began:.0f} s", dict(seen.most_common()))
    never = {what for what in WHAT_MUST_HAPPEN if not seen[what]}
    assert not never, f"the simulation is blind: {never} in {seen}"


WHAT_MUST_HAPPEN = (
    "CheckpointDisagreesError behind",
    "AnotherNumberingError",
    "CheckpointDisagreesError empty",
    "DataLossError",
    "FencedError",
    "ReplayImpossibleError",
    "StateLostError",
    "did: checkpoint",
    "did: new checkpoint",
    "did: new sink",
    "did: set tx.id back",
    "did: start again",
    "did: offsets set",
    "did: store",
    "rival: FencedError",
)


def test_all_that_is_switched_off_exists():
    """An entry that nobody reads would hide nothing, and look as if it did."""
    names = {*OPERATIONS, *KINDS, *(way.name for way in WAYS)}

    for entry in OFF:
        assert {*entry.split(": ")} <= names, entry


# --- a simulation that finds nothing proves nothing ---


def any_plan_of_these_ends(*given):
    *_, batch, end = given
    return not batch.spark_batch and batch.logged_ends() == dict(end.positions)


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (simulated_databases, "is_written", lambda *_, **__: False),
        (admission, "_check_plan", lambda *_: None),
        (agreement, "fits", any_plan_of_these_ends),
        (agreement, "numbering_of", lambda _: ""),
        (OffsetRange, "of_topic", lambda self, _: self),
        (TransactionalMicroBatches, "_ids", lambda self: {}),
        (TransactionalMicroBatches, "_remembered", lambda self, partition: None),
    ],
)
def test_the_simulation_notices(monkeypatch, where, name, broken):
    """Within walks that find nothing else, also of databases that go back."""
    monkeypatch.delitem(OFF, "fail over: one source", raising=False)
    monkeypatch.setattr(where, name, broken)

    with pytest.raises((AssertionError, KafkaTxError)):
        play_some(400)


def play_some(walks: int) -> None:
    for seed in itertools.islice(seeds(), walks):
        play(seed, script(seed))
