"""Whether a checkpoint goes on where the store is."""

from __future__ import annotations

import pytest

from kafka_tx.config import TransactionsConfig
from kafka_tx.model import TopicPartition
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.agreement import agrees
from kafka_tx.transactions.ledger_records import Committed

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [({P0: 5, P1: 3}, True), ({P0: 5}, False), ({P0: 5, P1: 2}, False)],
    ids=["all the same", "one is missing", "one differs"],
)
def test_without_a_txid_all_that_is_stored_must_be_there(positions, expected):
    stored = Committed(4, {P0: 5, P1: 3})

    found = agrees(
        TransactionsConfig(id="orders"), "n", SourceOffset(positions), stored, None
    )

    assert found is expected
