"""What is remembered of a JVM's names."""

from __future__ import annotations

from unittest.mock import MagicMock

from py4j.java_gateway import JavaClass, JavaPackage

from integration.cluster.java_names import _remembering


class Place:
    """Stands for a package."""


def test_classes_and_packages_are_asked_once_and_nothing_else_is_kept():
    asked: list[str] = []
    values = {
        "org": JavaPackage("org", None),
        "String": JavaClass("java.lang.String", MagicMock()),
        "number": 7,
    }

    def ask(_, name):
        asked.append(name)
        return values[name]

    remembered = _remembering(ask)
    one, other = Place(), Place()
    for name in ("org", "String", "number") * 2:
        assert remembered(one, name) is values[name]
    assert remembered(other, "org") is values["org"]

    assert asked == ["org", "String", "number", "number", "org"]
