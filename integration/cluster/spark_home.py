"""Where tests' sessions find Spark: without what only costs time.

Standalone clusters have all of it, as users' have, in ``make test-all``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

from integration.cluster.jars import cache_directory
from kafka_tx.testing import quick_spark, spark_directory
from kafka_tx.testing.process_tree import UNUSED_JARS


@contextmanager
def launched_quickly(jars: Sequence[Path] = ()) -> Iterator[None]:
    """Let a session start from here; what the user has set stays as it is.

    Args:
        jars: Put behind Spark's own. An archive has the classes of these, and none of
            those that ``spark.jars`` names.
    """
    wanted = environment() | _behind_all_others(jars)
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@cache
def environment() -> dict[str, str]:
    """Variables of a program that starts a session; makes the folder of links."""
    mark = hashlib.sha256(f"{spark_directory()} without {UNUSED_JARS}".encode())
    name = f"{version('pyspark')}-{mark.hexdigest()[:12]}"
    return quick_spark(cache_directory() / "spark" / name)


def home() -> Path:
    """The folder of links; made if absent."""
    return Path(environment()["SPARK_HOME"])


def left_out() -> dict[str, str]:
    """A variable that puts the jars that ``home()`` lacks behind all others.

    A server of Spark Connect needs their classes, whatever it is asked; an archive of
    classes that was made without them is as good as ever.
    """
    return _behind_all_others(sorted((spark_directory() / "jars").glob(UNUSED_JARS)))


def _behind_all_others(jars: Sequence[Path]) -> dict[str, str]:
    return {"SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, jars))} if jars else {}


def session_jars() -> list[Path]:
    """Spark's jars in ``home()``, by name."""
    return sorted((home() / "jars").glob("*.jar"))
