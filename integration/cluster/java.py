"""The Java runtime that brokers and Spark need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from integration.cluster.versions import OLDEST_JAVA

ADVICE = (
    f"Install a Java runtime, {OLDEST_JAVA} or newer; on Debian and Ubuntu:"
    f" apt-get install openjdk-{OLDEST_JAVA}-jre-headless."
    " An installation elsewhere is found by JAVA_HOME."
)


class JavaMissingError(RuntimeError):
    """No Java, or one that is too old."""


@cache
def java() -> str:
    """Find the ``java`` command: in ``JAVA_HOME``, else on the path.

    Raises:
        JavaMissingError: There is none, or it is older than ``OLDEST_JAVA``.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None or shutil.which(command) is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise JavaMissingError(f"There is no 'java' command {where}. {ADVICE}")
    version = _major_version(command)
    if version < OLDEST_JAVA:
        raise JavaMissingError(f"{command} is Java {version}, too old. {ADVICE}")
    return command


def _major_version(command: str) -> int:
    answer = subprocess.run(
        [command, "-version"], capture_output=True, text=True, check=False
    )
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None:
        raise JavaMissingError(f"'{command} -version' says nothing useful. {ADVICE}")
    return int(found[1])


def main() -> None:
    """Print where Java is, or stop with what to install."""
    try:
        print(java())
    except JavaMissingError as missing:
        raise SystemExit(str(missing)) from None


if __name__ == "__main__":
    main()
