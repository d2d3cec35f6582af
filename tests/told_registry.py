"""The fixture ``told``: a registry that answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kafka_tx.schemas import registry as registry_module
from tests.schemas.told import Told


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.setattr(registry_module, "_UNKNOWN_PAUSES_S", (0.01, 0.01))
    monkeypatch.setattr(registry_module, "_FIRST_PAUSE_S", 0.01)
    server = Told()
    thread = threading.Thread(target=server.server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    registry_module.close_registries()
    server.thawed.set()
    server.server.shutdown()
    server.server.server_close()
    thread.join()
