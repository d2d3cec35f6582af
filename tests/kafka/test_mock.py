"""The cluster inside the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient

from kafka_tx.errors import KafkaError
from kafka_tx.testing.mock import MockCluster


def test_each_broker_has_an_address() -> None:
    with MockCluster(brokers=3) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3


def test_a_topic_has_the_partitions_asked_for_and_is_made_once() -> None:
    with MockCluster() as cluster:
        cluster.create_topic("orders", 7)

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        metadata = admin.list_topics(timeout=60)
        assert len(metadata.topics["orders"].partitions) == 7
        with pytest.raises(KafkaError, match="orders"):
            cluster.create_topic("orders", 7)


def test_other_processes_can_use_it() -> None:
    program = (
        "import sys; from confluent_kafka.admin import AdminClient;"
        "print(*AdminClient({'bootstrap.servers': sys.argv[1]})"
        ".list_topics(timeout=60).topics)"
    )
    with MockCluster() as cluster:
        cluster.create_topic("orders")

        done = subprocess.run(
            [sys.executable, "-c", program, cluster.bootstrap_servers],
            capture_output=True,
            text=True,
            check=True,
        )

    assert done.stdout.strip() == "orders"


def test_it_can_be_closed_twice() -> None:
    cluster = MockCluster()

    cluster.close()
    cluster.close()
