"""Programs that tests need and Debian has: found, or installed where that is allowed.

``python -m integration.cluster.debian`` gets PostgreSQL, its pooler, Prometheus and a
browser. Prometheus is only unpacked into the cache, so nothing is installed and no
service starts; the others are installed, which takes root, with no service started.
Tests can do without a browser, and are skipped then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from integration.cluster.jars import cache_directory

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_SERVICES = Path("/usr/sbin/policy-rc.d")
DENY = "#!/bin/sh\nexit 101\n"


class ProgramMissingError(RuntimeError):
    """A program is not there; the text says which package to install."""


def postgresql_directory() -> Path:
    """Where the newest PostgreSQL server's programs are.

    Raises:
        ProgramMissingError: There is no server on this machine.
    """
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    if newest is None:
        raise ProgramMissingError(_advice("PostgreSQL's 'initdb'", "postgresql"))
    return newest.parent


def pgbouncer_program() -> Path:
    """Where PostgreSQL's pooler is; raises ProgramMissingError."""
    return _program("pgbouncer", "pgbouncer")


def mariadb_program(name: str = "mariadbd") -> Path:
    """Where a program of MariaDB's server is; raises ProgramMissingError."""
    return _program(name, "mariadb-server")


def redis_program() -> Path:
    """Where Redis is; raises ProgramMissingError."""
    return _program("redis-server", "redis-server")


def _program(name: str, package: str) -> Path:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        raise ProgramMissingError(_advice(f"'{name}'", package))
    return Path(found)


def browser_program() -> Path:
    """Where Chromium is, by whichever name a distribution gives it.

    Raises:
        ProgramMissingError: It is not on this machine.
    """
    found = (shutil.which(name) for name in BROWSERS)
    program = next(filter(None, found), None)
    if program is None:
        raise ProgramMissingError(_advice("Chromium", "chromium"))
    return Path(program)


def prometheus_program(name: str = "prometheus") -> Path:
    """Where ``prometheus`` or ``promtool`` is; unpacked into the cache if need be.

    Raises:
        ProgramMissingError: It is not there and Debian's package cannot be fetched.
    """
    on_path = shutil.which(name)
    if on_path is not None:
        return Path(on_path)
    place = cache_directory() / "prometheus"
    if not place.is_dir():
        _unpack("prometheus", place)
    return place / "usr" / "bin" / name


def _unpack(package: str, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetch-") as name:
        work = Path(name)
        download = ["apt-get", "download", "-o", "APT::Sandbox::User=root", package]
        if not (_runs(download, work) or (_is_root() and _update_and(download, work))):
            raise ProgramMissingError(_advice(f"'{package}'", package))
        (archive,) = work.glob("*.deb")
        if not _runs(["dpkg-deb", "-x", str(archive), "unpacked"], work):
            raise ProgramMissingError(_advice(f"'{package}'", package))
        if not place.is_dir():
            (work / "unpacked").rename(place)


def install(*packages: str) -> None:
    """Install Debian packages, without starting their services.

    Raises:
        ProgramMissingError: Not root, no apt, or apt failed.
    """
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    advice = _advice(f"'{' '.join(packages)}'", *packages)
    if not _is_root() or shutil.which("apt-get") is None:
        raise ProgramMissingError(advice)
    with _without_services():
        if not (_runs(command) or _update_and(command)):
            raise ProgramMissingError(f"apt-get failed. {advice}")


@contextmanager
def _without_services() -> Iterator[None]:
    """Debian's own switch; one that somebody else has set is left alone."""
    if NO_SERVICES.exists():
        yield
        return
    NO_SERVICES.write_text(DENY)
    NO_SERVICES.chmod(0o755)
    try:
        yield
    finally:
        NO_SERVICES.unlink()


def _update_and(command: Sequence[str], directory: Path | None = None) -> bool:
    return _runs(["apt-get", "update"]) and _runs(command, directory)


def _runs(command: Sequence[str], directory: Path | None = None) -> bool:
    if shutil.which(command[0]) is None:
        return False
    finished = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        print(finished.stderr, file=sys.stderr)
    return finished.returncode == 0


def _is_root() -> bool:
    return os.geteuid() == 0


def _advice(what: str, *packages: str) -> str:
    return (
        f"{what} is not on this machine. On Debian and Ubuntu, as root:"
        f" apt-get install --no-install-recommends {' '.join(packages)}"
    )


def main() -> None:
    """Get what the tests need, or stop and say what to install."""
    try:
        for find, package in (
            (postgresql_directory, "postgresql"),
            (pgbouncer_program, "pgbouncer"),
            (mariadb_program, "mariadb-server"),
            (redis_program, "redis-server"),
        ):
            _found_or_installed(find, package)
        prometheus_program()
    except ProgramMissingError as missing:
        raise SystemExit(str(missing)) from None
    try:
        _found_or_installed(browser_program, "chromium")
    except ProgramMissingError as missing:
        print(f"Tests of pages will be skipped. {missing}", file=sys.stderr)


def _found_or_installed(find: Callable[[], Path], package: str) -> None:
    try:
        find()
    except ProgramMissingError:
        install(package)
        find()


if __name__ == "__main__":
    main()
