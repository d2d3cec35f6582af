"""Whether the native reader can be used in this process, and for which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING
from zipimport import zipimporter

from kafka_tx.logs import event_log

if TYPE_CHECKING:
    from kafka_tx.native import _reader

_log = event_log(__name__)

_NAME = "kafka_tx.native._reader"
_FILE = "_reader.abi3.so"
_REVISION = 6
"""Version of the extension's functions that this package calls."""
_PLAIN = (str, int, float)


@dataclass(frozen=True, slots=True)
class Status:
    """Which reader this process uses.

    ``is_native``: the native one, if the settings allow it. ``reason`` is one sentence
    for people: with which library, or why not.
    """

    is_native: bool
    reason: str

    def __str__(self) -> str:
        return f"{'native' if self.is_native else 'Python'} reader: {self.reason}"


def client_library() -> str:
    """Path of confluent-kafka's extension, to which librdkafka is linked.

    Found without importing the package, which costs 25 ms on executors.

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

    The answer is found, and a missing extension logged, once in a process.
    """
    try:
        extension = _extension()
        _check_revision(extension)
        path = client_library()
        version = extension.bind(path)
    except ImportError as error:
        reason = (
            "the extension was not built, or not for this Python and platform"
            f" ({error}); install a C compiler and reinstall, or use a wheel"
            f" {'renamed to .zip ' if _is_zipped() else ''}in its place"
        )
    except OSError as error:
        reason = f"confluent-kafka's librdkafka cannot be shared ({error})"
    else:
        return extension, f"librdkafka {version} of confluent-kafka, {path}"
    _log.warning("reading in Python, about a third as fast: %s", reason)
    return None, reason


def _extension() -> ModuleType:
    """The extension, also out of a zip file that Spark has taken to an executor."""
    try:
        return import_module(_NAME)
    except ImportError:
        from importlib.resources import as_file, files  # 10 ms, rarely used

        inside = files(__package__).joinpath(_FILE)
        if not _is_zipped() or not inside.is_file():
            raise
    with as_file(inside) as unpacked:  # gone again once it is loaded
        spec = spec_from_file_location(_NAME, unpacked)
        assert spec is not None
        assert spec.loader is not None
        extension = module_from_spec(spec)
        spec.loader.exec_module(extension)
    return extension


def _check_revision(extension: ModuleType) -> None:
    found = getattr(extension, "REVISION", 1)
    if found != _REVISION:
        raise ImportError(
            f"it was built from other sources: revision {found} instead of {_REVISION}"
        )


def _is_zipped() -> bool:
    return isinstance(__spec__.loader, zipimporter)


def status() -> Status:
    """The reader in use and the reason, for ``kafka-tx doctor``."""
    extension, reason = load()
    return Status(extension is not None, reason)


def refusal(settings: Mapping[str, object]) -> str | None:
    """Why a client with these settings cannot be read natively; None if it can."""
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
    if settings.get("sasl.oauthbearer.token.provider"):
        return "tokens come from a function in Python"
    return None


def client(settings: Mapping[str, object]) -> _reader.Client | None:
    """A client that asks for offsets; None where only Python can."""
    extension, _ = load()
    if extension is None or not supports(settings):
        return None
    pairs = ((k, text(v)) for k, v in settings.items() if k != "isolation.level")
    try:
        made: _reader.Client = extension.Client(settings=(*chain(*pairs),))
    except (extension.ReadError, ValueError) as error:
        _log.info("no native client for these settings: %s", error)
        return None
    return made


def read_error() -> type[Exception]:
    """The error of native clients, of which there is one, so that it is loaded."""
    extension, reason = load()
    assert extension is not None, reason
    error: type[Exception] = extension.ReadError
    return error


def text(value: object) -> str:
    """A setting as librdkafka reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def supports(settings: Mapping[str, object]) -> bool:
    """Whether the native reader can be used with these settings in this process."""
    return refusal(settings) is None
