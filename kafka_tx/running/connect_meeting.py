"""A directory of sockets, where processes of one Spark Connect server find each other.

Under Spark Connect ``foreachBatch`` runs in a Python process of the server that cannot
call the JVM. The planning process of the same query is another child of the same JVM.
The two processes have only the JVM and the ``tx.id`` in common:

1. Spark starts the process of ``foreachBatch`` first, which makes the directory.
2. The planning process finds the directory and puts its socket there, before it
   reports any batch to Spark.
3. The first batch comes. A single socket of this ``tx.id`` made since step 1 belongs to
   the query's own planner. Several such sockets mean that queries with the same
   ``tx.id`` were started at the same time, and nobody can tell their sockets apart.

A socket stays until the server has ended, also if its planner ends earlier: a client of
an ended planner must not reach another planner.

A socket's path may have about 100 characters. So names are short, and ``/tmp`` replaces
a temporary directory with a long name. Names contain the container, because containers
can share the directory, but do not see each other's processes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from kafka_tx.errors import ConfigError

_PREFIX = "ktx"
_JAVA = "java"

_LONGEST_PATH = 103
"""Most bytes of a socket's path on macOS; Linux allows four more."""

_OURS = 80
"""Most bytes that our names add to the path, with user ids of up to ten digits."""

_SHORT_PLACE = "/tmp"  # noqa: S108 - the directory in it is of this user alone


def meeting_place(*, make: bool) -> Path | None:
    """The directory of the JVM that has started this process, made if ``make`` says so.

    None: no JVM has started this process, or the directory is missing. In a classic
    session nobody makes it, so it may be missing for lack of a temporary directory.

    Raises:
        ConfigError: ``make``, and there is no temporary directory to make it in.
        PermissionError: The directory belongs to another user.
    """
    jvm = _jvm()
    if jvm is None:
        return None
    try:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) + _OURS > _LONGEST_PATH:
            parent = _SHORT_PLACE
        place = Path(parent, f"{_family()}-{jvm}")
        if make:
            _forget_ended(place.parent)
            place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        if make:
            raise _no_temporary_directory(error) from error
        return None
    try:
        check_owner(place)
    except FileNotFoundError:
        return None
    return place


def check_owner(place: Path) -> None:
    """Refuse a directory that others may have made, or may write to.

    Raises:
        FileNotFoundError: The directory is missing.
        PermissionError: It is not a directory of this user alone.
    """
    found = place.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or place.is_symlink():
        raise PermissionError(f"{place} is not a directory of this user alone")


def _no_temporary_directory(error: OSError) -> ConfigError:
    return ConfigError(
        "under Spark Connect, foreachBatch and the query's planner meet in a temporary"
        f" directory, and none can be made: {error}. Nothing was written. Set TMPDIR of"
        " the server to a directory that its user can write, with a path of at most"
        f" {_LONGEST_PATH - _OURS} bytes",
        option="TMPDIR",
    )


def new_socket(place: Path, tx_id: str) -> Path:
    """A new path, at which the planner in this process can listen."""
    return place / f"{_short(tx_id)}.{time.monotonic_ns():x}.{os.getpid():x}"


def sockets_since(place: Path, tx_id: str, since_ns: int) -> list[Path]:
    """Sockets of a ``tx.id`` made since a monotonic time, oldest first."""
    found = [
        (int(path.name.split(".")[1], 16), path)
        for path in place.glob(f"{_short(tx_id)}.*")
    ]
    return [path for at, path in sorted(found) if at >= since_ns]


def _short(tx_id: str) -> str:
    return hashlib.sha256(tx_id.encode()).hexdigest()[:12]


def _family() -> str:
    """The prefix of the names of this user's directories in this container."""
    try:
        container = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:  # no Linux, so no container
        container = 0
    return f"{_PREFIX}-{os.getuid()}-{container:x}"


# --- the JVM above this process ---


def _jvm() -> str | None:
    """Id and start of the nearest Java process among the parents; None: no such."""
    pid = os.getppid()
    while pid > 1:
        parent, started, name = _process(pid)
        if name == _JAVA:
            return _life(pid, started)
        pid = parent
    return None


def _life(pid: int, started: str) -> str:
    return f"{pid}-{crc32(started.encode()):08x}"


def _process(pid: int) -> tuple[int, str, str]:
    """Parent, start and command of a process; parent 0 if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return _process_by_ps(pid)
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return int(fields[1]), fields[19], name


def _process_by_ps(pid: int) -> tuple[int, str, str]:
    """``_process`` by the command ``ps``, for systems without /proc."""
    with suppress(OSError):
        columns = subprocess.run(  # noqa: S603 - a number is all that is given
            ["/bin/ps", "-o", "ppid=,lstart=,comm=", "-p", str(pid)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        ).stdout.split(maxsplit=6)
        if len(columns) == 7:
            started = "".join(filter(str.isalnum, "".join(columns[1:6])))
            return int(columns[0]), started, Path(columns[6].strip()).name
    return 0, "", ""


def _forget_ended(parent: Path) -> None:
    """Remove the directories of servers that have ended."""
    for place in parent.glob(f"{_family()}-*-*"):
        life = place.name.removeprefix(f"{_family()}-")
        pid = life.partition("-")[0]
        if pid.isdigit() and _life(int(pid), _process(int(pid))[1]) != life:
            shutil.rmtree(place, ignore_errors=True)
