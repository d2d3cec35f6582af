"""Names of Java's classes and packages, each asked of a JVM once.

Py4J asks at each use. Java looks for ``org`` and ``org.apache``, too, as for classes
in some 300 jars: a quarter of what Spark's JVM computed in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView

_KNOWN = "_kafka_tx_known"


def ask_once() -> None:
    """Let Py4J remember the answers in this process. Harmless when repeated."""
    for kind in (JVMView, JavaPackage):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @wraps(ask)
    def remembered(place: Any, name: str) -> Any:
        known = place.__dict__.setdefault(_KNOWN, {})
        if name not in known:
            found = ask(place, name)
            if not isinstance(found, JavaClass | JavaPackage):
                return found
            known[name] = found
        return known[name]

    return remembered
