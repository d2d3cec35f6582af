"""The text form of all stored records: versioned, named, checksummed JSON.

A record is one JSON object::

    {"v":3,"kind":"batch","crc":"5d1f6b0c","data":…}

The checksum covers version, kind and data, so a record that was cut, edited or put
under another kind is detected. White space does not count, nor do further members.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from kafka_tx.errors import ConfigError, StateCorruptedError
from kafka_tx.offsets.owners import Owners
from kafka_tx.stored import RECORDS

_T = TypeVar("_T")

REPAIR_COMMAND = "kafka-tx offsets repair --store '{store}' --id {id}"
"""Checks and repairs the records of an id."""

MAX_PATH_LENGTH = 500
"""Most characters of a path: fits the index limits of known databases."""

_LEGAL_PATH = re.compile(r"[A-Za-z0-9._=-]+(?:/[A-Za-z0-9._=-]+)*")


def check_path(path: str) -> str:
    """Return ``path`` if every store can hold it; raises ConfigError."""
    parts = path.split("/")
    if (
        len(path) > MAX_PATH_LENGTH
        or not _LEGAL_PATH.fullmatch(path)
        or "." in parts
        or ".." in parts
    ):
        raise ConfigError.illegal(
            "path",
            path,
            f"1 to {MAX_PATH_LENGTH} of the characters A-Z a-z 0-9 . _ - =, in parts"
            " separated by /; no part is . or ..",
        )
    return path


def check_value(path: str, value: str) -> str:
    """Return ``value`` if every store can hold it; raises ConfigError."""
    if "\x00" in value or not _is_unicode(value):
        raise ConfigError(
            f"the value for path '{path}' holds a character that no store can keep"
            " (NUL or half of a surrogate pair); write it as JSON",
            option=path,
        )
    return value


def encode(kind: str, payload: object) -> str:
    """Write ``payload`` as a record of ``kind``: one line of ASCII.

    Only values that JSON gives back unchanged are legal: text keys, lists, text, finite
    numbers, true, false and None. Source: Storm, TransactionalState (deviates: a value
    that JSON would change is refused when it is written, with a ConfigError).
    """
    try:
        data = _compact(payload)
        unchanged = json.loads(data) == payload
    except (TypeError, ValueError, RecursionError) as error:
        raise _unwritable(kind, payload, str(error)) from None
    if not unchanged:
        raise _unwritable(kind, payload, "it would be read back as something else")
    fields = {"kind": kind, "crc": _checksum(RECORDS.number, kind, data)}
    head = _compact(RECORDS.stamped(fields)).removesuffix("}")
    return f'{head},"data":{data}}}'


class Place(NamedTuple):
    """The place of a record, for error texts; ``store`` has no secrets."""

    path: str
    store: str
    id: str


def decode(text: str, kind: str, at: Place) -> Any:  # noqa: ANN401 - any JSON
    """Read a record of ``kind``, and return its payload.

    Raises:
        StateCorruptedError: It is no record of this kind, or it is damaged.
        FormatError: It has a format that this version does not read.
    """
    try:
        return _payload(text, kind, at)
    except (ValueError, RecursionError) as error:
        raise corrupted(str(error), at) from None


def check_formats(texts: Mapping[str, str], store: str, id: str) -> None:  # noqa: A002
    """Refuse records of other versions, wherever they are, by FormatError."""
    ours = tuple(f'{{"v":{number},' for number in RECORDS.reads)
    for path, text in texts.items():
        if not text.startswith(ours):
            with suppress(StateCorruptedError):  # who needs the record raises this
                decode(text, "", Place(path, store, id))


def decode_as(kind: str, text: str, read: Callable[[Any], _T], at: Place) -> _T:
    """Decode a record, and convert its payload with ``read``; raises as ``decode``."""
    payload = decode(text, kind, at)
    try:
        return read(payload)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise corrupted(f"it makes no sense ({error})", at) from None


def encode_owners(owners: Owners) -> str:
    """The record of the owners, who may store the offsets of an id."""
    return encode("owners", owners.payload())


def decode_owners(text: str | None, at: Place) -> Owners:
    """Decode ``encode_owners``; without a record there are no owners."""
    if text is None:
        return Owners()
    return decode_as("owners", text, Owners.of, at)


def corrupted(reason: str, at: Place) -> StateCorruptedError:
    """The error for an unreadable record: its place, the reason and the repair."""
    command = REPAIR_COMMAND.format(store=at.store, id=at.id)
    return StateCorruptedError(
        f"the record '{at.path}' of id '{at.id}' in store {at.store} cannot be read:"
        f" {reason}."
        " Nothing was changed and nothing is guessed in its place."
        f" To look at it and repair it, run: {command}",
        **at._asdict(),
        reason=reason,
        command=command,
    )


def _payload(text: str, kind: str, at: Place) -> object:
    try:
        record = json.loads(text)
    except ValueError as error:
        msg = f"it is not JSON ({error})"
        raise ValueError(msg) from None
    if isinstance(record, dict) and "v" in record:
        what = f"the record '{at.path}' of id '{at.id}' in store {at.store}"
        RECORDS.check_members(record, what, **at._asdict())
    if not isinstance(record, dict) or not {"v", "kind", "crc", "data"} <= set(record):
        msg = "it is JSON, but no record (members v, kind, crc, data)"
        raise ValueError(msg)
    if record["kind"] != kind:
        msg = f"it is a record of kind {record['kind']!r}, expected '{kind}'"
        raise ValueError(msg)
    found = _checksum(record["v"], kind, _compact(record["data"]))
    if record["crc"] != found:
        msg = f"its checksum is {record['crc']!r}, its content gives '{found}'"
        raise ValueError(msg)
    data: object = record["data"]
    return data


def _compact(payload: object) -> str:
    return json.dumps(payload, separators=(",", ":"), allow_nan=False)


def _checksum(version: int, kind: str, data: str) -> str:
    covered = f"{version}\n{kind}\n{data}"
    return f"{zlib.crc32(covered.encode('utf-8', 'surrogatepass')):08x}"


def _unwritable(kind: str, payload: object, reason: str) -> ConfigError:
    shown = repr(payload)
    return ConfigError(
        f"a record of kind '{kind}' cannot be written: {reason}. Value:"
        f" {shown[:200]}{'…' if len(shown) > 200 else ''}; legal: dicts with text keys,"
        " lists, text, finite numbers, true, false, None",
        option=kind,
    )


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
