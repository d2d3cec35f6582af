"""The Python of workers is asked, and what it lacks is said before a query fails."""

import sys
from types import SimpleNamespace

import pytest

from kafka_tx.running.worker_python import inspect_python, warn_without_package


@pytest.fixture
def bare(tmp_path):
    """A Python that finds nothing."""
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho False False\n")
    python.chmod(0o755)
    return str(python)


def context(python, master="local[2]", includes=()):
    return SimpleNamespace(
        pythonExec=python, master=master, _python_includes=list(includes)
    )


def test_this_python_has_the_package():
    assert inspect_python(sys.executable).has_package


def test_one_that_lacks_it_and_one_that_is_missing(bare, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", bare)

    assert not inspect_python().has_package
    assert inspect_python().exists
    assert not inspect_python("no-such-python").exists


def test_a_warning_tells_when_local_workers_lack_it(bare, caplog):
    warn_without_package(context(bare))

    assert bare in caplog.text
    assert f"PYSPARK_PYTHON={sys.executable}" in caplog.text


@pytest.mark.parametrize(
    "more", [{"master": "spark://m:7077"}, {"includes": ["x.zip"]}]
)
def test_it_is_silent_about_workers_that_cannot_be_asked(bare, caplog, more):
    warn_without_package(context(bare, **more))

    assert not caplog.text


def test_it_is_silent_about_its_own_python(caplog):
    warn_without_package(context(sys.executable))

    assert not caplog.text
