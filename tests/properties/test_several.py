"""A query with two sources under everything that drivers and checkpoints can do."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from kafka_tx.config import Mode
from kafka_tx.errors import KafkaTxError
from kafka_tx.model import JointBatch
from kafka_tx.offsets import position_checks
from kafka_tx.source.joint_batches import JointBatches
from tests.properties.rounds import SIMULATED_STEPS, is_enough
from tests.properties.simulated_several import Checkpoint, World, run

seen: Counter[str] = Counter()

MODES: tuple[Mode, ...] = ("transactional", "opaque")

WHAT_MUST_HAPPEN = (
    *(f"checkpoint lost in a batch of both, {mode}" for mode in MODES),
    "disagreed: parted",
    "died between questions",
    "offsets taken",
    "set by hand",
    "went back",
)


@pytest.mark.timeout(max(900, SIMULATED_STEPS // 200))
def test_records_of_both_sources_count_once_or_an_error_says_what_to_do():
    """A source without ``tx.id`` loses none; a failure names the walk."""
    seen.clear()

    for number in itertools.count():
        walk(number)
        if is_enough(seen, SIMULATED_STEPS, WHAT_MUST_HAPPEN):
            break

    print(dict(seen.most_common()))


def test_a_checkpoint_that_adds_a_source_to_a_committed_batch_is_refused():
    """It wrote nothing when the batch was not finished, and is put back afterwards."""
    world = World("transactional", is_plain=True, numbers="a", first="a")

    def until(claim):
        for _ in range(100):
            if claim():
                return
            world.step()
        raise AssertionError(world.seen)

    world.is_alone = True
    world.produce(0, 3)
    until(lambda: world.query and world.query.is_idle)
    world.produce(0, 3)
    until(lambda: world.sink.newest.txid == 2)
    world.kill()
    alone, world.checkpoint, world.is_alone = world.checkpoint, Checkpoint("b"), False
    world.produce(1, 2)
    until(lambda: world.checkpoint.offsets)
    world.copy_checkpoint()
    world.kill()
    world.checkpoint, world.is_alone = alone, True
    until(lambda: world.ledger("a").load().txid == 2)

    world.restore_checkpoint()
    until(lambda: world.seen["disagreed: behind"])

    world.settle()
    assert not world.seen["ReplayDiffersError"]


@pytest.mark.all
@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (JointBatch, "is_same", lambda self, other: True),
        (JointBatches, "settle", lambda self: None),
        (JointBatches, "check_start", lambda self, start: None),
        (position_checks, "is_of_other_leader", lambda position, bounds: False),
    ],
)
def test_the_simulation_notices(monkeypatch, where, name, broken):
    """Within some hundred known walks."""
    monkeypatch.setattr(where, name, broken)

    with pytest.raises((AssertionError, KafkaTxError)):
        any(map(walk, range(300)))


def walk(seed: int) -> None:
    """The life of one world, decided by the seed."""
    chance = random.Random(seed)
    mode: Mode = chance.choice(MODES)
    numbers, first = chance.choice("ab"), chance.choice("ab")
    is_plain = chance.random() < 0.3
    world = World(mode, is_plain=is_plain, numbers=numbers, first=first)
    try:
        run(world, chance.randbytes(chance.randint(50, 400)))
        world.settle()
    except BaseException as error:
        error.add_note(f"walk({seed}) {mode} {numbers=} {first=} {is_plain=}")
        raise
    seen.update(world.seen)
