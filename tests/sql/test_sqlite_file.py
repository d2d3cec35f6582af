"""The file of a SQLite database that is removed or replaced under whoever uses it."""

import shutil
import threading

import pyarrow as pa
import pytest

from kafka_tx.errors import StateCorruptedError, StateLostError
from kafka_tx.model import CommittedOffset, TopicPartition, TransactionAttempt
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout.batch_records import Committed
from kafka_tx.transactions.ledger.ledger import Ledger

P0 = TopicPartition("orders", 0)
ROWS = pa.table({"key": ["all"], "value": [1]})


class OfLedger:
    """A use of the file that can take one step after the other."""

    def __init__(self, url):
        self.ledger = Ledger(SqlStore(url, "job"))
        self.epoch, self.txid = self.ledger.acquire(), 0

    def step(self):
        self.txid += 1
        self.ledger.adopt(self.epoch, Committed(self.txid, {P0: self.txid}))

    def poll(self):
        self.ledger.load()


class OfMap:
    kind = TransactionalMap

    def __init__(self, url):
        self.map, self.txid = self.kind(url, "counts"), 0

    def step(self):
        self.txid += 1
        attempt = TransactionAttempt.of(self.txid, epoch=1, number=self.txid)
        self.map.update(attempt, ROWS)

    def poll(self):
        self.map.get(["all"])


class OfOpaqueMap(OfMap):
    kind = OpaqueMap


class OfOffsets:
    def __init__(self, url):
        self.store, self.offset = SqlOffsetStore(url, "job"), 0
        self.store.acquire()

    def step(self):
        self.offset += 1
        self.store.store({P0: CommittedOffset(self.offset)})

    def poll(self):
        self.store.load([P0])


USES = pytest.mark.parametrize("use", [OfLedger, OfMap, OfOpaqueMap, OfOffsets])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "state.db"


def files_of(file):
    return sorted(file.parent.glob(f"{file.name}*"))


@USES
def test_a_removed_file_is_noticed_by_the_next_write_and_read(use, file):
    job = use(f"sqlite:///{file}")
    job.step()
    job.step()

    for each in files_of(file):
        each.unlink()

    for call in (job.step, job.poll, job.step):
        with pytest.raises(StateLostError, match="was removed while it was in use"):
            call()
    assert not files_of(file), "nothing begins anew in its place"


@USES
def test_a_replaced_file_is_left_alone(use, file):
    job = use(f"sqlite:///{file}")
    job.step()
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    job.step()

    for each in files_of(file):
        each.unlink()
    shutil.move(copy, file)
    before = file.read_bytes()

    with pytest.raises(StateLostError, match="was replaced by another one"):
        job.step()
    assert file.read_bytes() == before


def test_every_pooled_connection_compares_its_file(file):
    store = SqlStore(f"sqlite:///{file}", "job")
    epoch = store.acquire()
    readers = [threading.Thread(target=store.read) for _ in range(4)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join()
    for each in files_of(file):
        each.unlink()
    other = SqlStore(f"sqlite:///{file}", "job")
    assert other.acquire() == epoch, "the file is a new one"

    for _ in range(6):
        with pytest.raises(StateLostError):
            store.write(epoch, {"a": "1"})

    assert other.read() == {}


def test_a_file_that_was_put_back_with_all_its_writes_goes_on(file):
    url = f"sqlite:///{file}"
    job = OfLedger(url)
    job.step()
    for each in files_of(file):
        shutil.move(each, each.with_name(f"away-{each.name}"))
    with pytest.raises(StateLostError, match="restore the newest state of the file"):
        job.step()
    job.ledger.close()

    for each in files_of(file):
        each.unlink()
    for each in files_of(file.with_name(f"away-{file.name}")):
        shutil.move(each, file.with_name(each.name.removeprefix("away-")))

    again = OfLedger(url)
    assert again.epoch == job.epoch + 1
    assert again.ledger.load().txid == 1


def test_a_damaged_file_is_put_back_with_all_its_writes(file):
    url = f"sqlite:///{file}"
    job = OfLedger(url)
    job.step()
    job.ledger.close()
    whole = file.read_bytes()
    file.write_bytes(b"x" * len(whole))
    with pytest.raises(
        StateCorruptedError, match="restore the newest state of the file"
    ):
        OfLedger(url)

    file.write_bytes(whole)

    again = OfLedger(url)
    assert again.epoch == job.epoch + 1
    assert again.ledger.load().txid == 1
