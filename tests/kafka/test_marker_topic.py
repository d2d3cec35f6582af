"""The marker topic is made as safe as the topic whose markers it keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError

from kafka_tx.kafka import marker_topic
from kafka_tx.kafka.marker_topic import MarkerTopic

SAFE = {"min.insync.replicas": "2"}
DENIED = ClientError(ClientError.CLUSTER_AUTHORIZATION_FAILED)


class Admin:
    """Brokers with one topic, by number of replicas; keeps what is made."""

    def __init__(
        self,
        replicas: int,
        topic: Any,
        default: int | None,
        brokers: int,
        in_sync: dict[str, str],
    ) -> None:
        partitions = {0: SimpleNamespace(replicas=[*range(replicas)])}
        self.found = SimpleNamespace(partitions=partitions if replicas else {})
        self.brokers = brokers
        broker = {"default.replication.factor": str(default), **in_sync}
        self.settings = {"orders": topic, "1": DENIED if default is None else broker}
        self.client = self

    def metadata(self, _: Any, topic: str) -> Any:
        brokers = dict.fromkeys(range(1, self.brokers + 1))
        topics = {topic: self.found}
        return SimpleNamespace(topics=topics, brokers=brokers, controller_id=1)

    def settings_of(self, names: list[str], *_: Any, **__: Any) -> Any:
        return {name: self.settings[name] for name in names}

    def create_topics(self, topics: list[Any], **_: Any) -> Any:
        (self.made,) = topics
        return {"markers": None}

    def wait(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("replicas", "topic", "default", "brokers", "makes", "in_sync"),
    [
        (3, SAFE, 1, 3, 3, "2"),
        (3, SAFE, None, 3, 3, "2"),
        (2, SAFE, None, 3, 3, "2"),
        (2, SAFE, None, 2, 2, "2"),
        (3, DENIED, 1, 3, 3, None),
        (3, {}, 1, 3, 3, None),
        (2, SAFE, 3, 3, 3, "2"),
        (3, {"min.insync.replicas": "3"}, 1, 2, 2, None),
        (3, SAFE, 1, 1, -1, None),
        (1, SAFE, 3, 3, -1, None),
        (0, DENIED, 3, 3, -1, None),
    ],
)
def test_it_has_as_many_replicas_as_the_topic_and_no_fewer_than_by_default(
    monkeypatch, replicas, topic, default, brokers, makes, in_sync
):
    admin = Admin(replicas, topic, default, brokers, {})
    monkeypatch.setattr(marker_topic, "AdminConnection", lambda _: admin)

    MarkerTopic("markers", {}, "orders")._make()

    assert admin.made.replication_factor == makes
    assert admin.made.config.get("min.insync.replicas") == in_sync
    assert admin.made.config["cleanup.policy"] == "compact"


@pytest.mark.parametrize(("default", "in_sync"), [("1", "2"), ("2", None), ("3", None)])
def test_no_fewer_replicas_must_be_in_sync_than_by_default(
    monkeypatch, default, in_sync
):
    admin = Admin(3, SAFE, 3, 3, {"min.insync.replicas": default})
    monkeypatch.setattr(marker_topic, "AdminConnection", lambda _: admin)

    MarkerTopic("markers", {}, "orders")._make()

    assert admin.made.config.get("min.insync.replicas") == in_sync
