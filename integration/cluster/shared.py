"""A cluster of one run that all its workers use: the first that asks starts it."""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from integration.cluster.interface import KafkaCluster
from integration.cluster.jars import only_one
from integration.cluster.nodes import KafkaOfNodes


def shared(make: Callable[[], KafkaCluster], place: Path) -> KafkaCluster:
    """Start a cluster, or find the one that another worker has started.

    It runs as long as that process, which ends after the last worker's last test.

    Args:
        make: A cluster that is not started yet; nobody may do it harm.
        place: A directory that all workers of the run know, and no other run.
    """
    known = place / "kafka.json"
    with only_one(place / "kafka.lock"):
        if known.exists():
            return _of_another(json.loads(known.read_text()))
        cluster = make()
        atexit.register(cluster.stop)
        cluster.start()
        ports = {n: int(cluster.address(n).split(":")[1]) for n in cluster.brokers}
        known.write_text(json.dumps(ports))
        return cluster


def _of_another(ports: dict[str, int]) -> KafkaOfNodes:
    known = {int(number): port for number, port in ports.items()}
    return KafkaOfNodes(
        {number: NodeOfAnother() for number in known}, known, lambda: None
    )


class NodeOfAnother:
    """A ``Node`` that another process has started, which alone may hurt it."""

    is_running = True
    is_paused = False

    def complaint(self) -> None: ...

    def prepare(self) -> NoReturn:
        raise NotImplementedError("the brokers of all tests may not be hurt")

    start = kill = terminate = delete = pause = unpause = prepare
