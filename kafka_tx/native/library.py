"""Whether the native reader can be used in this process, and for which settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from types import ModuleType

_log = logging.getLogger(__name__)

_PLAIN = (str, int, float)


@dataclass(frozen=True, slots=True)
class Status:
    """Which reader this process uses.

    Attributes:
        is_native: Whether the native one is in use where the settings allow it.
        reason: One sentence for people: with which library, or why not.
    """

    is_native: bool
    reason: str

    def __str__(self) -> str:
        return f"{'native' if self.is_native else 'Python'} reader: {self.reason}"


def client_library() -> str:
    """Path of confluent-kafka's extension, which librdkafka is linked to.

    Found without importing the package: on executors that would cost 25 ms.

    Raises:
        OSError: It is not installed.
    """
    package = find_spec("confluent_kafka")
    locations = package.submodule_search_locations if package else None
    found = PathFinder.find_spec("confluent_kafka.cimpl", locations or [])
    if found is None or found.origin is None:
        raise OSError("confluent-kafka is not installed, or without its extension")
    return found.origin


@cache
def load() -> tuple[ModuleType | None, str]:
    """The extension, bound to the librdkafka that confluent-kafka uses, or why not.

    The answer is found once in a process; a process that has to do without logs it.
    """
    try:
        from kafka_tx.native import _reader

        path = client_library()
        version = _reader.bind(path)
    except ImportError as error:
        reason = (
            "the extension was not built, or not for this Python and platform"
            f" ({error}); install a C compiler and reinstall, or use a wheel"
        )
    except OSError as error:
        reason = f"confluent-kafka's librdkafka cannot be shared ({error})"
    else:
        return _reader, f"librdkafka {version} of confluent-kafka, {path}"
    _log.warning("reading in Python, about a third as fast: %s", reason)
    return None, reason


def status() -> Status:
    """Which reader is in use and why, for ``kafka-tx doctor``."""
    extension, reason = load()
    return Status(extension is not None, reason)


def refusal(settings: Mapping[str, object]) -> str | None:
    """Why a client with these settings cannot be read natively; None if it can.

    Callbacks run in Python only, and so does a log.
    """
    extension, reason = load()
    if extension is None:
        return reason
    for name, value in settings.items():
        if not isinstance(value, _PLAIN):
            return f"setting '{name}' is no text but {type(value).__name__}"
    if settings.get("debug"):
        return "setting 'debug' asks for the client's log, which Python passes on"
    if settings.get("sasl.oauthbearer.metadata.authentication.type") == "aws_iam":
        return "confluent-kafka gets AWS tokens in Python"
    return None


def supports(settings: Mapping[str, object]) -> bool:
    """Whether the native reader can be used with these settings in this process."""
    return refusal(settings) is None
