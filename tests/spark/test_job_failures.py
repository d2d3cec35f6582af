import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from kafka_tx.errors import ReplayImpossibleError, TransactionError
from kafka_tx.model import TransactionAttempt
from kafka_tx.spark.versions.job_failures import JobLostError, job_failure

ATTEMPT = TransactionAttempt(7, 12)
CRASHED = """An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0
 failed 1 times: org.apache.spark.SparkException: Python worker exited unexpectedly
\tat org.apache.spark.api.python.BasePythonRunner"""
NO_PACKAGE = """: org.apache.spark.SparkException: Job aborted due to stage failure:
 org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1
ModuleNotFoundError: No module named 'kafka_tx'

\tat org.apache.spark.api.python.BasePythonRunner"""


def test_a_lost_worker_is_a_reason_to_replay():
    failure = job_failure(Py4JError(CRASHED), ATTEMPT)

    assert isinstance(failure, JobLostError)
    assert failure.retryable
    assert "Task 0 in stage 3.0" in str(failure)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Py4JError(NO_PACKAGE), "No module named 'kafka_tx'\nExecutors need the same"),
        (Py4JError("results (1100.0 MiB) > spark.driver.maxResultSize"), "Emit less"),
        (Py4JError("Cannot call methods on a stopped SparkContext."), "was stopped"),
        (Py4JNetworkError("Answer from Java side is empty"), "was stopped"),
        (ConnectionRefusedError(111, "refused"), "was stopped"),
        (TypeError("cannot pickle '_thread.lock' object"), "object\nWhat components"),
        (
            ValueError("a codec of yours is wrong"),
            "cannot run: a codec of yours is wrong",
        ),
    ],
)
def test_what_a_replay_cannot_mend_stops(error, text):
    failure = job_failure(error, ATTEMPT)

    assert isinstance(failure, TransactionError)
    assert not failure.retryable
    assert text in str(failure)
    assert "7:12" in str(failure)
    assert ("Executors need" in str(failure)) == ("No module" in text)


def test_an_error_of_ours_stays_what_it_is():
    error = ReplayImpossibleError("gone")

    assert job_failure(error, ATTEMPT) is error
