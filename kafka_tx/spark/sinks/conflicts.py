"""Errors of a table's format that say that another commit came first (driver)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kafka_tx.sinks.table_writes import OvertakenError


def conflict_in(error: Exception, *classes: str) -> str:
    """The text of the cause that is of one of these Java classes; empty: none is.

    A name that ends with a dot is that of a package.
    """
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:  # Spark Connect only names the class
        text = str(error)
        return text.partition("\n")[0] if any(f"({c}" in text for c in classes) else ""
    while cause is not None:
        if cause.getClass().getName().startswith(classes):
            return str(cause.getMessage())
        cause = cause.getCause()
    return ""


@contextmanager
def overtaken(*classes: str) -> Iterator[None]:
    """Raise OvertakenError for an error that has a ``conflict_in`` it."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        conflict = conflict_in(error, *classes)
        if not conflict:
            raise
        raise OvertakenError(conflict) from error
