"""Both readers on the mock cluster, and the extension under test.

``KAFKA_TX_NATIVE_READER`` names another build of the extension, such as one with a
sanitizer; see ``sanitize.py``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable

import pytest

import kafka_tx.native
from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.native.idle_clients import idle
from kafka_tx.native.library import load
from kafka_tx.native.reader import NativeRangeReader
from kafka_tx.protocols import RangeReader
from kafka_tx.testing.mock import MockCluster
from tests.native.asking import range_of, values_of

_NAME = "kafka_tx.native._reader"

MakeReader = Callable[..., RangeReader]


def pytest_configure() -> None:
    path = os.environ.get("KAFKA_TX_NATIVE_READER")
    if path:
        spec = importlib.util.spec_from_file_location(_NAME, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[_NAME] = kafka_tx.native._reader = module
        load.cache_clear()


@pytest.fixture
def settings(cluster: MockCluster) -> ClientSettings:
    options = {"bootstrap.servers": cluster.bootstrap_servers}
    return client_settings(options, purpose="consumer")


@pytest.fixture(params=["python", "native", "native, client used before"])
def reader(request: pytest.FixtureRequest, settings: ClientSettings) -> MakeReader:
    """Make a reader of the mock cluster, in turn of each kind."""
    kind: MakeReader = (
        KafkaRangeReader if request.param == "python" else NativeRangeReader
    )
    idle.close_all()

    def make(given: ClientSettings = settings, **more: object) -> RangeReader:
        made = kind(given, **{"timeout_ms": 5_000, **more})
        if request.param.endswith("before") and given is settings:
            use(kind(given, timeout_ms=5_000))
        return made

    def use(other: RangeReader) -> None:
        topic = request.getfixturevalue("topic")(b"a", b"b")
        assert values_of(other, range_of(topic, 0, 1)) == [b"a"]

    return make
