"""Of each Python that ``doctor`` asks, one answer for all tests: it takes a second."""

from __future__ import annotations

import os
from functools import cache

import pytest

from kafka_tx.cli import doctor
from kafka_tx.running.worker_python import WorkerPython, inspect_python


@pytest.fixture
def each_python_starts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again only where something is different from what was asked before."""

    def inspect(chosen: str | None = None) -> WorkerPython:
        around = os.environ.get("PYSPARK_PYTHON"), os.environ.get("PYTHONPATH")
        return _inspected(chosen, os.getcwd(), *around)

    monkeypatch.setattr(doctor, "inspect_python", inspect)


@cache
def _inspected(chosen: str | None, *_around: str | None) -> WorkerPython:
    return inspect_python(chosen)
