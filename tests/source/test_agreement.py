"""Whether a checkpoint goes on where the store is."""

from __future__ import annotations

import pytest

from kafka_tx.config import TransactionsConfig
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark
from kafka_tx.source.agreement import Case, agrees, ahead, case_of
from kafka_tx.transactions.ledger.ledger import Committed, LedgerState

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [({P0: 5, P1: 3}, True), ({P0: 5}, False), ({P0: 5, P1: 2}, False)],
    ids=["all the same", "one is missing", "one differs"],
)
def test_without_a_txid_all_that_is_stored_must_be_there(positions, expected):
    stored = LedgerState(1, Committed(4, {P0: 5, P1: 3}), {}, "n")

    found = agrees(stored, SourceOffset(positions))

    assert found is expected


def planned(txid, end, name):
    return BatchMetadata(txid, (OffsetRange(P0, 0, end),), logged_as=name)


@pytest.mark.parametrize(
    ("unread", "last", "expected"),
    [
        (None, planned(4, 40, "4@2"), Case.AHEAD),
        (None, planned(4, 40, "4@4"), Case.APART),
        (planned(5, 50, "5@4"), None, Case.AHEAD),
        (planned(5, 55, "5@4"), None, Case.APART),
    ],
    ids=["the store went back", "and on", "and plans it again", "and plans another"],
)
def test_a_checkpoint_is_ahead_only_of_a_store_that_it_follows(unread, last, expected):
    config = TransactionsConfig(id="job")
    batches = {batch.txid: batch for batch in (last, unread) if batch}
    store = LedgerState(1, Committed(4, {P0: 40}), batches, "n")
    offset = SourceOffset({P0: 50}, TransactionMark("job", 5, 3, numbering="n"))

    assert case_of(config, store, offset, dict) is expected


@pytest.mark.parametrize(
    ("sinks", "case"),
    [
        ({}, Case.AHEAD),
        ({"old": 5}, Case.AHEAD),
        ({"old": 5, "live": 89}, Case.AHEAD),
        ({"old": 5, "live": 90}, Case.TOGETHER),
        ({"live": 91}, Case.TOGETHER),
        ({"live": 92}, Case.SCATTERED),
        ({"old": 5, "live": 100}, Case.ALONE),
    ],
)
def test_only_a_sink_that_has_the_stores_txid_tells_that_both_went_back(sinks, case):
    assert ahead(sinks, stored=90, done=100) is case
