"""A record to write, as all writers of this room take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_tx.errors import ConfigError
from kafka_tx.sinks.sink_parts import check_sum

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to write; a partition or timestamp of None is left to Kafka."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None

    def counted(self) -> tuple[int, int]:
        """One, and its check sum."""
        headers = self.headers or ()
        return 1, check_sum(
            *(self.topic, self.key, self.value, headers),
            *(self.partition, self.timestamp_ms),
        )

    def sum_compared(self) -> int:
        """0: a replay is compared by the check sum."""
        return 0


def checked_headers(headers: Headers | None) -> Headers | None:
    """The headers, if their names are text that UTF-8 has; else raises ConfigError.

    Half of a surrogate pair ends the process in Kafka's Python client. An iterator of a
    user's mapper is read once, here.
    """
    headers = None if headers is None else tuple(headers)
    for name, _ in headers or ():
        if not _is_utf_8(name):
            raise no_header(name)
    return headers


def checked_topic(name: str) -> str:
    """The name, if it is text that clients write whole; else raises ConfigError."""
    if not _is_utf_8(name) or "\0" in name:  # a client would end the name there
        raise no_topic(name)
    return name


def _is_utf_8(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def no_topic(name: object) -> ConfigError:
    """The error of a topic that cannot be one."""
    return ConfigError.illegal(
        "topic",
        name,
        "names of topics",
        "Correct what names it: the option, the column 'topic' or your function.",
    )


def no_header(name: object) -> ConfigError:
    """The error of a header whose name cannot be written."""
    return ConfigError.illegal(
        "headers",
        name,
        "headers whose keys are text that can be written as UTF-8",
        "Correct the keys in the rows.",
    )


NOTHING = OutRecord("", None, None)
