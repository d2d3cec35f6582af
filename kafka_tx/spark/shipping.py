"""Objects that bring along where the package is, for Python processes that lack it.

Files given to ``--py-files`` reach every task, but not the process in which Spark plans
a Python stream: it looks for them in a folder that has none. It runs on the driver's
machine, as does the process that hands it the object, so it can find the package where
that one has found it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka_tx

Rebuilt = tuple[Callable[..., Any], tuple[Any, ...]]


def travelling(thing: object) -> Rebuilt:
    """What ``__reduce__`` gives for an object that is rebuilt without the package.

    Needs cloudpickle, which Spark uses everywhere: it takes the function below along,
    since nobody could import it by its name.
    """

    def rebuild(place: str, module: str, name: str, state: dict[str, Any]) -> Any:  # noqa: ANN401
        import sys
        from importlib import import_module

        try:
            found = import_module(module)
        except ModuleNotFoundError:
            sys.path.append(place)
            found = import_module(module)
        kind = getattr(found, name)
        made = kind.__new__(kind)
        made.__dict__.update(state)
        return made

    kind = type(thing)
    state = thing.__getstate__()
    return rebuild, (_place(), kind.__module__, kind.__qualname__, state or {})


def _place() -> str:
    """The folder or zip file that holds the package."""
    assert kafka_tx.__file__ is not None
    return str(Path(kafka_tx.__file__).parent.parent)
