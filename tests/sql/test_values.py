import pytest

from kafka_tx.errors import FencedError, OutOfOrderError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.values import OpaqueValue, TransactionalValue


def plus(amount):
    return lambda value: (value or 0) + amount


def test_a_transactional_value_counts_a_txid_once():
    value = TransactionalValue[int]().update(TransactionAttempt(1, 1), plus(5))

    replayed = value.update(TransactionAttempt(1, 2), plus(5))

    assert replayed == value == TransactionalValue(5, 1)
    assert value.update(TransactionAttempt(2, 3), plus(1)) == TransactionalValue(6, 2)


def test_an_opaque_value_starts_a_replay_from_what_was_before():
    value = OpaqueValue[int]().update(TransactionAttempt(1, 1), plus(5))
    value = value.update(TransactionAttempt(2, 2), plus(5))

    replayed = value.update(TransactionAttempt(2, 3), plus(1))

    assert value == OpaqueValue(10, 5, 2, 2)
    assert replayed == OpaqueValue(6, 5, 2, 3)


def test_an_opaque_removal_can_be_replayed():
    value = OpaqueValue(5, None, 1, 1).update(TransactionAttempt(2, 2), lambda _: None)

    assert value == OpaqueValue(None, 5, 2, 2)
    assert value.update(TransactionAttempt(2, 3), plus(1)).value == 6


@pytest.mark.parametrize("value", [TransactionalValue(5, 2), OpaqueValue(5, 4, 2, 2)])
def test_an_older_txid_is_out_of_order(value):
    with pytest.raises(OutOfOrderError, match="transaction 1 comes after 2") as caught:
        value.update(TransactionAttempt(1, 9), plus(1))

    assert (caught.value.txid, caught.value.stored_txid) == (1, 2)  # type: ignore[attr-defined]


def test_an_older_attempt_of_an_opaque_txid_is_fenced():
    with pytest.raises(FencedError, match="attempt 2:1 is older than attempt 2:2"):
        OpaqueValue(5, 4, 2, 2).update(TransactionAttempt(2, 1), plus(1))


@pytest.mark.parametrize("txid", [1, 2, 3])
@pytest.mark.parametrize(
    "value", [TransactionalValue(5, 2, 7), OpaqueValue(5, 4, 2, 7 * 10**12 + 3)]
)
def test_an_older_owner_is_fenced_whatever_txid_it_brings(value, txid):
    with pytest.raises(FencedError, match="is older than .*epochs 6 and 7"):
        value.update(TransactionAttempt.of(txid, epoch=6, number=9), plus(1))


def test_a_transactional_replay_makes_its_owner_the_newest():
    value = TransactionalValue(5, 2, 7)

    value = value.update(TransactionAttempt.of(2, epoch=8, number=1), plus(1))

    assert value == TransactionalValue(5, 2, 8)
