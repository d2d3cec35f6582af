from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kafka_tx.cli.main import app
from kafka_tx.kafka import topic_facts
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ledger.ledger import Committed, Ledger

if TYPE_CHECKING:
    from click.testing import Result  # of the tools; typer has its own

ORDERS = TopicPartition("orders", 0)
COMMITTED_TXID, COMMITTED_OFFSET, OPEN_END = 41, 250, 300
NUMBERING = "feedfeedfeed"


@pytest.fixture(autouse=True)
def _configs_are_not_told(monkeypatch):
    """The mock cluster has no answer to this request: wait for none."""
    monkeypatch.setattr(topic_facts, "_WITHIN_MS", 200)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command line as a user does, without a terminal."""

    def invoke(*arguments: object, input: str | None = None) -> Result:  # noqa: A002
        given = [str(a) for a in arguments]
        return CliRunner().invoke(app, given, input=input)  # type: ignore[return-value]

    return invoke


@pytest.fixture
def store(url) -> Iterator[SqlStore]:
    """Id ``orders``: txid 41 committed, 42 planned; its owner has epoch 1."""
    state = SqlStore(url, "orders")
    ledger = Ledger(state)
    epoch = ledger.acquire()
    before = Committed(txid=COMMITTED_TXID - 1, offsets={ORDERS: 200})
    ledger.adopt(epoch, before, NUMBERING)
    for txid, start, end in (
        (COMMITTED_TXID, 200, COMMITTED_OFFSET),
        (COMMITTED_TXID + 1, COMMITTED_OFFSET, OPEN_END),
    ):
        ledger.plan(epoch, BatchMetadata(txid, (OffsetRange(ORDERS, start, end),)))
    ledger.commit(epoch, COMMITTED_TXID, completed_ms=1_700_000_000_000)
    yield state
    state.close()
