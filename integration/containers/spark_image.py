"""An image as Spark's own, without any registry: Debian, Java, and PySpark's Spark.

Built once; it takes root and debootstrap, about a minute and a half, and 1.2 GB.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from integration.cluster.debian import install
from integration.containers.build_images import ImageBuilder
from kafka_tx.testing import spark_directory

DEBIAN_IMAGE = "kafka-tx/debian:12"
PACKAGES = ("openjdk-17-jre-headless", "ca-certificates", "procps")
RELEASE = "bookworm"

OF_THIS_MACHINE = (
    *("etc/ssl/certs", "etc/pip.conf", "etc/apt/sources.list"),
    *("etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/apt/keyrings"),
    "etc/resolv.conf",
)
"""How packages are fetched here; whoever has a registry of images needs none of it."""

SPARK_IMAGE = f"kafka-tx/spark:{version('pyspark')}"
PARTS = ("bin", "sbin", "jars", "python")


def build_spark_image(builder: ImageBuilder, work: Path) -> None:
    """Build it unless it is there."""
    if builder.has(SPARK_IMAGE):
        return
    if not builder.has(DEBIAN_IMAGE):
        builder.import_image(DEBIAN_IMAGE, _debian)
    spark = work / "spark"
    for part in PARTS:
        shutil.copytree(spark_directory() / part, spark / part, symlinks=True)
    builder.build_of(SPARK_IMAGE, "spark", spark, "spark")
    shutil.rmtree(spark)


def _debian(archive: tarfile.TarFile) -> None:
    if shutil.which("debootstrap") is None:
        install("debootstrap")
    with tempfile.TemporaryDirectory(prefix="kafka-tx-debian-") as name:
        root = Path(name)
        subprocess.run(
            [
                *("debootstrap", "--variant=minbase"),
                *(f"--include={','.join(PACKAGES)}", RELEASE, str(root), _mirror()),
            ],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        shutil.rmtree(root / "var/cache/apt")
        for part in OF_THIS_MACHINE:
            _take_over(Path("/", part), root / part)
        archive.add(root, ".")


def _take_over(found: Path, into: Path) -> None:
    if found.is_dir():
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(found, into)
    elif found.is_file():
        shutil.copyfile(found, into)
    else:
        into.unlink(missing_ok=True)


def _mirror() -> str:
    """Where this machine's Debian packages come from."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = dict(line.split() for line in targets.splitlines())
    if RELEASE not in found:
        raise SystemExit(f"This machine has no packages of Debian {RELEASE}.")
    return found[RELEASE]
