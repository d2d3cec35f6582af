"""Puts an error of kafka_tx on top of the traceback that Spark shows.

Python prints an error some thirty lines after its traceback, but the cause of an error
before it, without a traceback if the cause has none. So an error that leaves for Spark
gets a copy of itself as its first cause. An error of PySpark about an error of kafka_tx
in a task gets a copy of the latter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, TypeVar

from kafka_tx.errors import KafkaTxError

_Class = TypeVar("_Class", bound=type)
_MARK = "_is_shown_first"
_IN_A_TASK = re.compile(r"^kafka_tx\.errors\.\w+: \[([\w.]+)\] (.*)$", re.MULTILINE)


@contextmanager
def own_error_first() -> Iterator[None]:
    """Make Python print a KafkaTxError that leaves here before its traceback."""
    try:
        yield
    except KafkaTxError as error:
        kind, given = error.__reduce__()
        _put_first(error, kind(*given))
        error.keeps_cause = True
        raise
    except Exception as error:
        is_of_spark = type(error).__module__.startswith("pyspark.")
        found = _IN_A_TASK.search(str(error)) if is_of_spark else None
        if found is not None:
            copy = KafkaTxError(found[2])
            copy.error_class = found[1]
            _put_first(error, copy)
        raise


def raises_own_error_first(*names: str) -> Callable[[_Class], _Class]:
    """Class decorator: apply ``own_error_first`` to methods that Spark calls."""

    def change(kind: _Class) -> _Class:
        for name in names:
            setattr(kind, name, _raising(getattr(kind, name)))
        return kind

    return change


def _raising(method: Callable[..., Any]) -> Callable[..., Any]:
    if isgeneratorfunction(method):

        @wraps(method)
        def steps(*given: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401 - any
            with own_error_first():
                yield from method(*given, **named)

        return steps

    @wraps(method)
    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - any method
        with own_error_first():
            return method(*given, **named)

    return call


def _put_first(error: BaseException, copy: KafkaTxError) -> None:
    first = error
    while (before := _before(first)) is not None:
        first = before
    if not hasattr(first, _MARK):
        setattr(copy, _MARK, True)
        first.__cause__ = copy


def _before(error: BaseException) -> BaseException | None:
    """The error that Python prints before this one."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__
