"""Brings user code to the tasks: pickled once at build, made anew for each task."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from kafka_tx.errors import ConfigError
from kafka_tx.topology.declare.bolts import Bolt

Dumps: TypeAlias = Callable[[object], bytes]
"""Pickles user code. ``pickle.loads`` must be able to read the result."""


class Template:
    """A bolt as the user gave it, ready to be sent to tasks.

    From a class or a function, every instance is the result of a call. From a bolt,
    every instance is a copy of the bolt at build. The process that built the topology
    calls the user's own class or function, so objects that it refers to (a list that
    collects results, say) are the user's own. Other processes call a copy.

    The building process never unpickles the payload: unpickling a class that was
    pickled by value gives the class itself other functions, which refer to copies.

    Source: Storm, BatchBoltExecutor.
    """

    __slots__ = ("given", "payload")

    def __init__(self, given: object, payload: bytes) -> None:
        self.given = given
        """The user's object in the process that built the topology; elsewhere None."""
        self.payload = payload

    def new(self) -> Bolt:
        """A fresh instance."""
        given = self.given if self.given is not None else _unpickled(self.payload)
        if isinstance(given, Bolt):
            return copy.deepcopy(given)
        return _bolt(given() if callable(given) else given)

    def __reduce__(self) -> tuple[Any, ...]:
        return Template, (None, self.payload)


def template_of(component: str, given: object, dumps: Dumps) -> Template:
    """Pickle the object that a component was given, in its present state.

    Raises:
        ConfigError: It cannot be pickled or copied; names the component.
    """
    payload = pickled(component, given, dumps)
    if isinstance(given, Bolt):
        given = _copied(component, given)
    return Template(given, payload)


def pickled(component: str, given: object, dumps: Dumps) -> bytes:
    """Pickle something of a component.

    Raises:
        ConfigError: It cannot be pickled; names the component.
    """
    try:
        return dumps(given)
    except Exception as error:
        raise _untravelled(component, given, "pickled", error) from error


def _copied(component: str, given: Bolt) -> Bolt:
    try:
        return copy.deepcopy(given)
    except Exception as error:
        raise _untravelled(component, given, "copied", error) from error


def _untravelled(
    component: str, given: object, done: str, error: Exception
) -> ConfigError:
    return ConfigError(
        f"component '{component}' cannot be sent to executors, because {given!r} cannot"
        f" be {done}: {type(error).__name__}: {error}. Open connections, files and"
        " locks in 'prepare' instead of keeping them in the object.",
        option=component,
    )


@lru_cache(maxsize=256)
def _unpickled(payload: bytes) -> object:  # once per process, not per task
    return pickle.loads(payload)  # noqa: S301 - our own bytes


def _bolt(made: object) -> Bolt:
    if isinstance(made, Bolt):
        return made
    raise ConfigError(
        f"{made!r} is no bolt; legal: a bolt class, a bolt, or a function without"
        " arguments that returns a bolt",
        option="bolt",
        value=made,
    )
