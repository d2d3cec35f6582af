"""A query without ``tx.id`` in the world of the others: Spark's checkpoint knows all.

Its sink goes by Spark's number of the batch and takes an earlier try of it back, so
that the checkpoint alone decides whether a record counts once.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_tx.options.source import parse_source
from tests.properties.simulated_query import Query
from tests.properties.simulated_source import World


class PlainWorld(World):
    """One checkpoint, its topics, its sink, and runs on it."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__("opaque", fails=fails)

    def start(self) -> Query:
        """A run on the checkpoint, under what the operator set for one run."""
        options = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "a,b",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "5",
            "failOnDataLoss": "true" if self.fails else "false",
        }
        config = parse_source(options | self.once, streaming=True)
        self.query = Query(
            config, self.brokers, None, self.checkpoint, self.sink, self.clock
        )
        return self.query

    def run_out(self) -> None:
        """A run that ends by itself, as a schedule starts one."""
        query = self.start()
        brokers = self.brokers
        there = {n for p in brokers.partitions() for n in brokers.log(p).records}
        query.planner.prepare_available_now()
        while not query.is_idle and query.step():
            pass
        self.query = None
        if query.error is not None:
            self.recover(query.error)
            return
        self.seen["bounded runs"] += 1
        unread = there - brokers.gone - set(self.sink.records())
        assert not unread, f"a bounded run ended without {sorted(unread)}"


ACTIONS: tuple[tuple[Callable[..., None], tuple[int, ...]], ...] = (
    *[(PlainWorld.step, ())] * 12,
    *[(PlainWorld.produce, (8, 9))] * 3,
    *[(PlainWorld.kill, ())] * 2,
    *[(PlainWorld.make_anew, (8, 7))] * 2,
    (PlainWorld.run_out, ()),
    (PlainWorld.lose_commit_entry, ()),
    (PlainWorld.trim, (8, 6)),
    (PlainWorld.lose_leaders, (2,)),
    (PlainWorld.grow, (8,)),
)


def run(world: PlainWorld, data: bytes) -> None:
    """Each byte is an event or a step of the run."""
    numbers = iter(data)
    for number in numbers:
        action, sizes = ACTIONS[number % len(ACTIONS)]
        given = [next(numbers, 0) % size for size in sizes]
        if action.__name__ == "make_anew":
            given[1] -= 3  # fewer, as many, more
        action(world, *given)
        world.check()
