"""A store older than the checkpoint: the sinks in its database say what is right."""

import pyarrow as pa
import pytest
import sqlalchemy as sa

from kafka_tx.errors import CheckpointDisagreesError, StateLostError
from kafka_tx.model import TransactionAttempt
from kafka_tx.options.source import parse_source
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.questions import Question
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.progress import _left
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Ledger
from tests.conformance.rewinding import Rewound

BOTH = pytest.mark.parametrize("mode", ["transactional", "opaque"])


class World:
    """A query with its checkpoint, and its store and map in one database."""

    def __init__(self, cluster, clock, url, mode):
        self.cluster, self.clock, self.url, self.mode = cluster, clock, url, mode
        self.kind = OpaqueMap if mode == "opaque" else TransactionalMap
        self.maps = url
        self.ends, self.produced, self.batches = [], 0, 0
        self.database = Rewound(url)

    def start(self, **more):
        """A new run, in another process than the last one."""
        _left.clear()
        options = {
            "kafka.bootstrap.servers": "b:9092",
            "subscribe": "t",
            "startingOffsets": "earliest",
            "tx.id": "job",
            "tx.mode": self.mode,
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        config = parse_source(options, streaming=True)
        assert config.transactions is not None
        ledger = Ledger(SqlStore(self.url, "job"))
        self.planner = TransactionalMicroBatches(
            config, config.transactions, self.cluster, self.clock, ledger
        )
        return self

    def batch(self, *, finishes=True):
        """One batch as Spark runs it; its commit log may never hear of it."""
        self.produced += 10
        self.cluster.set(0, 0, self.produced)
        start = self.ends[-1] if self.ends else self.planner.initial()
        end = self.planner.latest(start, everything=True)
        self.write(start, end)
        if finishes:
            self.ends.append(SourceOffset.from_json(end.to_json()))

    def write(self, start, end):
        self.batches += 1
        rows = self.planner.ranges(start, end)
        answer = self.planner.number(Question("q", self.batches, start, end))
        attempt = TransactionAttempt.of(
            answer.txid, epoch=answer.epoch, number=self.batches
        )
        attempt = self.named(attempt)
        table = pa.table({"key": ["all"], "value": [sum(map(len, rows))]})
        self.map.update(attempt, table)

    def named(self, attempt):
        numbering = Ledger(SqlStore(self.url, "job")).load().numbering
        return TransactionAttempt(
            attempt.txid,
            attempt.attempt_id,
            source="job",
            numbering=numbering,
            mode=self.mode,
        )

    @property
    def map(self):
        return self.kind(self.maps, "totals")

    def total(self):
        return self.map.get(["all"])["all"]

    def refused(self, **more):
        with pytest.raises(CheckpointDisagreesError) as error:
            self.start(**more).batch()
        return str(error.value)


@pytest.fixture
def world(cluster, clock, tmp_path):
    made = []

    def make(mode):
        cluster.set(0, 0, 0)
        made.append(World(cluster, clock, f"sqlite:///{tmp_path}/both.db", mode))
        return made[-1].start()

    yield make
    for each in made:
        each.database.close()


@BOTH
def test_a_living_query_stops_before_its_map_is_written_over_a_gap(world, mode):
    job = world(mode)
    for _ in range(3):
        job.batch()
    job.database.copy()
    for _ in range(3):
        job.batch()

    job.database.put_back()

    with pytest.raises(StateLostError, match="start a query again: it compares"):
        job.batch()
    assert job.total() == 30


@BOTH
@pytest.mark.parametrize("finishes", [True, False])
def test_what_went_back_as_a_whole_goes_on_where_the_store_is(world, mode, finishes):
    job = world(mode)
    for _ in range(3):
        job.batch()
    job.database.copy()
    for _ in range(3):
        job.batch()
    job.batch(finishes=finishes)
    job.database.put_back()
    assert job.total() == 30

    for way in ({}, {"tx__onDisagreement": "checkpoint"}):
        refusal = job.refused(**way)
        assert "Set tx.onDisagreement=store for one run" in refusal
        assert "{'totals': 3}" in refusal
    run = job.start(tx__onDisagreement="store")
    run.batch()  # perhaps the one that the map has and the store has not committed
    run.batch()
    assert job.total() == job.produced
    job.start().batch()
    assert job.total() == job.produced


@BOTH
def test_records_that_alone_went_back_go_on_where_the_checkpoint_is(world, mode):
    job = world(mode)
    for _ in range(3):
        job.batch()
    engine = sa.create_engine(job.url)
    state = sa.table("kafka_tx_state", *map(sa.column, ("id", "path", "value")))
    with engine.begin() as connection:
        copy = [dict(r) for r in connection.execute(sa.select(state)).mappings()]
    for _ in range(3):
        job.batch()
    with engine.begin() as connection:
        connection.execute(sa.delete(state))
        connection.execute(sa.insert(state), copy)
    engine.dispose()

    for way in ({}, {"tx__onDisagreement": "store"}):
        refusal = job.refused(**way)
        assert "Set tx.onDisagreement=checkpoint for one run" in refusal
    job.start(tx__onDisagreement="checkpoint").batch()
    assert job.total() == job.produced


@BOTH
def test_a_map_that_is_no_longer_written_proves_nothing(world, mode, tmp_path):
    job = world(mode)
    job.batch()
    job.maps = f"sqlite:///{tmp_path}/other.db"
    for _ in range(3):
        job.batch()
    job.database.copy()
    for _ in range(2):
        job.batch()
    job.database.put_back()

    refusal = job.refused()
    assert "{'totals': 1}" in refusal
    assert "Txid 6 or later: set tx.onDisagreement=checkpoint" in refusal
    assert "A lower txid counts as the store's" in refusal
    assert "Leave out sinks that the query no longer writes" in refusal
    job.start(tx__onDisagreement="checkpoint").batch()
    assert job.total() == job.produced - 10  # the first batch is in the former map


def test_sinks_that_are_at_neither_are_not_written(world):
    job = world("transactional")
    copies = []
    for _ in range(3):
        job.batch()
        job.batch()
        job.database.copy()
        copies.append(dict(job.database._rows))
    early, late, _ = copies
    ours = ("kafka_tx_state", "kafka_tx_owner")
    job.batch()
    job.batch()
    job.database._rows = late | {name: early[name] for name in ours}
    job.database.put_back()

    for side in ("error", "store", "checkpoint"):
        refusal = job.refused(tx__onDisagreement=side)
        assert "whole database from one copy" in refusal
    job.database._rows = copies[-1]
    job.database.put_back()
    assert "tx.onDisagreement=store" in job.refused()
    run = job.start(tx__onDisagreement="store")
    run.batch()
    run.batch()
    assert job.total() == job.produced
