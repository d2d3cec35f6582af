"""Shows Spark's planning process of streams what was shipped with ``--py-files``.

Spark lays shipped files into one directory and tells its Python workers where. To the
process that plans a stream it names a directory below that one, of a constant name,
into which nobody lays anything: ``No module named 'kafka_tx'``. A link makes the two
one.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pyspark import SparkFiles

_log = logging.getLogger(__name__)

_PLACE_OF_STREAMS = "streaming_job"
"""What Spark calls the directory (``PythonStreamingSourceRunner``, 4.2 and 4.3)."""


def show_to_streams(
    package_file: str = __file__, shipped_to: str | None = None
) -> None:
    """Link what Spark names to streams, if this package was shipped and not installed.

    Called on the driver's machine, in the worker that makes the data source for
    ``load()``: before the planning process starts, and in Spark's directory of this
    application. Harmless when repeated. What cannot be linked is logged: the stream
    then says that it finds no module.

    Args:
        package_file: A file of the package.
        shipped_to: Spark's directory; by default what it told to this worker. A zip
            file elsewhere was put there by the user, and is left alone.
    """
    archive = _archive_of(Path(package_file))
    root = shipped_to or SparkFiles._root_directory
    if archive is None or root is None or not archive.parent.samefile(root):
        return
    place = archive.parent / _PLACE_OF_STREAMS
    try:
        os.symlink(".", place)
    except FileExistsError:
        _link_into(place, archive)
    except OSError as error:
        _log.warning("streams will not find %s: %s", archive.name, error)


def _archive_of(file: Path) -> Path | None:
    """The zip file that a module comes out of."""
    return next((parent for parent in file.parents if parent.is_file()), None)


def _link_into(place: Path, archive: Path) -> None:
    """Spark, or somebody else, has made the directory meanwhile."""
    try:
        os.symlink(archive, place / archive.name)
    except FileExistsError:
        return
    except OSError as error:
        _log.warning("streams will not find %s: %s", archive.name, error)
