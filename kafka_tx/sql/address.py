"""Shows URLs of databases without secrets."""

from __future__ import annotations

from sqlalchemy.engine import URL

_HIDDEN = "***"
_SECRET_WORDS = ("password", "passwd", "pwd", "secret", "token")


def address(url: URL) -> str:
    """The URL without secrets, wherever it has them: user part or parameters."""
    hidden = {name: _HIDDEN for name in url.query if _is_secret(name)}
    shown = url.update_query_dict(hidden) if hidden else url
    return shown.render_as_string(hide_password=True).replace("%2A%2A%2A", _HIDDEN)


def without_secrets(text: str, url: URL) -> str:
    """A driver's text without the URL's secrets."""
    for secret in _secrets(url):
        text = text.replace(secret, _HIDDEN)
    return text


def _secrets(url: URL) -> list[str]:
    found = [str(url.password)] if url.password else []
    for name, value in url.query.items():
        if _is_secret(name):
            found += [value] if isinstance(value, str) else list(value)
    return sorted(filter(None, found), key=len, reverse=True)


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)
