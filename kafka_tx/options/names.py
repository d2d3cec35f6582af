"""Unknown names of options and settings: refused, or named in a warning."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log

logger = event_log(__name__)

KAFKA = "kafka."
_NEAR = 0.85
"""Similarity to a known name from which a name counts as a typing error."""
_SEPARATORS = re.compile(r"[\s._-]+")
_OURS = ("tx", "transaction")
"""A folded name with this beginning is meant for this package."""
_ELSEWHERE = {"transactionid": "tx.id", "transactionalid": "tx.id"}
"""The name that Kafka and its clients use."""
_named: set[str] = set()  # unknown options that this process has warned of


def check_names(
    given: Iterable[str],
    known: Iterable[str],
    where: str,
    *,
    inner: Collection[str] = (),
    elsewhere: Mapping[str, str] = {},
) -> None:
    """Refuse unknown names that were meant for this package; warn of the rest.

    A name was meant for this package if it begins with ``tx`` or ``transaction``, if it
    equals a known one but for case, ``.``, ``_``, ``-`` and blanks, or if it resembles
    one closely. Spark passes every option on, also its own.

    Args:
        given: Names in lower case.
        known: Every name that has a meaning, as it is documented.
        where: ``source`` or ``sink``, for the text.
        inner: Names in lower case that are legal here and never suggested.
        elsewhere: Folded names of other connectors, and the known ones that were meant.

    Raises:
        ConfigError: Names the nearest one.
    """
    documented = list(known)
    legal = {name.lower() for name in documented}
    for name in given:
        if name in legal or name in inner or name.startswith(KAFKA):
            continue
        meant = _of_clients(name) or elsewhere.get(folded(name))
        meant = meant or nearest(name, documented, _NEAR)
        hint = f"; did you mean '{meant}'?" if meant else ""
        if meant or folded(name).startswith(_OURS):
            raise ConfigError(
                f"unknown option '{name}' of the {where}"
                f"{hint or '; see the options table'}",
                option=name,
            )
        if name not in _named:
            _named.add(name)
            near = nearest(name, documented)
            hint = f"; did you mean '{near}'?" if near else ""
            logger.warning("unknown option '%s' is ignored%s", name, hint)


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that was meant, at least ``cutoff`` (0 to 1) like ``name``."""
    legal = {folded(documented): documented for documented in known}
    plain = folded(name)
    plain = folded(_ELSEWHERE.get(plain, plain))
    if plain in legal:
        return legal[plain]
    near = difflib.get_close_matches(plain, legal, n=1, cutoff=cutoff)
    return legal[near[0]] if near else None


def folded(name: str) -> str:
    """A name in lower case and without separators."""
    return _SEPARATORS.sub("", name).casefold()


def _of_clients(name: str) -> str | None:
    """The name of an option of Kafka's clients, where its separators are wrong."""
    words = [word for word in _SEPARATORS.split(name.lower()) if word]
    return ".".join(words) if words[:1] == ["kafka"] and len(words) > 1 else None
