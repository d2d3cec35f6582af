"""The image for Kubernetes: built as the page says, and a job in it reads Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from integration.cluster.jars import REPOSITORY
from integration.containers import prepare
from integration.containers.build_images import ImageBuilder
from integration.containers.spark_image import SPARK_IMAGE, build_spark_image

DOCKERFILE = REPOSITORY / "docs/platforms/Dockerfile"
IMAGE = "kafka-tx/orders:1"


@pytest.fixture
def builder(tmp_path: Path) -> ImageBuilder:
    """Podman with an image in place of Spark's."""
    try:
        prepare.main()
    except SystemExit as ended:
        if ended.code == prepare.NOT_HERE:
            pytest.skip("this machine cannot run containers")
        raise
    work = tmp_path / "images"
    work.mkdir()
    made = ImageBuilder(work)
    build_spark_image(made, work)
    return made


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder with the wheel, as ``make release-check`` leaves it."""
    place = tmp_path / "dist"
    wheel = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir")
    subprocess.run([sys.executable, *wheel, place, REPOSITORY], check=True)
    return place


@pytest.mark.all
@pytest.mark.timeout(2_400)  # it builds a Debian first
def test_the_image_is_built_and_runs_a_job(builder, dist, kafka, topic, produce):
    name = topic(2)
    produce(name, [str(n) for n in range(25)])
    stand_in = ("--build-arg", f"SPARK=localhost/{SPARK_IMAGE}")
    builder.build(IMAGE, dist, "--no-cache", "-f", DOCKERFILE, *stand_in)

    said = builder.run(
        IMAGE,
        *("/opt/spark/bin/spark-submit", "--master", "local[2]", "/job.py"),
        *(kafka.bootstrap_servers, name),
        places={REPOSITORY / "integration/operations/image_job.py": "/job.py"},
    )

    found = json.loads(said.splitlines()[-1])
    assert found["spark"] == version("pyspark")
    assert found["seen"] == list(range(25))
    assert found["txids"] == [1, 2, 3]
