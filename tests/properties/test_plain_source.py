"""The source's planner without ``tx.id``, under what topics and drivers can do."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from kafka_tx.errors import KafkaTxError
from kafka_tx.model import OffsetRange
from kafka_tx.planning.cluster_poller import ClusterPoller
from kafka_tx.planning.log_bounds import LogPoller
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source import microbatches
from tests.properties.rounds import SIMULATED_STEPS, is_enough
from tests.properties.simulated_plain import PlainWorld, run

WHAT_MUST_HAPPEN = (
    "BrokerUnavailableError",
    "DataLossError",
    "bounded runs",
    "ranges of other topics left out",
    "topics made anew",
)


def test_every_record_counts_once_or_is_a_documented_loss():
    """A failure names the walk."""
    seen: Counter[str] = Counter()

    for seed in itertools.count():
        if is_enough(seen, SIMULATED_STEPS // 4, WHAT_MUST_HAPPEN):
            break
        seen.update(walk(seed))

    print(dict(seen.most_common()))


def walk(seed: int) -> Counter[str]:
    """The life of one world, decided by the seed."""
    chance = random.Random(seed)
    world = PlainWorld(fails=chance.random() < 0.5)
    try:
        run(world, chance.randbytes(chance.randint(50, 400)))
        world.settle()
    except BaseException as error:
        error.add_note(f"walk({seed})")
        raise
    return world.seen


def positions_decide(start, end):
    return dict(start.positions) != dict(end.positions)


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (SourceOffset, "topic_ids", property(lambda self: {})),
        (OffsetRange, "of_topic", lambda self, topic_id: self),
        (microbatches, "goes_on", positions_decide),
        (microbatches.MicroBatches, "_silent", lambda self, start, plan: []),
        (ClusterPoller, "is_unchanged", lambda self, cluster: True),
        (LogPoller, "are_still", lambda self, partitions, quiet: True),
    ],
)
def test_the_simulation_notices(monkeypatch, where, name, broken):
    """What is taken for the same topic without its id, within some known walks.

    First those that noticed something when they were last all walked.
    """
    monkeypatch.setattr(where, name, broken)

    with pytest.raises((AssertionError, KafkaTxError)):
        any(walk(seed) is None for seed in (0, 2, 160, *range(300)))
