"""PySpark's files without what only costs time where Spark is started often.

* Spark puts ``python/lib/pyspark.zip`` before everything else on the path of its Python
  processes. Nothing compiled is kept for sources in a zip file, so each process
  compiles PySpark anew, for more than a second. Without the file, the same sources are
  imported from the installed package.
* MLlib registers its functions with each session through Scala's reflection, which
  takes half of a session's start.
"""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

UNUSED_JARS = "spark-mllib_*.jar"
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Options of a JVM that lives for a minute: it starts in half the time, and code that
runs for long would be slower."""


def quick_checkpoints() -> dict[str, str]:
    """A setting of Spark's for streams whose checkpoints are on a local disk.

    Without Hadoop's native library the usual class starts 20 processes for each batch
    (``chmod``, ``readlink``): half of a small batch's time. This one, which Spark has
    for file systems that know no other way, starts 4. Both write a file beside its
    place, and rename it.
    """
    package = "" if version("pyspark").startswith("4.0.") else "checkpointing."
    return {
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming."
            f"{package}FileSystemBasedCheckpointFileManager"
        )
    }


def spark_directory() -> Path:
    """Where PySpark is installed; it is not imported."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).resolve().parent


def quick_spark(place: Path) -> dict[str, str]:
    """Make a folder of links to PySpark's files.

    Spark Connect and MLlib do not work with it.

    Args:
        place: The folder; links that are there already stay.

    Returns:
        Variables for the environment of a program that starts a session.
    """
    installed = spark_directory()
    (place / "jars").mkdir(parents=True, exist_ok=True)
    links = {place / "bin": installed / "bin"}
    for jar in (installed / "jars").iterdir():
        if not jar.match(UNUSED_JARS):
            links[place / "jars" / jar.name] = jar
    for link, target in links.items():
        with contextlib.suppress(FileExistsError):
            link.symlink_to(target)
    return {"SPARK_HOME": str(place), "SPARK_LAUNCHER_OPTS": " ".join(QUICK_JAVA)}
