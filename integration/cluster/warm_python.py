"""A Python that Spark starts again and again, with its imports done once.

Each query begins with a planning process of its own, each batch that is read or written
with others, which compute for a second until they have imported Spark and this package.
With ``WarmPython.launcher`` as ``spark.pyspark.python`` they are forked from one that
has imported them: a planning process of a query, and Spark's daemons with all that they
fork. Such a process has the arguments, environment, folder and files of the one that
Spark started, takes its SIGTERM, and dies with it. All other programs are started as
ever. Its parent is not Spark's JVM, which those of a Connect server must have.
"""

from __future__ import annotations

import array
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from integration.cluster.child import Child, WorkDirectory
from integration.cluster.jars import REPOSITORY
from integration.cluster.waiting import wait_until

PLANNING = "pyspark.sql.streaming.python_streaming_source_runner"
DAEMON = "pyspark.daemon"
IMPORTED = (
    "kafka_tx.native.reader",
    "kafka_tx.sink_assembly",
    "kafka_tx.spark.sinks.writer",
    "kafka_tx.spark.source.batch",
    "kafka_tx.spark.source.data_source",
    "kafka_tx.spark.source.stream",
    "kafka_tx.sql.store",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.types",
    "pyspark.worker",
    PLANNING,
)
LAUNCHER = """\
#!{python} -ISE
import json, os, signal, socket, sys
if sys.argv[1:2] != ["-m"] or sys.argv[2] not in {programs}:
    os.execv("{python}", ["{python}", *sys.argv[1:]])
told = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect("{address}")
    socket.send_fds(asking, [len(told).to_bytes(4, "big")], [0, 1, 2])
    asking.sendall(told)
    for fd in (0, 1, 2):
        os.close(fd)
    signal.signal(signal.SIGTERM, lambda number, _: asking.send(bytes([number])))
    os._exit((asking.recv(1) or b"\\1")[0])
"""


class WarmPython:
    """The process that is forked, and the program that asks it.

    ``build`` is the folder whose package it imports.
    """

    def __init__(self, build: Path = REPOSITORY) -> None:
        self._build = build
        self._work = WorkDirectory("python")
        self._address = self._work.path / "asked"
        self.launcher = self._work.path / "python"
        self._child: Child | None = None

    def start(self) -> None:
        """Return when it can be asked."""
        self.launcher.write_text(
            LAUNCHER.format(
                python=sys.executable,
                programs=(PLANNING, DAEMON),
                address=self._address,
            )
        )
        self.launcher.chmod(0o755)
        child = self._child = Child(
            [sys.executable, "-m", "integration.cluster.warm_python", self._address],
            self._work.path / "log",
            environment={"PYTHONHASHSEED": "0"},  # as Spark sets it for workers
            directory=self._build,
        )
        wait_until(
            "Python is warm",
            self._address.exists,
            complain=lambda: None if child.is_running else child.tail(),
        )

    def stop(self) -> None:
        """End it; its children end with those who asked."""
        if self._child is not None:
            self._child.kill()
        self._work.delete()


# --- the process that is forked -----------------------------------------------------


def main() -> None:
    """Import, and be forked by everybody who asks."""
    from pyspark.sql import worker

    planning = [
        f"{worker.__name__}.{found.name}" for found in iter_modules(worker.__path__)
    ]
    for name in (*IMPORTED, *planning):
        import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, lambda *_: bury())
    with socket.socket(socket.AF_UNIX) as listening:
        beside = sys.argv[1] + "-made"
        listening.bind(beside)
        listening.listen()
        Path(beside).rename(sys.argv[1])
        while True:
            asked, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                os._exit(become(asked))
            asked.close()


def bury() -> None:
    """Wait for children that have ended: what they took counts as this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(asked: socket.socket) -> int:
    """What the process that asks would have been; what it is to end with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    (program, *arguments), folder, environment = take_over(asked)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder, *filter(None, given)]
    if program == DAEMON:  # it forks, and ends when Spark closes its input
        os.register_at_fork(after_in_child=asked.close)
    else:
        threading.Thread(target=die_with, args=(asked,), daemon=True).start()
    sys.argv = [program, *arguments]
    sys.modules.pop(program, None)
    code = 0
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python does
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    asked.send(bytes([code & 0xFF]))
    return code


def take_over(asked: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Take the files of the process that asks; its arguments, folder, environment."""
    size = array.array("i").itemsize * 3
    head, files, _, _ = socket.recv_fds(asked, 4, size)
    for ours, theirs in enumerate(files):
        os.dup2(theirs, ours)
        os.close(theirs)
    length = int.from_bytes(head, "big")
    text = b""
    while len(text) < length:
        text += asked.recv(length - len(text))
    arguments, folder, environment = json.loads(text)
    return arguments, folder, environment


def die_with(asked: socket.socket) -> None:
    """Take the signals of the process that Spark knows; killed like it at its end."""
    while number := asked.recv(1):
        os.kill(os.getpid(), number[0])
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
