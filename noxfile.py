"""The tests on every line of Spark that is supported: ``make matrix``.

Each session has an environment of its own, with that version of PySpark and otherwise
what the environment has that nox runs in: it is there in half a minute.
``nox -s "spark(4.0.5)"`` runs one of them, ``nox -s smoke`` the shortest part of each,
``nox -s moved`` jobs that go from one to another; more arguments go to pytest, after
``--``.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import nox

HERE = Path(__file__).parent
SPARKS = ("4.0.5", "4.1.4", "4.2.0", "4.3.0")
OTHERS = tuple(version for version in SPARKS if version != "4.2.0")
"""What `make test` does not run."""
VERSIONS = "integration/source/test_versions.py"
ICEBERG = "integration/sinks/test_iceberg.py"
MERGES = "integration/sinks/test_iceberg_statements.py"
EXAMPLE = (
    "integration/operations/test_examples.py"
    "::test_lakehouse_writes_each_order_once_although_its_query_dies"
)
SMOKE = (
    f"{VERSIONS}::test_a_task_knows_the_connection_of_its_rows",
    f"{VERSIONS}::test_every_batch_obeys_the_limit_also_the_first_after_a_restart",
    f"{VERSIONS}::test_a_failed_batch_comes_again_with_the_same_txid",
    f"{VERSIONS}::test_write_transaction_and_the_listener",
    f"{VERSIONS}::test_a_stream_writes_the_times_of_its_rows",
    f"{ICEBERG}::TestIceberg::test_commits_of_one_txid_at_the_same_time_are_one[rest]",
    f"{ICEBERG}::TestIceberg"
    "::test_a_driver_that_was_frozen_before_its_commit_writes_nothing[hadoop]",
    f"{MERGES}::test_a_merge_whose_driver_was_frozen_counts_nothing[rest]",
    f"{MERGES}"
    "::test_a_merge_is_known_after_expiry_and_counted_again_after_a_rollback[hadoop]",
)
FILES = (
    VERSIONS,
    "integration/source/test_listener.py",
    "integration/sinks/test_sink.py",
    "integration/sinks/test_sink_replays.py",
    "integration/sinks/test_exactly_once.py",
    "integration/source/test_crashes.py",
    "integration/topologies/test_topology.py",
    "integration/topologies/test_spout.py",
)
"""What must work, sinks, kills, topologies."""
WHOLE = (
    "integration/source/test_connect.py",
    "integration/source/test_source_faults.py",
    "integration/source/test_numbering.py",
    "integration/source/test_source_parity.py",
    "integration/source/test_late_binding.py",
    "integration/source/test_schemas.py",
    "integration/sinks/test_state.py",
    "integration/sinks/test_lakehouse.py",
    ICEBERG,
    MERGES,
    "integration/sinks/test_table_connect.py",
    "integration/sinks/test_table_doctor.py",
    "integration/sinks/test_table_facts.py",
    f"{EXAMPLE}[process-iceberg]",
)
"""Source, parity with Spark's own connector, maps and tables, with tests marked `all`.

The Spark of `make test-all` has no Iceberg.
"""
MOVED = "integration/operations/test_moved.py"
EVERYTHING = {"KAFKA_TX_ALL": "1"}

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["spark", "moved"]


def _install(session: nox.Session, spark: str) -> None:
    session.install("--quiet", "--no-compile", "--no-deps", f"pyspark=={spark}")
    _share_the_rest(Path(session.virtualenv.location))
    session.run(
        "python", "-c", f"import pyspark as p; assert p.__version__ == '{spark}'"
    )
    session.run("python", "-m", "integration.cluster.jars")  # several at a time


def _test(
    session: nox.Session, report: str, files: tuple[str, ...], **environment: str
) -> None:
    session.run(
        *("python", "-m", "pytest", *files),
        *(f"--junitxml=.cache/{report}.xml", *session.posargs),
        env=environment,
    )


def _share_the_rest(environment: Path) -> None:
    """Put what is installed beside nox behind what the environment itself has."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = environment / "lib" / python / "site-packages"
    shared = sysconfig.get_path("purelib")
    line = f"import site; site.addsitedir({shared!r})\n"
    (place / "shared.pth").write_text(line)


@nox.session
@nox.parametrize("version", SPARKS, ids=SPARKS)
def spark(session: nox.Session, version: str) -> None:
    """Everything of the matrix on one version."""
    _install(session, version)
    _test(session, f"matrix/{version}", FILES)
    _test(session, f"matrix/{version}-whole", WHOLE, **EVERYTHING)


@nox.session
@nox.parametrize("version", OTHERS, ids=OTHERS)
def smoke(session: nox.Session, version: str) -> None:
    """What `.ci/run` looks at on the versions that `make test` does not run."""
    _install(session, version)
    _test(session, f"smoke/{version}", SMOKE)


@nox.session(python=False)
def moved(session: nox.Session) -> None:
    """Jobs that move from one version to another, in the environments of `spark`."""
    for version in (SPARKS[0], SPARKS[-1]):
        session.run(
            *(sys.executable, "-m", "nox", "--install-only", "-s", f"spark({version})")
        )
    command = (sys.executable, "-m", "pytest", MOVED, *session.posargs)
    session.run(*command, env=EVERYTHING)
