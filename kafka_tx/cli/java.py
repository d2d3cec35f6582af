"""The Java that Spark will find, and advice if there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from kafka_tx.errors import ConfigError

OLDEST = 17
ADVICE = (
    f"Spark needs a Java runtime, {OLDEST} or newer. On Debian and Ubuntu: apt-get"
    f" install openjdk-{OLDEST}-jre-headless. One in another place is found by"
    " JAVA_HOME."
)
_ANSWER_S = 30


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its command and its major version."""

    command: str
    version: int


def find_java() -> Java:
    """The Java that Spark will start: of ``JAVA_HOME``, else the first on the path.

    Raises:
        ConfigError: There is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if command is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise ConfigError(
            f"there is no Java {where}. {ADVICE}", option="JAVA_HOME", value=home
        )
    java = Java(command, _major_version(command))
    if java.version < OLDEST:
        raise ConfigError(
            f"{command} is Java {java.version}, which is too old. {ADVICE}",
            option="JAVA_HOME",
            value=home,
        )
    return java


def _major_version(command: str) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that Spark starts too
            [command, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_ANSWER_S,
        )
        said = answer.stderr + answer.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise ConfigError(
            f"'{command} -version' gives no version ({said.strip()[:200]!r}). {ADVICE}",
            option="JAVA_HOME",
        )
    return int(found[1])
