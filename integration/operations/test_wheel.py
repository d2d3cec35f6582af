"""What `make wheel` makes, what an installation without a compiler does, and doctor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest

from integration.cluster.bare_python import bare_python
from integration.cluster.jars import REPOSITORY

PARTS = ("kafka_tx", "pyspark_kafka_tx", "pyproject.toml", "setup.py", "README.md")
EXTENSION = "kafka_tx/native/_reader.abi3.so"
NO_COMPILER = {"CC": "/bin/false"}


@pytest.fixture
def source(tmp_path):
    """The repository as a user has it: nothing was built in it."""
    place = tmp_path / "source"
    place.mkdir()
    for part in (*PARTS, "LICENSE"):
        found = REPOSITORY / part
        if found.is_dir():
            built = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(found, place / part, ignore=built)
        else:
            shutil.copy(found, place / part)
    return place


def run(*command, **environment):
    done = subprocess.run(
        list(map(str, command)),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def install(python: Path, what: Path, **environment) -> None:
    pip = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed")
    run(*pip, what, **environment)


def told_by_doctor(python: Path):
    asked = run(python.parent / "kafka-tx", "doctor", "--json", PYSPARK_PYTHON=python)
    found = {finding["what"]: finding for finding in json.loads(asked.stdout)}
    return found["reader"], asked.stderr


@pytest.mark.all
def test_a_wheel_brings_the_native_reader(source, tmp_path):
    make = ("make", "--no-print-directory", "-C", REPOSITORY, "wheel")

    run(*make, f"WHEEL_OF={source}", f"WHEELS={tmp_path}")

    (wheel,) = tmp_path.glob("*.whl")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-cp311-abi3-{platform}.whl")
    held = zipfile.ZipFile(wheel).namelist()
    assert EXTENSION in held
    assert "kafka_tx/metrics/alerts.yml" in held
    assert "kafka_tx/metrics/status.html" in held
    assert "kafka_tx/metrics/dashboard.json" in held
    assert not [name for name in held if name.endswith((".c", ".h"))]
    python = bare_python(tmp_path / "fresh", with_pip=True)
    install(python, wheel)
    reader, _ = told_by_doctor(python)
    assert reader["verdict"] == "good"
    assert reader["text"].startswith("native reader: ")


@pytest.mark.all
def test_without_a_compiler_it_installs_and_says_once_that_it_reads_in_python(
    source, tmp_path
):
    python = bare_python(tmp_path / "fresh", with_pip=True)

    install(python, source, **NO_COMPILER)

    assert not list((tmp_path / "fresh").rglob("_reader*.so"))
    reader, logged = told_by_doctor(python)
    assert reader["verdict"] == "advice"
    assert reader["text"].startswith("Python reader: ")
    assert "install a C compiler" in reader["text"]
    assert logged.count("reading in Python") == 1
