"""Names that stay for one version beside those that replaced them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def deprecated(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Warn, at the line of the caller, each time the function is called."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def warned(*args: object, **named: object) -> Any:  # noqa: ANN401 - any
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **named)

        return warned

    return mark
