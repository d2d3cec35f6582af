"""Which tests a run takes."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import hypothesis
import pytest

from integration.sizes import EVERYTHING, size

hypothesis.settings.register_profile(
    "patient",
    deadline=None,  # a busy machine fails no example
    max_examples=size(40, 150),
    derandomize=not EVERYTHING,  # the same examples in each `make test`
)
hypothesis.settings.load_profile("patient")

pytest.register_assert_rewrite("kafka_tx.testing.sink_suite")
pytest_plugins = ["tests.scheduling"]

gc.disable()  # until the tests are collected: a third of what that costs

_STATES = tempfile.TemporaryDirectory(prefix="kafka-tx-states-")
os.environ["XDG_STATE_HOME"] = _STATES.name
"""Stores that no test names are of this run, and of no user."""


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what repeats on more parts, or for longer, what others show."""
    left_out = [item for item in items if item.get_closest_marker("all")]
    if left_out and not EVERYTHING:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("all")]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector pass over thousands of tests, which live to the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def replace_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give one module another ``time.sleep``, or any part of a module that it imports.

    The threads of Spark, Kafka and pytest run beside each test, and keep theirs.
    """

    def replace(module: ModuleType, imported: str, **parts: object) -> None:
        before = vars(getattr(module, imported))
        monkeypatch.setattr(module, imported, SimpleNamespace(**{**before, **parts}))

    return replace
