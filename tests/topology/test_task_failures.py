import pickle

import pytest

from kafka_tx.errors import (
    ComponentError,
    ConfigError,
    FailedException,
    FetchError,
    ReplayImpossibleError,
    StateGivenUpError,
    StateUnavailableError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped
from kafka_tx.topology.run.task_failures import failure_of

ATTEMPT = TransactionAttempt(3, 9)


def users_code():
    raise ValueError("no such bucket")


def caught(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the subject of these tests
        return error
    raise AssertionError


def failure(error, is_spout=False):
    return failure_of(error, ATTEMPT, "count", 1, is_spout=is_spout)


@pytest.mark.parametrize("is_spout", [True, False])
def test_a_failed_exception_asks_for_a_replay(is_spout):
    failed = failure(FailedException("service is down"), is_spout)

    assert failed == BatchFailed(ATTEMPT, "count", 1, "service is down")


@pytest.mark.parametrize("is_spout", [True, False])
def test_a_database_that_was_lost_within_a_batch_asks_for_a_replay(is_spout):
    failed = failure(StateUnavailableError("no answer"), is_spout)

    assert isinstance(failed, BatchFailed)


def test_a_database_that_was_tried_for_long_enough_stops():
    assert isinstance(failure(StateGivenUpError("no answer")), BatchStopped)


def test_any_other_error_of_a_bolt_stops_with_its_place_and_traceback():
    stopped = failure(caught(users_code))

    assert isinstance(stopped, BatchStopped)
    error = stopped.error
    assert isinstance(error, ComponentError)
    assert (error.component, error.task, error.txid, error.attempt_id) == (
        "count",
        1,
        3,
        9,
    )
    assert str(error).startswith(
        "[KAFKA_TX_COMPONENT] component 'count', task 1, failed in txid 3 (attempt 9):"
        " ValueError: no such bucket"
    )
    assert "in users_code" in error.traceback
    assert error.cause is None
    assert pickle.loads(pickle.dumps(error)).traceback == error.traceback


def test_an_error_of_our_own_raised_in_a_bolt_is_kept_as_the_cause():
    stopped = failure(caught(lambda: (_ for _ in ()).throw(ConfigError("bad option"))))

    assert isinstance(stopped.error.cause, ConfigError)


def test_a_retryable_error_while_a_spout_reads_asks_for_a_replay():
    failed = failure(FetchError("no progress"), is_spout=True)

    assert isinstance(failed, BatchFailed)
    assert "no progress" in failed.reason


def test_a_retryable_error_in_a_bolt_stops():
    assert isinstance(failure(FetchError("no progress")), BatchStopped)


def test_records_that_are_gone_stop_with_that_very_error():
    error = ReplayImpossibleError("gone", txid=3)

    stopped = failure(error, is_spout=True)

    assert stopped.error is error
    assert error.__notes__ == ["in component 'count', task 1, attempt 3:9"]


def test_our_own_frames_are_not_part_of_the_users_traceback():
    from kafka_tx.topology.rows.schemes import FunctionScheme

    stopped = failure(
        caught(lambda: FunctionScheme(lambda _: 1 / 0, ("a",)).decode(None))
    )

    assert "ZeroDivisionError" in stopped.error.traceback
