"""The tests on every line of Spark that is supported: ``make matrix``.

Each session has an environment of its own. ``nox -s spark-4.0.5`` runs one of them,
``nox -s smoke`` the shortest part of each; more arguments go to pytest, after ``--``.
"""

from __future__ import annotations

import nox

SPARKS = ("4.0.5", "4.1.4", "4.2.0", "4.3.0")
SMOKE = ("integration/test_versions.py",)
FILES = (
    *SMOKE,
    "integration/test_source_parity.py",
    "integration/test_source_faults.py",
    "integration/test_numbering.py",
    "integration/test_late_binding.py",
    "integration/test_listener.py",
    "integration/test_sink.py",
    "integration/test_sink_replays.py",
    "integration/test_exactly_once.py",
    "integration/test_crashes.py",
    "integration/test_state.py",
    "integration/test_topology.py",
    "integration/test_spout.py",
)
"""Source, sinks, kills, parity with Spark's own connector of the line, topologies."""

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["spark"]


def _run(session: nox.Session, spark: str, files: tuple[str, ...]) -> None:
    session.install("--quiet", f"pyspark=={spark}", "--editable", ".[postgresql,test]")
    report = f".cache/matrix/{spark}.xml"
    session.run("pytest", *files, f"--junitxml={report}", *session.posargs)


@nox.session
@nox.parametrize("version", SPARKS, ids=SPARKS)
def spark(session: nox.Session, version: str) -> None:
    """Everything of the matrix on one version."""
    _run(session, version, FILES)


@nox.session
@nox.parametrize("version", [v for v in SPARKS if v != "4.2.0"])
def smoke(session: nox.Session, version: str) -> None:
    """What `.ci/run` looks at on the versions that `make test` does not run."""
    _run(session, version, SMOKE)
