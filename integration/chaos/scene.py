"""What a fault is, and what it may break or look at."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from integration.chaos.counting import Numbers, Sinks
from integration.chaos.drivers import Driver
from integration.chaos.world import World

Fault = Generator[None, None, str]
"""Breaks something, yields while that lasts, mends it; what proves that it hit."""


class NotHitError(Exception):
    """A fault was caused, and nothing of it was to be seen."""


@dataclass(frozen=True)
class Scene:
    """Everything that a fault may break or look at."""

    world: World
    drivers: Mapping[str, Driver]
    numbers: Numbers
    sinks: Sinks


def prove(is_so: object, what: str) -> str:
    """The proof, once it is one.

    Raises:
        NotHitError: It is none.
    """
    if not is_so:
        raise NotHitError(what)
    return what
