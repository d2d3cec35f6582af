"""Small jobs that stop in the states that matter, on a store that outlives them.

Brokers and Spark are simulated. Planners, coordinators, stores and SQL sinks are real.
A job is kept by its store, its sink and what else outlives its driver: the checkpoint,
and the number of records in the topics. So a later version can go on with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from kafka_tx import assembly
from kafka_tx.errors import FencedError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.tables import append_rows
from tests.properties.simulated_log import Brokers
from tests.properties.simulated_people import TOPICS, Clock
from tests.properties.simulated_runs import TopologyRun
from tests.properties.simulated_streams import Checkpoint, Planners, Run, Stream

AT_FIRST = 7
"""Records of a topic: two batches."""
_MOST_STEPS = 2_000


class StoredJob:
    """A job: its driver may die after each step.

    Args:
        name: Of the job; begins its ids, and is that of its table.
        store: URL of the store.
        sink: URL of the database of its table.
    """

    def __init__(self, name: str, store: str, sink: str) -> None:
        self.setup = JOBS[name]
        self.name, self.table = name, f"rows_{name}"
        self._store, self._sink = store, sink
        self._opened: list[Any] = []
        self.brokers, self.clock = Brokers(), Clock()
        self.checkpoint = Checkpoint(name)
        self.produced: list[tuple[str, int]] = []
        self.written: list[int] = []
        self.run = self.started()

    def started(self) -> Run | TopologyRun:
        """Another driver."""
        streams = self.setup.streams(self.name)
        if self.setup.is_topology:
            (stream,) = streams
            read = stream.topics, stream.mode, self.brokers, self._open(stream.tx_id)
            return TopologyRun(*read, self.clock, self._write)
        planners = Planners(streams, self.brokers, self.clock, self._open)
        return Run(streams, planners, self.brokers, self.checkpoint, self._write)

    def _open(self, id_: str) -> Any:
        self._opened.append(assembly.open_store(self._store, id_))
        return self._opened[-1]

    def close(self) -> None:
        """Release connections."""
        for store in self._opened:
            store.close()

    def produce(self, count: int) -> None:
        for partition in self.brokers.partitions():
            self.brokers.append(partition, count)
            self.produced.append((partition.topic, count))

    def _write(self, attempt: TransactionAttempt, records: list[int]) -> None:
        rows = pa.table({"n": pa.array(records, pa.int64())})
        is_opaque = self.setup.mode == "opaque"
        append_rows(self._sink, self.table, attempt, rows, opaque=is_opaque)
        self.written.append(attempt.txid)

    def go_to(self, is_there: Callable[[StoredJob], bool]) -> None:
        """Take steps until the state; the driver dies there."""
        for _ in range(_MOST_STEPS):
            if not self.run.step():
                raise AssertionError(f"{self.name}: {self.run.error!r}")
            if is_there(self):
                return
        raise AssertionError(f"{self.name} never came there")

    def go_on(self, more: int = AT_FIRST) -> None:
        """Let another driver read all that there is and comes, each record once."""
        self.produce(more)
        self.run = self.started()
        self.go_to(lambda job: job.run.is_idle)
        self.check()
        self.close()

    def check(self) -> None:
        """No record is lost or doubled."""
        counts, there = Counter(self.rows()), set(self.brokers.produced)
        assert counts == Counter(there), (self.name, counts - Counter(there))

    def check_doubled(self) -> None:
        """No record is doubled; some are still to come."""
        doubled = [record for record, n in Counter(self.rows()).items() if n > 1]
        assert not doubled, (self.name, doubled)

    def rows(self) -> list[int]:
        """All that is in the sink."""
        database = sa.create_engine(self._sink)
        try:
            with database.connect() as connection:
                if not sa.inspect(connection).has_table(self.table):
                    return []
                query: Any = sa.select(sa.column("n")).select_from(sa.table(self.table))
                return [int(n) for n in connection.scalars(query)]
        finally:
            database.dispose()

    # --- what outlives a driver, beside store and sink ---

    def saved(self) -> dict[str, Any]:
        """For JSON."""
        offsets = {str(n): ends for n, ends in self.checkpoint.offsets.items()}
        commits = sorted(self.checkpoint.commits)
        return {"produced": self.produced, "offsets": offsets, "commits": commits}

    def load(self, saved: Mapping[str, Any]) -> StoredJob:
        """Take up what ``saved`` has returned."""
        for topic, count in saved["produced"]:
            (partition,) = (p for p in self.brokers.partitions() if p.topic == topic)
            self.brokers.append(partition, count)
            self.produced.append((topic, count))
        for n, ends in saved["offsets"].items():
            self.checkpoint.offsets[int(n)] = ends
        self.checkpoint.commits.update(saved["commits"])
        return self


def _planned(job: StoredJob) -> bool:
    """Spark has logged the second batch; a topology has one in flight."""
    if not job.setup.is_topology:
        return len(job.checkpoint.offsets) == 2
    return len(job.written) == 1 and bool(job.run.is_under_way)


def _written(job: StoredJob) -> bool:
    """The sink has the second batch, and the store has not."""
    return len(job.written) == 2


@dataclass(frozen=True)
class Setup:
    """How a job is set up, and where its driver dies.

    Attributes:
        until: None: before the first batch.
        sources: Number of sources; two read a topic each.
        is_fenced: Another driver takes over where the first one would die.
        reads: Other sources than those of the name.
    """

    until: Callable[[StoredJob], bool] | None
    mode: str = "transactional"
    sources: int = 1
    is_topology: bool = False
    is_fenced: bool = False
    reads: tuple[Stream, ...] = ()

    def streams(self, name: str) -> tuple[Stream, ...]:
        if self.reads:
            return self.reads
        if self.sources == 1:
            return (Stream(TOPICS, name, self.mode),)
        return tuple(Stream((t,), f"{name}-{t}", self.mode) for t in TOPICS)


JOBS = {
    "new": Setup(None),
    "planned": Setup(_planned),
    "written": Setup(_written),
    "opaque": Setup(_written, "opaque"),
    "several": Setup(_written, sources=2),
    "fenced": Setup(_planned, is_fenced=True),
    "topology_planned": Setup(_planned, is_topology=True),
    "topology_written": Setup(_written, is_topology=True),
    "topology_opaque": Setup(_written, "opaque", is_topology=True),
}
"""By name, in the states that matter."""


def made(name: str, url: str) -> StoredJob:
    """A job that has come to its state, in a new store."""
    job = StoredJob(name, url, url)
    until = job.setup.until
    if until is None:
        job.go_to(lambda _: True)
        return job
    job.produce(AT_FIRST)
    job.go_to(until)
    if job.setup.is_fenced:
        former, job.run = job.run, job.started()
        job.go_to(lambda _: len(job.checkpoint.commits) == 2)
        while former.step():
            pass
        assert isinstance(former.error, FencedError), former.error
    return job


def saved_jobs(folder: Path) -> dict[str, Any]:
    """What ``StoredJob.saved`` returned, by name."""
    found: dict[str, Any] = json.loads((folder / "jobs.json").read_text())
    return found


def go_on(folder: Path, store: str, sink: str) -> None:
    """Let each job of a set go on, exactly once, on a store that has its content."""
    for name, saved in saved_jobs(folder).items():
        StoredJob(name, store, sink).load(saved).go_on()
