"""Shows options without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"

SECRETS = (
    r"(?i:tx\.store|jaas|passphrase|key\.pem|keystore\.key"
    r"|oauthbearer\.(config|extensions)|auth\.user\.info|registry\.proxy)"
)
"""Names of options that may hold secrets, and that Spark does not hide by itself.

Spark hides names that contain password, secret or token.
"""

_HIDDEN_NAMES = re.compile(
    rf"{SECRETS}|(?i:password|passwd|pwd|secret|token|credential|access.?key|^user\.)"
)
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def shown(options: Mapping[str, object], store: str = "") -> dict[str, str]:
    """The options in the order of their names; possible secrets are hidden.

    The user's own options (``user.…``) are hidden, too: they may be secrets. ``store``
    is an address without secrets, as ``Store.url`` is.
    """
    found = {name: _value(name, str(options[name])) for name in sorted(options)}
    return {**found, "tx.store": store} if store else found


def _value(name: str, value: str) -> str:
    if _HIDDEN_NAMES.search(name):
        return HIDDEN
    return _USER_OF_URL.sub(HIDDEN, value)
