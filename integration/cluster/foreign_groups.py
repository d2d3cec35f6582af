"""Groups that are none of consumers, with members that no client library here has.

The requests of share consumers (KIP-932), of Kafka Streams (KIP-1071) and of Kafka
Connect's workers, as bytes: one member joins, and leaves where it can. It sends no
heartbeat: brokers with the settings ``STEADY`` keep it for minutes.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Callable
from itertools import count

from integration.cluster.settings import PATIENT_MS
from integration.cluster.waiting import wait_until

_NULL = b"\x00"
_NO_TAGS = b"\x00"
_ALONE = -1
_JOINS = 0
_LEAVES = -1
_JOIN_GROUP, _SHARE, _STREAMS, _LEAVE_GROUP = 11, 76, 88, 13
_MEMBER_ID_REQUIRED = 79
_UNKNOWN_MEMBER = 25
_LATER = {14, 15, 16}
"""No coordinator yet."""
_numbers = count(1)


class ForeignGroup:
    """One member in a group of such a kind, at a cluster of one broker.

    Args:
        kind: ``share``, ``streams`` or ``connect``.
    """

    def __init__(self, address: str, kind: str, group: str, topic: str) -> None:
        host, _, port = address.rpartition(":")
        self._at = host, int(port)
        self._group, self._topic = group, topic
        self._member = str(uuid.uuid4())
        self._may_fail_with: set[int] = set()
        self._leave: Callable[[], None] = getattr(self, f"_join_{kind}")()

    def leave(self) -> None:
        """Let the member go, unless the broker has; the group stays, empty."""
        self._may_fail_with = {_UNKNOWN_MEMBER}
        self._leave()

    def _join_share(self) -> Callable[[], None]:
        def beat(epoch: int, topics: list[str] | None) -> None:
            names = _NULL if topics is None else _array(list(map(_text, topics)))
            body = _text(self._group) + _text(self._member) + _int32(epoch)
            self._checked(_SHARE, 1, body + _NULL + names + _NO_TAGS)

        beat(_JOINS, [self._topic])
        return lambda: beat(_LEAVES, None)

    def _join_streams(self) -> Callable[[], None]:
        nothing = _array([])
        part = _text("0") + _array([_text(self._topic)]) + nothing * 5 + _NO_TAGS
        topology = b"\x01" + _int32(1) + _array([part]) + _NO_TAGS

        def beat(epoch: int, topology: bytes, tasks: bytes) -> None:
            names = _text(self._group) + _text(self._member)
            head = names + _int32(epoch) + _int32(0) + _NULL * 2 + _int32(PATIENT_MS)
            process = _text("process") + b"\xff" + nothing
            rest = _NULL * 2 + b"\x00" + _NO_TAGS
            body = head + topology + tasks * 3 + process + rest
            self._checked(_STREAMS, 0, body)

        beat(_JOINS, topology, nothing)
        return lambda: beat(_LEAVES, b"\xff", _NULL)

    def _join_connect(self) -> Callable[[], None]:
        """A member of a classic group whose protocol is not that of consumers."""
        group = _old_text(self._group)
        protocols = _int32(1) + _old_text("sessioned") + _int32(0)

        def join(member: str) -> tuple[int, str]:
            times = _int32(PATIENT_MS) * 2
            names = _old_text(member) + _old_text("connect")
            answer = self._asked(_JOIN_GROUP, 4, group + times + names + protocols)
            _, error, _ = struct.unpack(">ihi", answer[:10])
            rest = answer[10:]
            for _ in range(2):  # protocol and leader
                _, rest = _old_text_of(rest)
            return error, _old_text_of(rest)[0]

        answers: list[tuple[int, str]] = []

        def is_answered() -> bool:
            answers.append(join(""))
            return answers[-1][0] not in _LATER

        wait_until("it has a coordinator", is_answered)
        error, member = answers[-1]
        if error == _MEMBER_ID_REQUIRED:
            error, _ = join(member)
        assert not error, f"error {error}"
        return lambda: self._checked(_LEAVE_GROUP, 1, group + _old_text(member))

    def _checked(self, key: int, version: int, body: bytes) -> None:
        throttled = 1 + 4 if key in (_SHARE, _STREAMS) else 4

        def error() -> int:
            answer = self._asked(key, version, body)
            (found,) = struct.unpack(">h", answer[throttled : throttled + 2])
            return int(found)

        errors: list[int] = []

        def is_answered() -> bool:
            errors.append(error())
            return errors[-1] not in _LATER

        wait_until("it has a coordinator", is_answered)
        assert errors[-1] in {0, *self._may_fail_with}, f"{key}: error {errors[-1]}"

    def _asked(self, key: int, version: int, body: bytes) -> bytes:
        head = struct.pack(">hhih", key, version, next(_numbers), _ALONE)
        tags = _NO_TAGS if key in (_SHARE, _STREAMS) else b""
        message = head + tags + body
        with socket.create_connection(self._at, 30) as connection:
            connection.sendall(_int32(len(message)) + message)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                return stream.read(size)[4:]


def _int32(number: int) -> bytes:
    return struct.pack(">i", number)


def _text(text: str) -> bytes:
    """As flexible versions have it; shorter than 127 bytes."""
    data = text.encode()
    return bytes([len(data) + 1]) + data


def _array(members: list[bytes]) -> bytes:
    return bytes([len(members) + 1]) + b"".join(members)


def _old_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _old_text_of(data: bytes) -> tuple[str, bytes]:
    (size,) = struct.unpack(">h", data[:2])
    return data[2 : 2 + max(0, size)].decode(), data[2 + max(0, size) :]
