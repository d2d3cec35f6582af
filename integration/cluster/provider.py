"""Which provider runs the brokers."""

from __future__ import annotations

import os

from integration.cluster.interface import Provider
from integration.cluster.processes import Processes

VARIABLE = "KAFKA_TX_CLUSTER"


def chosen() -> Provider:
    """Give the provider that ``KAFKA_TX_CLUSTER`` names; processes by default.

    Raises:
        ValueError: It names none.
    """
    name = os.environ.get(VARIABLE) or Processes.name
    if name == Processes.name:
        return Processes()
    if name == "containers":
        from integration.cluster.containers import Containers

        return Containers()
    raise ValueError(f"{VARIABLE} is {name!r}; legal: processes, containers.")
