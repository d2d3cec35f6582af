"""Numbers that Kafka's Java client takes and librdkafka does not."""

from __future__ import annotations

import logging
from collections.abc import Mapping

_log = logging.getLogger(__name__)
_said: set[tuple[str, str]] = set()

_INT = 2_147_483_647
_BACKOFF = (1, 300_000)
BOUNDS: dict[str, tuple[int, int]] = {
    "connections.max.idle.ms": (0, _INT),
    "fetch.max.bytes": (1_000, _INT - 512),
    "fetch.message.max.bytes": (1, 1_000_000_000),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.wait.max.ms": (0, 300_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "metadata.recovery.rebootstrap.trigger.ms": (0, _INT),
    "receive.message.max.bytes": (1_000, _INT),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "retry.backoff.max.ms": _BACKOFF,
    "retry.backoff.ms": _BACKOFF,
    "socket.connection.setup.timeout.ms": (1_000, _INT),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.send.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (10, 300_000),
    "topic.metadata.refresh.interval.ms": (-1, 3_600_000),
    # producers
    "batch.num.messages": (1, 1_000_000),
    "batch.size": (1, _INT),
    "compression.level": (-1, 12),
    "linger.ms": (0, 900_000),
    "max.in.flight.requests.per.connection": (1, 1_000_000),
    "message.max.bytes": (1_000, 1_000_000_000),
    "queue.buffering.max.kbytes": (1, _INT),
    "request.timeout.ms": (1, 900_000),
    "transaction.timeout.ms": (1_000, _INT),
}
"""By librdkafka's names: least and greatest value that it takes."""

_NEVER = {"connections.max.idle.ms": "0", "topic.metadata.refresh.interval.ms": "-1"}
"""What a negative number, Java's "never", becomes."""

_RECEIVED_BYTES = 1 << 30
_FETCH_OVERHEAD = 512
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 100, 10_000
_DEFAULT_MESSAGE_BYTES = 1_000_000


def within_bounds(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, numbers beyond librdkafka's bounds brought to the nearest one.

    What is changed is logged, once in a process.
    """
    return {name: _within(name, value) for name, value in settings.items()}


def _within(name: str, value: str) -> str:
    bounds = BOUNDS.get(name)
    try:
        number = int(value)
    except ValueError:
        return value  # the client says what is wrong
    if bounds is None or bounds[0] <= number <= bounds[1]:
        return value
    low, high = bounds
    taken = str(min(max(number, low), high))
    if number < 0:
        taken = _NEVER.get(name, taken)
    if (name, value) not in _said:
        _said.add((name, value))
        _log.warning(
            "librdkafka takes %d to %d for %s: %s becomes %s",
            low,
            high,
            name,
            value,
            taken,
        )
    return taken


def room_for_fetches(settings: Mapping[str, str]) -> dict[str, str]:
    """What a consumer needs to take all that a broker may send.

    A response, and each batch of records once it is unpacked, may have
    ``receive.message.max.bytes``: enough for every batch that fits into memory, unless
    it is given. A ``fetch.max.bytes`` below the largest message is legal in Java only.
    """
    more = {}
    fetch = _number(settings.get("fetch.max.bytes", ""), 0)
    message = _number(settings.get("message.max.bytes", ""), _DEFAULT_MESSAGE_BYTES)
    if "receive.message.max.bytes" not in settings:
        received = max(_RECEIVED_BYTES, fetch + _FETCH_OVERHEAD)
        more["receive.message.max.bytes"] = str(received)
    if 0 < fetch < message:
        more["message.max.bytes"] = str(fetch)
    return more


def steady_reconnects(settings: Mapping[str, str]) -> dict[str, str]:
    """As in Java: a first pause that is longer than the longest one is that one."""
    longest = _number(settings.get("reconnect.backoff.max.ms", ""), _LONGEST_PAUSE_MS)
    first = _number(settings.get("reconnect.backoff.ms", ""), _FIRST_PAUSE_MS)
    return {"reconnect.backoff.ms": str(longest)} if first > longest else {}


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdigit() else otherwise
