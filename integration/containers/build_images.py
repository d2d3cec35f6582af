"""Builds the Kafka and ZooKeeper images for Podman, without any registry of images.

They hold this machine's Java and C library, a shell, and the cached jars; places,
variables and commands are those of the official images, so tests need not know which
they run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from integration.cluster.containers.engine import podman_environment
from integration.cluster.jars import jar_directory
from integration.cluster.java import java
from integration.cluster.versions import (
    KAFKA_IMAGE,
    KAFKA_JARS,
    KAFKA_WITH_ZOOKEEPER_IMAGE,
    KAFKA_WITH_ZOOKEEPER_JARS,
    ZOOKEEPER_IMAGE,
)

HERE = Path(__file__).parent
JAVA_IMAGE = "kafka-tx/java:1"
"""Nothing but Java, a shell, and what they need."""
IMAGES = (
    (KAFKA_IMAGE, "kafka", KAFKA_JARS),
    (KAFKA_WITH_ZOOKEEPER_IMAGE, "kafka", KAFKA_WITH_ZOOKEEPER_JARS),
    (ZOOKEEPER_IMAGE, "zookeeper", KAFKA_WITH_ZOOKEEPER_JARS),
)

NOT_NEEDED = {"jmods", "include", "man", "legal", "docs", "src.zip", "ct.sym"}
"""Parts of a Java installation that only compilers and readers use."""

HEADLESS = re.compile(r"lib(awt|jawt|splashscreen|jsound|fontmanager|freetype|j2pcsc)")
"""Java's libraries for screens and sound, whose own libraries stay out."""


class ImageBuilder:
    """Podman's command line, with settings that work on this machine."""

    def __init__(self, work: Path) -> None:
        podman = shutil.which("podman")
        if podman is None:
            raise SystemExit("Podman is missing. On Debian: apt-get install podman.")
        self._podman = podman
        self._work = work
        self._environment = os.environ | podman_environment(work)

    def has(self, image: str) -> bool:
        answer = subprocess.run(
            [self._podman, "image", "exists", f"localhost/{image}"],
            env=self._environment,
            check=False,
        )
        return answer.returncode == 0

    def runs(self, image: str) -> str | None:
        """Start a container for a moment; say why it does not start."""
        answer = subprocess.run(
            [self._podman, "run", "--rm", f"localhost/{image}", "true"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return answer.stderr.strip() if answer.returncode else None

    def import_image(self, image: str, fill: Callable[[tarfile.TarFile], None]) -> None:
        """Make an image of the files that ``fill`` puts into an archive."""
        with subprocess.Popen(
            [self._podman, "import", "--quiet", "-", f"localhost/{image}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=self._environment,
        ) as podman:
            assert podman.stdin is not None
            with tarfile.open(fileobj=podman.stdin, mode="w|") as archive:
                fill(archive)
            podman.stdin.close()
        if podman.returncode:
            raise SystemExit(f"podman import failed ({podman.returncode}).")

    def build_of(self, image: str, context: str, more: Path, name: str) -> None:
        """Build a folder beside this file together with another one."""
        place = self._work / image.replace("/", "-")
        shutil.copytree(HERE / context, place)
        shutil.copytree(more, place / name)
        self.build(image, place)
        shutil.rmtree(place)

    def build(self, image: str, context: Path, *flags: str | Path) -> None:
        """Build a context of files; it reaches what this machine reaches."""
        host = ("--network", "host")
        tag = ("--tag", f"localhost/{image}")
        answer = subprocess.run(
            [self._podman, "build", *host, *tag, *flags, context],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            check=False,
        )
        if answer.returncode:
            raise SystemExit(
                f"podman build of {image} failed:\n{answer.stdout[-4000:]}"
            )

    def run(self, image: str, *command: str, places: Mapping[Path, str]) -> str:
        """What a command prints in a container that is on this machine's network.

        Raises:
            SystemExit: It fails; with the end of what it printed.
        """
        mounted = [w for p, into in places.items() for w in ("-v", f"{p}:{into}:ro")]
        answer = subprocess.run(
            [
                *(self._podman, "run", "--rm", "--network", "host", *mounted),
                *(f"localhost/{image}", *command),
            ],
            capture_output=True,
            text=True,
            env=self._environment,
            check=False,
        )
        if answer.returncode:
            said = answer.stdout + answer.stderr
            raise SystemExit(f"{image} ended with {answer.returncode}:\n{said[-4000:]}")
        return answer.stdout


def build_missing() -> None:
    """Build every image that Podman does not have yet."""
    with tempfile.TemporaryDirectory(prefix="kafka-tx-images-") as work:
        builder = ImageBuilder(Path(work))
        missing = [each for each in IMAGES if not builder.has(each[0])]
        if missing:
            began = time.monotonic()
            builder.import_image(JAVA_IMAGE, _fill_base)
            _say(JAVA_IMAGE, began)
        for image, context, jars in missing:
            began = time.monotonic()
            builder.build_of(image, context, jar_directory(jars), "jars")
            _say(image, began)


def _say(image: str, began: float) -> None:
    print(f"built {image} ({time.monotonic() - began:.1f} s)", file=sys.stderr)


# --- the base image -----------------------------------------------------------------


def _fill_base(archive: tarfile.TarFile) -> None:
    home = Path(java()).resolve().parents[1]
    busybox = shutil.which("busybox")
    if busybox is None:
        raise SystemExit(
            "busybox is missing. On Debian: apt-get install busybox-static."
        )
    for name in ("etc", "root", "proc", "sys", "dev", "run", "var", "tmp"):
        _add_directory(archive, name, 0o1777 if name == "tmp" else 0o755)
    _add_text(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    _add_text(archive, "etc/group", "root:x:0:\n")
    _add_text(archive, "etc/nsswitch.conf", "hosts: files dns\n")
    archive.add(Path(busybox).resolve(), "bin/busybox")
    for applet in _output(busybox, "--list").split():
        if applet != "busybox":
            _add_link(archive, f"bin/{applet}", "busybox")
    programs = [Path(busybox), home / "bin/java", *_libraries_of_java(home)]
    for library in sorted({path for each in programs for path in _needed(each)}):
        if home not in library.parents:
            _add_file(archive, library, str(library).lstrip("/"))
    for file in _files_of_java(home):
        _add_file(archive, file, f"opt/java/{file.relative_to(home)}")


def _files_of_java(home: Path) -> Iterator[Path]:
    for directory, below, files in os.walk(home):
        below[:] = [name for name in below if name not in NOT_NEEDED]
        for name in files:
            path = Path(directory, name)
            if name not in NOT_NEEDED and path.exists():
                yield path


def _libraries_of_java(home: Path) -> list[Path]:
    libraries = (home / "lib").rglob("*.so")
    return [path for path in libraries if not HEADLESS.match(path.name)]


def _needed(program: Path) -> set[Path]:
    """The libraries that the loader looks for, and the loader."""
    listing = subprocess.run(
        ["ldd", program], capture_output=True, text=True, check=False
    ).stdout
    found = re.findall(r"(/\S+) \(0x", listing)
    return {Path(os.path.normpath(path)) for path in found}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _add_file(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add what a path leads to, so that links out of the image become files."""
    real = path.resolve()
    member = archive.gettarinfo(real, name)
    member.uid = member.gid = 0
    with real.open("rb") as file:
        archive.addfile(member, file)


def _add_directory(archive: tarfile.TarFile, name: str, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    archive.addfile(member)


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        member = archive.gettarinfo(file.name, name)
        member.mode = 0o644
        with Path(file.name).open("rb") as content:
            archive.addfile(member, content)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    archive.addfile(member)
