"""Where tests' sessions find Spark: PySpark's files without what only costs time.

* Spark puts ``python/lib/pyspark.zip`` before everything else on the path of its Python
  processes. Nothing compiled is kept for sources in a zip file: each process compiles
  PySpark anew, for more than a second. Where the file is absent, the same sources are
  imported from the installed package.
* MLlib registers its functions with every session through Scala's reflection, which
  takes half of a session's start. Spark Connect has it.

Standalone clusters have both, as users' have, in ``make test-all``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path

from integration.cluster.jars import cache_directory, spark_directory
from integration.cluster.java import QUICK_START

UNUSED = "spark-mllib_*.jar"
LAUNCHER = {"SPARK_LAUNCHER_OPTS": " ".join(QUICK_START)}
"""For the short Java process that only puts the session's command line together."""


@contextmanager
def launched_quickly() -> Iterator[None]:
    """Let a session start from here; what the user has set stays as it is."""
    wanted = {"SPARK_HOME": str(home()), **LAUNCHER}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@cache
def home() -> Path:
    """The folder of links; made if absent."""
    installed = spark_directory().resolve()
    mark = hashlib.sha256(f"{installed} without {UNUSED}".encode()).hexdigest()[:12]
    place = cache_directory() / "spark" / f"{version('pyspark')}-{mark}"
    (place / "jars").mkdir(parents=True, exist_ok=True)
    links = {place / "bin": installed / "bin"}
    for jar in (installed / "jars").iterdir():
        if not jar.match(UNUSED):
            links[place / "jars" / jar.name] = jar
    for link, target in links.items():
        with contextlib.suppress(FileExistsError):
            link.symlink_to(target)
    return place


def left_out() -> dict[str, str]:
    """A variable that puts the jars that ``home()`` lacks behind all others.

    A server of Spark Connect needs their classes, whatever it is asked; an archive of
    classes that was made without them is as good as ever.
    """
    jars = sorted((spark_directory() / "jars").glob(UNUSED))
    return {"SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, jars))}


def session_jars() -> list[Path]:
    """Spark's jars in ``home()``, by name."""
    return sorted((home() / "jars").glob("*.jar"))
