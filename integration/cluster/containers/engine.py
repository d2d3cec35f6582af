"""The container engine: one that is there, or Podman started for this run."""

from __future__ import annotations

import atexit
import os
import resource
import shutil
from contextlib import closing
from functools import cache
from pathlib import Path

import docker
from docker.errors import DockerException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.labels import SESSION_ID

from integration.cluster.child import Child, WorkDirectory
from integration.cluster.keeper import Keeper
from integration.cluster.waiting import NotReadyError, wait_until

DEBIAN_PACKAGES = (
    *("podman", "runc", "conmon", "netavark", "aardvark-dns"),
    *("iptables", "busybox-static"),
)

ADVICE = (
    "No container engine answers. Start Docker, name one in DOCKER_HOST, or install"
    " Podman; on Debian and Ubuntu: apt-get install --no-install-recommends"
    f" {' '.join(DEBIAN_PACKAGES)}"
)

LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
ENOUGH = 10_000
"""Files and processes a container may have; a runtime may refuse the hard limit."""


@cache
def connect() -> None:
    """Make an engine answer to testcontainers, for the rest of this run.

    testcontainers' own clean-up container is not needed: the keeper does its work.

    Raises:
        NotReadyError: There is no engine; the text says what to install.
    """
    testcontainers_config.ryuk_disabled = True
    if not answers():
        _start_podman()
    Keeper.of_this_run().keep_containers(SESSION_ID)


def uses_podman() -> bool:
    """Whether the engine is Podman, which finds images only if they were built here."""
    return "podman" in os.environ.get("DOCKER_HOST", "")


def podman_environment(place: Path) -> dict[str, str]:
    """Settings that let Podman start containers where limits cannot be raised."""
    words = []
    for name, number in LIMITS.items():
        hard = resource.getrlimit(number)[1]
        limit = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
        words.append(f'"{name}={limit}:{limit}"')
    lines = ["[containers]", f"default_ulimits = [{', '.join(words)}]"]
    has_old_cgroups = not Path("/sys/fs/cgroup/cgroup.controllers").exists()
    if has_old_cgroups and shutil.which("runc"):
        lines += ["[engine]", 'runtime = "runc"']
    file = place / "containers.conf"
    file.write_text("\n".join(lines) + "\n")
    return {"CONTAINERS_CONF": str(file)}


def answers() -> bool:
    """Whether there is an engine: Docker's usual one, or that of DOCKER_HOST."""
    try:
        client = docker.from_env(timeout=10)
    except DockerException:
        return False
    with closing(client):
        return bool(client.ping())


def _start_podman() -> None:
    podman = shutil.which("podman")
    if podman is None:
        raise NotReadyError(ADVICE)
    place = WorkDirectory("podman").path
    address = f"unix://{place / 'podman.sock'}"
    service = Child(
        [podman, "system", "service", "--time=0", address],
        place / "output.log",
        environment=podman_environment(place),
    )

    def leave() -> None:
        """Let the keeper remove containers while there is a service to ask."""
        Keeper.of_this_run().end_all()
        service.kill()

    atexit.register(leave)
    os.environ["DOCKER_HOST"] = address
    wait_until(
        "Podman answers",
        lambda: (place / "podman.sock").exists() and answers(),
        complain=lambda: None if service.is_running else service.tail(),
    )
