"""Names of options that nobody knows, for source and sink alike."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable

from kafka_tx.errors import ConfigError

logger = logging.getLogger(__name__)

KAFKA = "kafka."
_NEAR = 0.85
"""How like a known name one must be to be taken for a slip of the pen."""
_named: set[str] = set()  # unknown options that this process has warned of


def check_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse unknown ``tx.*`` and what looks like a misspelt name; warn of the rest.

    Spark hands on whatever it was told, also what is meant for itself.

    Args:
        given: Names in lower case.
        known: Every name that has a meaning, as it is documented.
        where: ``source`` or ``sink``, for the text.

    Raises:
        ConfigError: Names the nearest one.
    """
    legal = {name.lower(): name for name in known}
    for name in given:
        if name in legal or name.startswith(KAFKA):
            continue
        near = difflib.get_close_matches(name, legal, n=1)
        hint = f"; did you mean '{legal[near[0]]}'?" if near else ""
        if name.startswith("tx.") or difflib.get_close_matches(
            name, legal, n=1, cutoff=_NEAR
        ):
            raise ConfigError(
                f"unknown option '{name}' of the {where}"
                f"{hint or '; see the options table'}",
                option=name,
            )
        if name not in _named:
            _named.add(name)
            logger.warning("unknown option '%s' is ignored%s", name, hint)
