"""Reports any error of user code as a short text."""

from __future__ import annotations

import pickle
from contextlib import suppress

from kafka_tx.errors import FailedException, KafkaTxError

LONGEST = 4_096
"""Most bytes of a reason: some errors contain the record that caused them."""


def cut(text: str, most: int = LONGEST) -> str:
    """The text in at most ``most`` bytes of UTF-8; a text that was cut ends with …."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return data.decode()
    mark = "…".encode()
    return data[: most - len(mark)].decode(errors="ignore") + mark.decode()


def text_of(error: BaseException) -> str:
    """The text of an error; a fixed text if ``str(error)`` fails."""
    with suppress(Exception):
        return cut(str(error))
    return "(its text cannot be had)"


def reason_of(error: BaseException) -> str:
    """The reason that is reported for a record that failed."""
    if isinstance(error, FailedException):
        return text_of_failed(error)
    return cut(f"{type(error).__name__}: {text_of(error)}")


def text_of_failed(error: FailedException) -> str:
    """The reason from user code, which may be an object of any type."""
    with suppress(Exception):
        return cut(str(error.message))
    return text_of(error)


def travels(error: BaseException) -> bool:
    """Whether the error is a KafkaTxError that can be pickled and unpickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - users' errors fail in every way
        return False
    return isinstance(error, KafkaTxError)
