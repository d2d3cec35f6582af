"""A query from Kafka into maps and tables of SQLite and PostgreSQL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from integration.cluster.records import Produce, Record
from integration.killed.interface import World, in_each_mode
from integration.pausing import Life, run_to_end
from integration.sinks.state_job import POINTS, Results, urls_of
from integration.sizes import size

RECORDS, PARTITIONS, KEYS = size(120, 240), 3, 17
JOB = "integration.sinks.state_job"


class StateJob:
    """The query over a topic of its own.

    A transactional one keeps its checkpoint, an opaque one has a new one each time.
    """

    def __init__(self, world: World, work: Path, *, mode: str) -> None:
        self.work, self.mode = work, mode
        self.urls = urls_of(self.work / "state.db", world.postgresql)
        name = world.topic(PARTITIONS)
        self.expected = fill(world.produce, name)
        servers = world.kafka.bootstrap_servers
        self.given = ["--servers", servers, "--topic", name, "--mode", mode]
        self.txid = 1

    def to(self, point: str) -> Life:
        self.txid += 1
        place = ("--point", point, "--txid", str(self.txid))
        return Life(JOB, self.work, [*self._given(), *place])

    def finish(self, spark: Any) -> None:
        run_to_end(JOB, spark, self.work, *self._given())

    def check(self) -> None:
        results = Results(self.urls, self.mode)
        try:
            assert check(results, self.expected) >= RECORDS // 60
        finally:
            results.close()

    def _given(self) -> list[str]:
        name = "kept" if self.mode == "transactional" else f"run{self.txid}"
        urls = [word for url in self.urls for word in ("--url", url)]
        return [*self.given, "--checkpoint", str(self.work / name), *urls]


USUAL = ()
"""The topology of ``state_topology`` meets the same two databases, in both modes as
``tests/properties/test_maps.py`` plays them."""
EVERY = in_each_mode("state", StateJob, POINTS)


def fill(produce: Produce, name: str) -> dict[str, Any]:
    """Write into a topic; what a correct job makes of it."""
    keys = [f"k{n % KEYS}" for n in range(RECORDS)]
    places = produce(name, [Record(str(n), key=key) for n, key in enumerate(keys)])
    rows = sorted((p, o, keys[n], n) for n, (p, o) in enumerate(places))
    sums: Counter[str] = Counter()
    for _, _, key, n in rows:
        sums[key] += n
    return {
        "counts": dict(Counter(keys)),
        "sums": dict(sums),
        "newest": {key: n for n, key in enumerate(keys)},
        "kept": rows,
        "replaced": rows,
    }


def check(results: Results, expected: dict[str, Any]) -> int:
    """Both databases hold what they must; return how many batches they counted."""
    dumps = results.dump()
    batches = [dump.pop("batches")["all"] for dump in dumps]
    assert dumps == [expected, expected]
    assert batches[0] == batches[1]
    found: int = batches[0]
    return found
