"""The Python processes that Spark starts: what they import, and from where."""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TypeVar
from zipimport import zipimporter

from pyspark import SparkFiles

from kafka_tx.kafka.collector import collector_paused
from kafka_tx.logs import event_log

_log = event_log(__name__)

_NEEDED = (
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.types",
    "pyspark.sql.worker.plan_data_source_read",
    "kafka_tx.spark.source.batch",
    "kafka_tx.spark.source.data_source",
    "kafka_tx.native.reader",
)

_OF_ONE_QUERY = {
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
}

_WORKERS, _INPUT = ("pyspark.worker", "__main__"), "infile"
"""The function ``main`` of this module runs a task, and has its input by this name."""

_CLOSED = getattr(select, "POLLRDHUP", 0)
"""The other end sends no more. Other systems than Linux tell later, or never."""

_Item = TypeVar("_Item")

_TOUCHED_S = 3600.0
_STREAMS_FOLDER = "streaming_job"
"""Where Spark's planning process of streams looks (``PythonStreamingSourceRunner``)."""


def preload() -> None:
    """Import everything a reading worker needs, and exempt it from garbage collection.

    None of these modules opens a connection. The threads of numpy and of Arrow's
    allocator survive a fork, and no other threads start.
    """
    for name in _NEEDED:
        import_module(name)
    import_module("kafka_tx.native.library").load()
    _drop_cached_zip_files()
    gc.collect()
    gc.freeze()


def run_daemon() -> None:
    """Fork workers for Spark until Spark ends this process."""
    import_module("pyspark.daemon").manager()


def is_for_one_query() -> bool:
    """Whether Spark has started this process for one query, and ends it with it."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    return program is not None and program.name in _OF_ONE_QUERY


@contextmanager
def modules_loading() -> Iterator[None]:
    """Import modules, and open what a process keeps, without the cycle collector.

    It would scan the whole heap several times. What a process of one query has loaded
    is exempt from later collections.
    """
    with collector_paused():
        yield
        if is_for_one_query():
            gc.freeze()


def whole(given: Iterator[_Item]) -> Iterator[_Item]:
    """What a task is given, up to its true end (executor).

    A worker outlives its JVM, or the end of its task there, for a moment. Streams of
    Arrow and of pickled objects end also where their connection is closed, so the
    worker would take some of its rows for all.

    Raises:
        ConnectionError: The connection is closed. Nobody sees it: the task is lost.
    """
    for item in given:  # noqa: UP028 - "yield from" would close what is read again
        yield item
    if _is_cut_off():
        raise ConnectionError("Spark has ended this task before all of its rows came")


def _is_cut_off() -> bool:
    number = _connection()
    if number is None:  # no task of Spark's, or one of a Spark that we do not know
        return False
    poller = select.poll()
    poller.register(number, _CLOSED)
    return bool(poller.poll(0))


def _connection() -> int | None:
    """The file number of the connection from which this worker reads its task.

    None also for a worker that no daemon has forked: it ends with its connection.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (
        frame.f_code.co_name == "main"
        and frame.f_globals.get("__name__") in _WORKERS
        and _INPUT in frame.f_locals
    ):
        frame = frame.f_back
    if frame is None:
        return None
    try:
        number: int = frame.f_locals[_INPUT].fileno()
    except OSError:  # it reads and writes, and has two
        return None
    return number


class SessionFolder:
    """Whether this process's session lives: Spark removes its folder of files.

    ``spark.stop()`` stops no query: each goes on to ask its planning process, and fails
    once there are records. Programs that clean up temporary folders see a fresh one.
    """

    def __init__(self) -> None:
        given = SparkFiles._root_directory
        root = Path(given or os.curdir)
        self._folder = root.parent if root.name == _STREAMS_FOLDER else root
        self._was_there = given is not None and self._folder.is_dir()
        self._touched_s = time.monotonic()

    def is_gone(self) -> bool:
        """Whether Spark has removed it since the process began. Never raises."""
        if time.monotonic() - self._touched_s > _TOUCHED_S:
            self._touched_s = time.monotonic()
            with suppress(OSError):
                os.utime(self._folder)
        try:
            self._folder.stat()
        except FileNotFoundError:
            return self._was_there
        except OSError:  # out of reach, maybe for a moment
            return False
        return False


def _drop_cached_zip_files() -> None:
    """Drop the import caches of zip files on the path, such as PySpark's own.

    A worker's first task makes Python read each cached zip file again, once for each
    package in the file: 200 to 300 ms. Later imports find their file without the cache.
    """
    cache = sys.path_importer_cache
    for path in [p for p, found in cache.items() if isinstance(found, zipimporter)]:
        del cache[path]


def show_to_streams(
    package_file: str = __file__, shipped_to: str | None = None
) -> None:
    """Let the planning process of streams import files from ``--py-files``.

    Spark puts shipped files into one directory (by default the one that it gave this
    worker), and the planning process searches an empty one below it: ``No module named
    'kafka_tx'``. So this links the empty one to the first, if the package was shipped:
    a zip file in any other directory belongs to the user and stays alone. Called, any
    number of times, by the worker that makes the data source for ``load()``, on the
    driver's machine. A failure is logged; the stream then finds no module.
    """
    archive = next((p for p in Path(package_file).parents if p.is_file()), None)
    root = shipped_to or SparkFiles._root_directory
    if archive is None or root is None or not archive.parent.samefile(root):
        return
    place = archive.parent / _STREAMS_FOLDER
    try:
        os.symlink(".", place)
    except FileExistsError:
        _link_into(place, archive)
    except OSError as error:
        _log.warning("streams will not find %s: %s", archive.name, error)


def _link_into(place: Path, archive: Path) -> None:
    """Link one archive into a directory that exists already."""
    try:
        os.symlink(archive, place / archive.name)
    except FileExistsError:
        return
    except OSError as error:
        _log.warning("streams will not find %s: %s", archive.name, error)
