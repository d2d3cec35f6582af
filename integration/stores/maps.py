"""Maps in a database, for the files that try one; each has a fixture ``url``."""

from __future__ import annotations

import pytest

ODD = ["", " ", '"', "'", "\\", "\\N", "a,b", "a\nb", "%s", "NULL", "ключ", "🙂"]
"""Keys that a database may take for others, or for something else."""


@pytest.fixture
def open_map(url):
    """Open a map there; it is closed after the test."""
    opened = []

    def make(kind, name="counts", **types):
        opened.append(kind(url, name, **types))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def content(state):
    table = state.to_arrow()
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
