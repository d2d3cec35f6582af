"""Speculation: two copies of one task at once, which commits do not survive.

Each copy of a task that writes a part of a batch takes the part's transactional id, and
so ends the transaction of the other copy.
"""

from __future__ import annotations

from pyspark import TaskContext
from pyspark.sql import SparkSession

from kafka_tx.errors import ConfigError
from kafka_tx.spark.versions.names import is_classic

_NAME = "spark.speculation"


def refuse_speculation(spark: SparkSession, committing: str, way_out: str = "") -> None:
    """Refuse a session whose tasks may run twice at once (driver).

    Spark goes by what its SparkContext was started with. A session may show something
    else: a session that shows ``true`` is refused too, as its tasks are told so. Under
    Spark Connect the session shows what the server was started with. The text says what
    commits in tasks, and after it a further way out: ``; or …``.

    Raises:
        ConfigError: Speculation is on.
    """
    shown = [spark.conf.get(_NAME, "false")]
    if is_classic(spark):
        shown.append(spark.sparkContext.getConf().get(_NAME, "false"))
    if any(map(_is_on, shown)):
        raise _refused(committing, way_out)


def refuse_speculative_tasks(committing: str) -> None:
    """As ``refuse_speculation``, by what Spark tells the task that calls (executor).

    Spark gives tasks of DataFrames what their session shows.

    Raises:
        ConfigError: Speculation is on.
    """
    context = TaskContext.get()
    if context is not None and _is_on(context.getLocalProperty(_NAME)):
        raise _refused(committing)


def _is_on(value: object) -> bool:
    return str(value).strip().lower() == "true"


def _refused(committing: str, way_out: str = "") -> ConfigError:
    return ConfigError.illegal(
        _NAME,
        "true",
        f"false with {committing}",
        "Speculation would commit a batch in two tasks at once, each of which fences"
        " the other. Nothing of this batch was written. Start the SparkContext (under"
        " Spark Connect: the server) with false; a running one does not change"
        f" it{way_out}.",
    )
