"""Where tests' sessions find Spark: PySpark's files without its zipped sources.

Spark puts ``python/lib/pyspark.zip`` before everything else on the path of its Python
processes. Nothing compiled is kept for sources in a zip file, so each process compiles
PySpark anew, for more than a second. Where the file is absent, the same sources are
imported from the installed package. Standalone clusters have the zip file, as users'
have, in ``make test-all``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from integration.cluster.jars import cache_directory, spark_directory

LINKED = ("bin", "jars")
LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Of the short Java process that only puts the session's command line together."""


@contextmanager
def launched_quickly() -> Iterator[None]:
    """Let a session start from here; what the user has set stays as it is."""
    wanted = {"SPARK_HOME": str(home()), "SPARK_LAUNCHER_OPTS": LAUNCHER}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def home() -> Path:
    """The folder of links; made if absent."""
    installed = spark_directory().resolve()
    mark = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    place = cache_directory() / "spark" / f"{version('pyspark')}-{mark}"
    place.mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        with contextlib.suppress(FileExistsError):
            (place / name).symlink_to(installed / name)
    return place


def session_jars() -> list[Path]:
    """Spark's jars, by name."""
    return sorted((spark_directory().resolve() / "jars").glob("*.jar"))
