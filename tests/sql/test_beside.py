"""Sinks that find out that their database went back, from what is beside them."""

import re
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from kafka_tx.cli.main import app
from kafka_tx.errors import StateLostError
from kafka_tx.model import (
    BatchMetadata,
    OffsetRange,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.progress import _left
from kafka_tx.sql.store import SqlStore
from kafka_tx.sql.tables import append_rows
from kafka_tx.transactions.coordinator.actions import Initialize, StartBatch, Write
from kafka_tx.transactions.coordinator.coordinator import TransactionCoordinator
from kafka_tx.transactions.coordinator.pacing import Pacing
from kafka_tx.transactions.layout.txid_layout import Door, numbered
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ledger.ledger_reading import LedgerReader
from kafka_tx.transactions.ownership import guarded_writes
from tests.conformance.rewinding import Rewound

P0 = TopicPartition("orders", 0)
ROWS = pa.table({"key": ["all"], "value": [1]})


class Job:
    """A source and its sink, which does what each batch asks."""

    def __init__(self, store, sink, kind):
        self.store, self.kind = SqlStore(store, "job"), kind
        self.ledger, self.sink = Ledger(self.store), sink
        self.epoch, self.txid = self.ledger.acquire(), self.ledger.load().txid

    def plan(self):
        begin = self.txid * 10
        self.txid += 1
        ranges = (OffsetRange(P0, begin, begin + 10),)
        self.ledger.plan(self.epoch, BatchMetadata(self.txid, ranges))

    def write(self):
        attempt = TransactionAttempt(
            self.txid,
            self.epoch * 10**12 + self.txid,
            source="job",
            numbering=self.ledger.load().numbering,
            mode="opaque" if "opaque" in self.kind else "transactional",
        )
        self.put(attempt)

    def put(self, attempt):
        if self.kind == "table":
            append_rows(self.sink, "totals", attempt, ROWS)
        elif self.kind == "opaque table":
            append_rows(self.sink, "totals", attempt, ROWS, opaque=True)
        else:
            kind = OpaqueMap if "opaque" in self.kind else TransactionalMap
            kind(self.sink, "totals").update(attempt, ROWS)

    def batch(self):
        self.plan()
        self.write()
        self.ledger.commit(self.epoch, self.txid, 0)


class Topology:
    """A coordinator whose store and map are in one database."""

    def __init__(self, url):
        self.store, self.map = SqlStore(url, "job"), TransactionalMap(url, "totals")
        epoch = guarded_writes.take_over(self.store)
        reader = LedgerReader(self.store.url, "job", Door.TRANSACTIONAL)
        state = reader.read(numbered(self.store, epoch), epoch)
        pacing = Pacing(max_pending=1, emit_interval_ms=0)
        self.coordinator = TransactionCoordinator[Any](
            "transactional", pacing, reader, state
        )

    def starts(self, end):
        """The attempt of the next batch, which is planned now to end there."""
        actions = self.coordinator.tick(0, is_ready=True)
        while not isinstance(actions[0], StartBatch):
            (action,) = actions
            if isinstance(action, Initialize):
                plan = {"end": end}
                actions = self.coordinator.initialized(action.attempt, plan)
            else:
                actions = self.stored(action)
            actions = actions or self.coordinator.tick(0, is_ready=True)
        return actions[0].attempt

    def stored(self, write):
        assert isinstance(write, Write)
        how = write.epoch, write.put, write.delete, write.expect
        guarded_writes.write(self.store, *how)
        return self.coordinator.stored(write.write_id)

    def commits(self, attempt):
        self.coordinator.processed(attempt)
        self.map.update(attempt, ROWS)


def _newest(url):
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        return connection.scalar(sa.text("SELECT txid FROM kafka_tx_progress"))


KINDS = pytest.mark.parametrize("kind", ["map", "opaque map", "table", "opaque table"])


@pytest.fixture
def url(tmp_path):
    return lambda name: f"sqlite:///{tmp_path}/{name}.db"


def forget():
    """As another process, which did not write before."""
    _left.clear()


@KINDS
def test_nothing_is_written_over_a_gap_where_store_and_sink_went_back_together(
    url, kind
):
    job, rewound = Job(url("both"), url("both"), kind), Rewound(url("both"))
    job.batch()
    job.batch()
    rewound.copy()
    job.batch()
    job.plan()
    attempt = TransactionAttempt(
        4,
        job.epoch * 10**12 + 4,
        source="job",
        numbering=job.ledger.load().numbering,
        mode="opaque" if "opaque" in kind else "transactional",
    )

    rewound.put_back()
    forget()
    with pytest.raises(StateLostError, match="in the same database"):
        job.put(attempt)

    assert job.store.sinks(attempt.numbering) == {"totals": 2}
    again = Job(url("both"), url("both"), kind)
    again.batch()
    assert again.store.sinks(attempt.numbering) == {"totals": 3}


def test_a_batch_whose_plan_went_back_is_not_written_under_its_txid(url):
    """The txid is the first in line there, too, and soon holds other records."""
    topology, rewound = Topology(url("both")), Rewound(url("both"))
    rewound.copy()
    attempt = topology.starts(3)

    rewound.put_back()
    with pytest.raises(StateLostError, match="in the same database"):
        topology.commits(attempt)

    again = Topology(url("both"))
    other = again.starts(5)
    with pytest.raises(StateLostError, match="in the same database"):
        topology.commits(attempt)
    again.commits(other)
    assert again.map.get(["all"]) == {"all": 1}


@pytest.mark.parametrize("kind", ["map", "table"])
def test_a_batch_of_a_source_whose_plan_went_back_is_not_written(url, kind):
    job, rewound = Job(url("both"), url("both"), kind), Rewound(url("both"))
    job.batch()
    rewound.copy()
    numbering = job.ledger.load().numbering
    job.plan()

    rewound.put_back()
    with pytest.raises(StateLostError, match="in the same database"):
        job.put(TransactionAttempt(2, 10**12, source="job", numbering=numbering))


@KINDS
def test_a_process_goes_on_where_store_and_sink_went_back_together(url, kind):
    """The store beside the sink vouches for it, whatever the process remembers."""
    rewound = Rewound(url("both"))
    Job(url("both"), url("both"), kind).batch()
    rewound.copy()
    lost = Job(url("both"), url("both"), kind)
    lost.batch()

    rewound.put_back()
    again = Job(url("both"), url("both"), kind)
    again.batch()

    assert (again.epoch, _newest(url("both"))) == (lost.epoch, 2)


@KINDS
def test_a_former_store_beside_a_sink_is_removed_as_the_text_says(url, kind):
    """The job's store is elsewhere now, and counts on in the same numbering."""
    former = Job(url("former"), url("former"), kind)
    former.batch()
    known = former.ledger.load()
    assert known.committed is not None
    elsewhere = Ledger(SqlStore(url("elsewhere"), "job"))
    epoch = elsewhere.acquire(above=former.epoch)
    elsewhere.adopt(epoch, known.committed, known.numbering)
    job = Job(url("elsewhere"), url("former"), kind)
    job.plan()

    with pytest.raises(StateLostError, match="still has a former store") as error:
        job.write()

    found = re.search(r"`kafka-tx (offsets reset .*? --yes)`", str(error.value))
    assert found is not None
    assert CliRunner().invoke(app, found[1].split()).exit_code == 0
    job.write()
    job.ledger.commit(job.epoch, job.txid, 0)
    job.batch()
    assert _newest(url("former")) == 3


@KINDS
def test_an_owner_that_the_database_forgot_writes_no_more(url, kind):
    rewound = Rewound(url("both"))
    Job(url("both"), url("both"), kind).batch()
    rewound.copy()
    late = Job(url("both"), url("both"), kind)
    late.plan()
    numbering = late.ledger.load().numbering

    rewound.put_back()
    forget()

    attempt = TransactionAttempt(
        2,
        late.epoch * 10**12 + 1,
        source="job",
        numbering=numbering,
        mode="opaque" if "opaque" in kind else "transactional",
    )
    with pytest.raises(StateLostError, match="in the same database"):
        late.put(attempt)


@KINDS
def test_a_sink_that_alone_went_back_is_known_by_who_wrote_it(url, kind):
    job, rewound = Job(url("store"), url("sink"), kind), Rewound(url("sink"))
    job.batch()
    rewound.copy()
    job.batch()

    rewound.put_back()

    job.plan()
    with pytest.raises(StateLostError, match="left at txid 2 by this process and is"):
        job.write()
    forget()
    job.write()  # a new process cannot know


@KINDS
def test_a_new_owner_of_an_old_epoch_goes_on_where_store_and_sink_went_back(url, kind):
    """Two databases of one server, and a restart in the same process."""
    Job(url("store"), url("sink"), kind).batch()
    databases = [Rewound(url("store")), Rewound(url("sink"))]
    for database in databases:
        database.copy()
    job = Job(url("store"), url("sink"), kind)
    job.batch()
    job.batch()

    for database in databases:
        database.put_back()

    again = Job(url("store"), url("sink"), kind)
    assert again.epoch == job.epoch
    again.batch()
    again.batch()
    again.batch()
