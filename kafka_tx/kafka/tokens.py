"""OAUTHBEARER tokens from a user's function, shared by all clients of a process.

The option ``kafka.sasl.oauthbearer.token.provider`` names it: ``module:function``. It
is imported where a client is made: in the driver, the planning process and workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kafka_tx.errors import AuthenticationError, ConfigError
from kafka_tx.logs import event_log

PROVIDER = "sasl.oauthbearer.token.provider"
_OPTION = f"kafka.{PROVIDER}"
_LEGAL = "package.module:function, a function without arguments"
_REST = 0.2
"""Share of a token's life that must be left to give the token to one more client."""

_LEAST_S = 10.0
"""Rest of a token's life with which a client may still log in."""

_log = event_log(__name__)

Answer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    answer: Answer
    made_at: float
    expires_at: float

    def is_fresh(self) -> bool:
        life = self.expires_at - self.made_at
        return self.expires_at - time.time() > life * _REST


_tokens: dict[str, _Token] = {}
_lock = threading.Lock()


def token_of(provider: str) -> Answer:
    """Ask the provider for a token, in the form that confluent-kafka takes.

    ``(token, time it expires)``, in seconds since the Unix epoch; a principal and a
    dictionary of SASL extensions may follow. Asked again when four fifths of a token's
    life are over; if that fails, the token serves until shortly before its end. Any
    thread.

    Raises:
        ConfigError: There is no such function, or it returns something else.
        AuthenticationError: It raised an error; names it.
    """
    with _lock:
        known = _tokens.get(provider)
        if known is None or not known.is_fresh():
            try:
                known = _tokens[provider] = _asked(provider)
            except AuthenticationError as error:
                if known is None or known.expires_at - time.time() < _LEAST_S:
                    raise
                _log.warning("the last token is used again: %s", error)
    return known.answer


def _asked(provider: str) -> _Token:
    function = _function(provider)
    made_at = time.time()
    try:
        answer = function()
    except Exception as error:
        raise AuthenticationError(
            f"the token provider '{provider}' failed: {type(error).__name__}: {error}."
            f" It is named by option '{_OPTION}' and called in the driver, the planning"
            " process and the workers: each needs its libraries and credentials.",
            option=_OPTION,
        ) from error
    if not _is_answer(answer):
        raise ConfigError(
            f"the token provider '{provider}' returned a {type(answer).__name__};"
            " legal: (token, time it expires in seconds since 1970) and, if you like, a"
            " principal and a dictionary of extensions",
            option=_OPTION,
        )
    if float(answer[1]) <= made_at:
        raise AuthenticationError(
            f"the token of '{provider}' has expired already: it is valid until"
            f" {float(answer[1]):.0f}, and now is {made_at:.0f} (seconds since 1970).",
            option=_OPTION,
        )
    return _Token(tuple(answer), made_at, float(answer[1]))


def _is_answer(answer: object) -> bool:
    if not isinstance(answer, tuple | list) or not 2 <= len(answer) <= 4:
        return False
    token, expires = answer[0], answer[1]
    is_seconds = isinstance(expires, int | float) and expires < _MILLISECONDS
    return isinstance(token, str) and is_seconds


_MILLISECONDS = 1e11
"""A time this large is in milliseconds: as seconds it would be the year 5138."""


def _function(provider: str) -> Callable[[], Any]:
    module, colon, name = provider.partition(":")
    try:
        found = getattr(import_module(module), name) if colon and name else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError.illegal(
            _OPTION,
            provider,
            _LEGAL,
            f"It cannot be imported here: {error}. Install it where the workers run, or"
            " ship it with --py-files (batch) or in their virtual environment.",
        ) from None
    if not callable(found):
        raise ConfigError.illegal(_OPTION, provider, _LEGAL)
    function: Callable[[], Any] = found
    return function
