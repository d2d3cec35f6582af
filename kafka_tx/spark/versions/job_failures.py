"""Decides after a failed Spark job: replay the batch, or stop."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from kafka_tx.errors import KafkaTxError, TransactionError
from kafka_tx.model import TransactionAttempt

_STOPPED = (
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "stopped SparkContext",
    "SparkContext or SparkSession should be created first",
)
_PYTHON = "org.apache.spark.api.python.PythonException"
_TOO_LARGE = "spark.driver.maxResultSize"
_REASON = re.compile(r"Job aborted due to stage failure: (?P<reason>[^\n]*)")
_UNPICKLABLE = re.compile("(cannot|can't) pickle|PicklingError", re.IGNORECASE)
_LONGEST_REASON = 500


class JobLostError(KafkaTxError):
    """A task, a Python worker or an executor was lost: the batch may be replayed."""

    error_class = "KAFKA_TX_JOB_LOST"
    retryable = True


class SparkStoppedError(TransactionError):
    """The session was stopped, or its JVM ended: nothing can run on it any more."""

    error_class = "KAFKA_TX_SPARK_STOPPED"


def is_stopped(context: SparkContext) -> bool:
    """Whether nothing can run on it any more. Asks the JVM."""
    jvm = context._jsc
    if jvm is None:
        return True
    try:
        return bool(jvm.sc().isStopped())
    except (Py4JError, OSError):
        return True


def spark_stopped(attempt: TransactionAttempt | None = None) -> SparkStoppedError:
    """The error that ends a topology with its session."""
    return SparkStoppedError(
        "Spark was stopped, or its JVM ended, while"
        f" {f'attempt {attempt}' if attempt else 'the topology'} ran; start the"
        " topology again with a new session, it goes on where it committed.",
        txid=attempt.txid if attempt else None,
    )


def job_failure(error: Exception, attempt: TransactionAttempt) -> KafkaTxError:
    """The meaning of an exception of a Spark job.

    User code never raises through Spark: its errors come back as data. So a part of the
    job was lost (``JobLostError``), or the job can never work.
    """
    if isinstance(error, KafkaTxError):
        return error
    text = str(error)
    if _is_gone(error, text):
        return spark_stopped(attempt)
    if _TOO_LARGE in text:
        return TransactionError(
            f"attempt {attempt} sends more to the driver than {_TOO_LARGE} allows."
            " Emit less to components on the driver (aggregate before a global"
            " grouping), make batches smaller, or raise that setting.",
            txid=attempt.txid,
        )
    if _PYTHON in text or not isinstance(error, Py4JError):
        return TransactionError(
            f"the tasks of attempt {attempt} cannot run: {_last_lines(text)}"
            f"{_advice(text)}",
            txid=attempt.txid,
        )
    return JobLostError(_reason(text), txid=attempt.txid)


def _advice(text: str) -> str:
    if any(name in text for name in ("ModuleNotFoundError", "ImportError")):
        return (
            "\nExecutors need the same Python packages as the driver, kafka_tx included"
            " (spark-submit --py-files, or installed)."
        )
    if _UNPICKLABLE.search(text):
        return (
            "\nWhat components hold is pickled, and so is what they emit: make"
            " connections, locks and files in prepare(), and emit plain values."
        )
    return ""


def _is_gone(error: Exception, text: str) -> bool:
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return True
    context = SparkContext._active_spark_context
    is_blind = isinstance(error, AttributeError | AssertionError)
    if is_blind and (context is None or context._jsc is None):
        return True  # PySpark closes its session silently
    return any(sign in text for sign in _STOPPED)


def _reason(text: str) -> str:
    found = _REASON.search(text)
    return (found["reason"] if found else text)[:_LONGEST_REASON].strip()


def _last_lines(text: str) -> str:
    """The Python traceback in a Java one, or what there is."""
    python = text.partition(_PYTHON)[2].partition("\n\tat ")[0] or text
    return python[-4 * _LONGEST_REASON :].strip(": \n")
