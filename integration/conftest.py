"""Real servers as fixtures. Nothing is started before a test asks for it."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyspark.sql import SparkSession

from integration.capabilities import ICE, OWN_CONNECTOR, need
from integration.cluster import provider
from integration.cluster.interface import KafkaCluster, Provider, ZooKeeperServer
from integration.cluster.postgresql import PostgresServer
from integration.cluster.records import Produce
from integration.cluster.running import running
from integration.cluster.settings import STEADY
from integration.cluster.shared import shared
from integration.cluster.spark_local import local_session
from integration.cluster.standalone import StandaloneSpark
from integration.cluster.topics import fresh_name
from integration.cluster.versions import SPARK_LINE
from integration.cluster.warm_python import WarmPython
from integration.sizes import size

ALSO_IN_CONTAINERS = {"test_cluster.py", "test_records.py"}
"""Files that run on both providers where there is no time for all of them."""
USUAL_IN_CONTAINERS = {"test_source_parity.py"}
"""The same for tests that are not marked ``all``."""


def pytest_configure(config: pytest.Config) -> None:
    """Let the client of a container engine forget its sockets; it always does."""
    forgotten: list[tuple[str, type[Warning]]] = [
        ("unclosed <socket.socket fd=[0-9]+, family=1,", ResourceWarning)
    ]
    if SPARK_LINE in {"4.0", "4.1"}:  # so do Spark's own gateway and workers there
        forgotten += [
            ("unclosed <socket.socket fd=[0-9]+, family=2,", ResourceWarning),
            ("Exception ignored in. <socket", pytest.PytestUnraisableExceptionWarning),
        ]
    for text, kind in forgotten:
        line = f"ignore:{text}:{kind.__module__}.{kind.__qualname__}"
        config.addinivalue_line("filterwarnings", line)
        # that one is for tests, this one for what is collected at the run's end
        warnings.filterwarnings("ignore", text, kind)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the files of both providers."""
    for item in items:
        is_usual = item.get_closest_marker("all") is None
        files = ALSO_IN_CONTAINERS | (USUAL_IN_CONTAINERS if is_usual else set())
        if item.path.name in files:
            item.add_marker(pytest.mark.containers_smoke)


@pytest.fixture(scope="session")
def servers() -> Provider:
    """The provider that ``KAFKA_TX_CLUSTER`` chooses."""
    return provider.chosen()


@pytest.fixture(scope="session")
def kafka(
    servers: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    """One broker, shared by all tests: make topics, but do it no harm."""
    make = partial(servers.kafka, settings=STEADY)
    if "PYTEST_XDIST_WORKER" in os.environ:
        yield shared(make, tmp_path_factory.getbasetemp().parent)
        return
    with running(make()) as cluster:
        yield cluster


MORTAL = ("zookeeper", "mortal_kafka", "kafka_pair", "kafka_zk")
"""Fixtures of servers that tests hurt; ZooKeeper before those that need it."""


@pytest.fixture(autouse=True)
def healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave servers that run to the next test, also where one failed before it healed.

    It would fail there, too, and so would the same test when it is tried again. The
    servers are started by then, as arguments that live longer than this.
    """
    names = filter(request.fixturenames.__contains__, MORTAL)
    hurt = [request.getfixturevalue(name) for name in names]
    yield
    for server in hurt:
        server.heal()


@pytest.fixture(scope="module")
def mortal_kafka(servers: Provider) -> Iterator[KafkaCluster]:
    """One broker for the faults of one module; heal what you break."""
    with running(servers.kafka()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_pair(servers: Provider) -> Iterator[KafkaCluster]:
    """Two brokers for the faults of one module; heal what you break."""
    with running(servers.kafka(brokers=2)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def zookeeper(servers: Provider) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for one module; heal what you break."""
    with running(servers.zookeeper()) as server:
        yield server


@pytest.fixture(scope="module")
def kafka_zk(servers: Provider, zookeeper: ZooKeeperServer) -> Iterator[KafkaCluster]:
    """Two Kafka 3 brokers that register in ``zookeeper``."""
    with running(servers.kafka_on_zookeeper(zookeeper, brokers=2)) as cluster:
        yield cluster


@pytest.fixture
def topic(kafka: KafkaCluster) -> Callable[..., str]:
    """Make a topic with a fresh name in ``kafka``; options as in ``create_topic``."""

    def make(partitions: int = 1, name: str = "topic", **more: object) -> str:
        fresh = fresh_name(name)
        kafka.create_topic(fresh, partitions, **more)  # type: ignore[arg-type]
        return fresh

    return make


@pytest.fixture(scope="session")
def produce(kafka: KafkaCluster) -> Produce:
    """Write records into ``kafka``."""
    return Produce(kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def python() -> Iterator[str]:
    """The Python that Spark starts: it forks from one that has done its imports."""
    with running(WarmPython()) as warm:
        yield str(warm.launcher)


@pytest.fixture(scope="session")
def spark(
    python: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """One local session for all tests, with Spark's own Kafka connector on board."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", python)
        # beside a session of Spark Connect a builder would make another of its kind
        patch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
        session = local_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ice() -> None:
    """Iceberg is here; before ``spark``, so that a skipped test starts no session."""
    need(ICE)


@pytest.fixture
def sparks_own() -> str:
    """The format of Spark's own source and sink, which the session has on board."""
    need(OWN_CONNECTOR)
    return "kafka"


@pytest.fixture(scope="session")
def spark_standalone() -> Iterator[StandaloneSpark]:
    """A standalone master and two workers; drivers on it are processes of their own.

    There are workers in ``make test-all`` only.
    """
    with running(StandaloneSpark(workers=size(0, 2))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresServer]:
    """One PostgreSQL server, shared by all tests."""
    with running(PostgresServer()) as server:
        yield server


@pytest.fixture
def postgresql(postgresql_server: PostgresServer) -> str:
    """The SQLAlchemy URL of a fresh database of its own for each test."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    postgresql_server.execute(f"CREATE DATABASE {name}")
    return postgresql_server.url(name)
