"""What a query loses with its checkpoint is said where a new one is advised."""

import pytest

from kafka_tx.config import TransactionsConfig
from kafka_tx.model import QueryShape, TopicPartition
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark
from kafka_tx.source import agreement
from kafka_tx.transactions.ledger.ledger import Committed, LedgerState

ORDERS = TopicPartition("orders", 0)
STATE = QueryShape(("job",), (), ("StateStoreSave",))
FILES = QueryShape(("job",), ("FileStreamSource[file:/in]",), ())


def test_nothing_is_lost_where_the_store_has_all_of_it():
    assert lost_with_checkpoint(QueryShape(("one", "two"))) == ""


@pytest.mark.parametrize(
    ("query", "lost"),
    [
        (STATE, "keeps state (StateStoreSave)"),
        (FILES, "FileStreamSource[file:/in], without tx.id, starts where its own"),
        (None, "a query loses its state"),
    ],
)
def test_an_older_checkpoint_is_given_up_for_a_new_one_only_with_what_that_loses(
    query, lost
):
    mark = TransactionMark("job", 3, 1, numbering="n")
    start = SourceOffset({ORDERS: 10}, mark)
    stored = LedgerState(1, Committed(5, {ORDERS: 20}), {}, "n", query)
    config = TransactionsConfig(id="job", store="sqlite:////tmp/any.db")

    case = agreement.case_of(config, stored, start, dict)
    advice = str(agreement.contradiction(config, stored, start, case, {}, 7))

    assert "start with a new checkpointLocation" in advice
    assert lost in advice


def test_no_text_says_what_is_lost_where_a_new_checkpoint_is_forbidden():
    mark = TransactionMark("job", 7, 1, numbering="n")
    start = SourceOffset({ORDERS: 30}, mark)
    config = TransactionsConfig(id="job", store="sqlite:////tmp/any.db")

    stored = LedgerState(1, Committed(5, {ORDERS: 20}), {}, "n", STATE)
    case = agreement.case_of(config, stored, start, dict)
    advice = agreement.contradiction(config, stored, start, case, {}, 7)

    assert "Do not start with a new checkpointLocation" in str(advice)
    assert "StateStoreSave" not in str(advice)
