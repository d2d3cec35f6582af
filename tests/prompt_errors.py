"""Errors that come soon, on a machine that may halt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from integration.promptness import promptly

E = TypeVar("E", bound=Exception)


def prompt_error(
    call: Callable[[], object], within_s: float, kind: type[E], match: str | None = None
) -> E:
    """What a call raises each time, and at one of three tries within that time."""

    def refused() -> E:
        with pytest.raises(kind, match=match) as caught:
            call()
        return caught.value

    return promptly(refused, within_s)
