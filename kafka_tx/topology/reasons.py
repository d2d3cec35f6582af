"""What is reported of an error that users' code raised, whatever it is."""

from __future__ import annotations

import pickle
from contextlib import suppress

from kafka_tx.errors import FailedException, KafkaTxError

LONGEST = 4_096
"""Bytes of a reason. Some errors hold the record that they are about."""


def cut(text: str, most: int = LONGEST) -> str:
    """The text as UTF-8 holds it, at most so many bytes; an end that is cut shows."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return data.decode()
    mark = "…".encode()
    return data[: most - len(mark)].decode(errors="ignore") + mark.decode()


def text_of(error: BaseException) -> str:
    """What an error says of itself; one that cannot say it is named all the same."""
    with suppress(Exception):
        return cut(str(error))
    return "(its text cannot be had)"


def reason_of(error: BaseException) -> str:
    """What is reported about a record that failed."""
    if isinstance(error, FailedException):
        return text_of_failed(error)
    return cut(f"{type(error).__name__}: {text_of(error)}")


def text_of_failed(error: FailedException) -> str:
    """The reason that users' code gave; it may have given anything."""
    with suppress(Exception):
        return cut(str(error.message))
    return text_of(error)


def travels(error: BaseException) -> bool:
    """Whether the error arrives whole where it is sent, pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - users' errors fail in every way
        return False
    return isinstance(error, KafkaTxError)
