"""Topics of a running cluster, through Kafka's own admin requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._metadata import (
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from integration.cluster.waiting import CHECK_EVERY_S, NotReadyError, wait_until

ANSWER_WITHIN_S = 30.0
DONE_WITHIN_S = 120.0

LONG_REQUEST = {"request_timeout": ANSWER_WITHIN_S}

NOT_YET = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""Answers of a cluster that has just lost sight of a broker, or of a new topic."""

DONE_OR_NOT = {
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN,  # of a Kafka 3 broker that does not know it was replaced
    KafkaError._DESTROY_BROKER,  # it was asked, and is none any more
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}
"""Answers of a cluster whose controller changes; the request may have been done."""

_DELETING = "is marked for deletion"
"""An answer of Kafka 3 with ZooKeeper: no broker knows the topic, but its name is taken
until the controller has forgotten it."""

Request = Callable[[AdminClient], dict[Any, Future[Any]]]
Probe = Callable[[ClusterMetadata], object]


def ask(addresses: Iterable[str]) -> AdminClient:
    """A new client, which therefore knows no broker but these."""
    return AdminClient(
        {
            "bootstrap.servers": ",".join(addresses),
            "socket.timeout.ms": 10_000,
            "log_level": 0,
        }
    )


def fresh_name(word: str = "topic") -> str:
    """A topic's name that no other test has, nor the same test when it runs again."""
    return f"{word}-{uuid4().hex[:12]}"


def metadata_from(address: str, *topics: str) -> ClusterMetadata:
    """What this one broker knows of its cluster: of all topics, or of this one."""
    return ask([address]).list_topics(*topics, timeout=2.0)


def wait_until_joined(
    addresses: Mapping[int, str], complain: Callable[[], str | None]
) -> None:
    """Wait until each of these brokers answers and knows at least all of them."""
    for broker, address in addresses.items():
        wait_until(
            f"broker {broker} knows brokers {sorted(addresses)}",
            lambda address=address: (  # type: ignore[misc]
                addresses.keys() <= metadata_from(address).brokers.keys()
            ),
            complain=complain,
        )


def spread_topic(cluster: TopicCalls) -> str:
    """A new topic with a partition on each of two brokers.

    One that seems to be away while a topic is made gets none of it: then another one
    is made.
    """
    deadline = time.monotonic() + DONE_WITHIN_S
    while time.monotonic() < deadline:
        name = fresh_name("spread")
        cluster.create_topic(name, 2, replication=1)
        if {cluster.leader(name, partition) for partition in range(2)} == {1, 2}:
            return name
    raise NotReadyError("one broker leads everything")


class TopicCalls:
    """The topic half of ``KafkaCluster``, the same for every provider."""

    def answering(self) -> Mapping[int, str]:
        """Addresses of the brokers that run and are not paused."""
        raise NotImplementedError

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1 if replication is None else replication,
            config=dict(config or {}),
        )
        self._call(
            lambda admin: admin.create_topics([topic], **LONG_REQUEST),
            done=KafkaError.TOPIC_ALREADY_EXISTS,
        )
        self._wait_for_partitions(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        self._call(
            lambda admin: admin.create_partitions(
                [NewPartitions(name, total)], **LONG_REQUEST
            ),
            done=KafkaError.INVALID_PARTITIONS,
        )
        self._wait_for_partitions(name, total)

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Set values of a topic; returns when each broker says that it has them."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        kind = ConfigResource.Type.TOPIC
        wanted = ConfigResource(kind, name, incremental_configs=entries)
        self._call(
            lambda admin: admin.incremental_alter_configs([wanted], **LONG_REQUEST)
        )

        def is_set(address: str) -> bool:
            admin, asked = ask([address]), ConfigResource(kind, name)
            told = admin.describe_configs([asked], **LONG_REQUEST)[asked]
            values = told.result(ANSWER_WITHIN_S)
            return all(values[key].value == config[key] for key in config)

        for broker, address in self.answering().items():
            wait_until(f"broker {broker} has it", partial(is_set, address))

    def delete_topic(self, name: str) -> None:
        self._call(
            lambda admin: admin.delete_topics([name], **LONG_REQUEST),
            done=KafkaError.UNKNOWN_TOPIC_OR_PART,
        )
        self._everywhere(
            f"topic {name} is gone", lambda known: name not in known.topics
        )

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        ends = [TopicPartition(name, number, end) for number, end in before.items()]

        def delete(admin: AdminClient) -> dict[TopicPartition, Future[Any]]:
            admin.list_topics(name, timeout=ANSWER_WITHIN_S)  # see learn_leaders
            return admin.delete_records(ends, **LONG_REQUEST)

        self._call(delete)

    def leader(self, name: str, partition: int) -> int | None:
        found: int = self._partition(name, partition).leader
        return None if found < 0 else found

    def in_sync(self, name: str, partition: int) -> frozenset[int]:
        return frozenset(self._partition(name, partition).isrs)

    def _partition(self, name: str, partition: int) -> PartitionMetadata:
        """As brokers tell it; one that has just begun may not know it yet."""
        deadline = time.monotonic() + DONE_WITHIN_S
        while partition not in (known := self._topic(name).partitions):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no broker tells of {name}-{partition}")
            time.sleep(0.1)
        return known[partition]

    def _topic(self, name: str) -> TopicMetadata:
        admin = ask(self.answering().values())
        return admin.list_topics(name, timeout=ANSWER_WITHIN_S).topics[name]

    def _call(self, request: Request, *, done: int | None = None) -> None:
        """Send a request until the cluster has done it.

        ``done`` is the answer to a request that an earlier, unclear one has done.
        """
        deadline = time.monotonic() + DONE_WITHIN_S
        may_be_done = False
        while True:
            admin = ask(self.answering().values())
            try:
                for answer in request(admin).values():
                    answer.result(ANSWER_WITHIN_S)
            except KafkaException as error:
                code = error.args[0].code()
                is_deleting = _DELETING in str(error)
                if may_be_done and code == done and not is_deleting:
                    return
                may_be_done |= code in DONE_OR_NOT
                may_pass = code in NOT_YET | DONE_OR_NOT or is_deleting
                if not may_pass or time.monotonic() > deadline:
                    raise
                time.sleep(CHECK_EVERY_S)
            else:
                return

    def _wait_for_partitions(self, name: str, partitions: int) -> None:
        """Wait until all are led, and in sync on each of their brokers that answers."""

        def is_served(partition: PartitionMetadata) -> bool:
            replicas = self.answering().keys() & set(partition.replicas)
            return partition.leader >= 0 and replicas <= set(partition.isrs)

        def all_served(known: ClusterMetadata) -> bool:
            topic = known.topics.get(name)
            if topic is None or len(topic.partitions) != partitions:
                return False
            return all(map(is_served, topic.partitions.values()))

        self._everywhere(
            f"topic {name} has {partitions} partitions in sync", all_served, name
        )

    def _everywhere(self, claim: str, probe: Probe, *topics: str) -> None:
        for broker, address in self.answering().items():
            wait_until(
                f"{claim}, says broker {broker}",
                lambda address=address: probe(metadata_from(address, *topics)),  # type: ignore[misc]
            )
