"""What the leaders of many partitions are asked, and what the client knew before."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kafka_tx.errors import BrokerUnavailableError
from kafka_tx.kafka import admin as admin_module
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.offset_requests import ListedOffset, is_moving, list_offsets
from kafka_tx.model import Earliest, Latest, TopicPartition
from kafka_tx.native import library
from kafka_tx.testing.mock import MockCluster

LIST_OFFSETS, METADATA = 2, 3
"""Kafka's numbers of these requests."""
TRIES = 5
MORE = [f"topic-{number}" for number in range(20)]


class CountingClient:
    """An admin client whose every partition ends at its own number."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.error: KafkaError | None = None

    def list_topics(self, topic: str, **_: object) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.error)})

    def list_offsets(self, asked: dict[Any, Any], **_: object) -> dict[Any, Any]:
        self.sizes.append(len(asked))
        return {partition: _answered(partition.partition) for partition in asked}


def _answered(offset: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(offset=offset, leader_epoch=3))
    return future


@pytest.mark.parametrize(("partitions", "requests"), [(1, 1), (500, 1), (5_000, 10)])
def test_a_question_takes_a_request_for_every_500_partitions(
    monkeypatch: pytest.MonkeyPatch, partitions: int, requests: int
) -> None:
    client = CountingClient()
    monkeypatch.setattr(AdminConnection, "client", client)
    asked = [TopicPartition("orders", number) for number in range(partitions)]

    starts, ends = list_offsets(
        AdminConnection({"bootstrap.servers": "nowhere:1"}),
        [dict.fromkeys(asked, Earliest()), dict.fromkeys(asked, Latest())],
        Deadline(1_000),
        committed=False,
    )

    assert starts == ends == {tp: ListedOffset(tp.partition, 3) for tp in asked}
    assert len(client.sizes) == 2 * requests
    assert sum(client.sizes) == 2 * partitions


class Brokers(MockCluster):
    """Remembers the requests since ``list_offsets`` was called last."""

    def watched(self, client: Any) -> Any:
        """The client, whose questions for offsets begin a new list."""
        self.client = client
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["client"], name)

    def list_offsets(self, *given: Any, **more: Any) -> Any:
        self._library.rd_kafka_mock_start_request_tracking(self._pointer)
        self._library.rd_kafka_mock_clear_requests(self._pointer)
        return self.client.list_offsets(*given, **more)

    @property
    def requests(self) -> set[int]:
        get = self._library.rd_kafka_mock_get_requests
        get.restype = ctypes.POINTER(ctypes.c_void_p)
        key_of = self._library.rd_kafka_mock_request_api_key
        count = ctypes.c_size_t()
        found = get(self._pointer, ctypes.byref(count))
        return {key_of(ctypes.c_void_p(found[n])) for n in range(count.value)}

    @property
    def _pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._cluster)


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    with brokers:
        for name in ("connected", "orders", "clicks", *MORE):
            brokers.create_topic(name, 2)
        yield brokers


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize("topics", [["orders", "clicks"], MORE])
def test_the_client_knows_all_leaders_before_it_is_asked_for_offsets(
    brokers: Brokers,
    topics: list[str],
    is_native: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Librdkafka may end the process if it has to look for one."""
    settings = client_settings(
        {"bootstrap.servers": brokers.bootstrap_servers}, purpose="admin"
    )
    monkeypatch.setattr(admin_module, "MANY", 1 if is_native else 1 << 30)

    def requests_of_a_new_connection() -> set[int]:
        admin = AdminConnection(settings)
        admin._asked = int(is_native)
        if is_native:
            admin._native = brokers.watched(library.client(settings))
        else:
            admin._made = brokers.watched(admin.client)
        for some in (["connected"], topics):
            asked = {TopicPartition(t, n): Latest() for t in some for n in range(2)}
            list_offsets(admin, [asked], Deadline(5_000), committed=False)
        return brokers.requests

    # a client also asks for metadata when it has connected, maybe just then
    found = [requests_of_a_new_connection() for _ in range(TRIES)]
    assert {LIST_OFFSETS} in found


def test_leaders_are_learned_again_after_a_failure_and_after_a_while(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, replace_in: Callable[..., None]
) -> None:
    settings = client_settings(
        {"bootstrap.servers": brokers.bootstrap_servers}, purpose="admin"
    )
    admin, learned = AdminConnection(settings), list[str | None]()
    ask = admin.metadata

    def metadata(deadline: Deadline, topic: str | None = None) -> Any:
        learned.append(topic)
        return ask(deadline, topic)

    monkeypatch.setattr(admin, "metadata", metadata)

    def learned_for(topic: str, partitions: int = 1) -> list[str | None]:
        learned.clear()
        question = {TopicPartition(topic, n): Latest() for n in range(partitions)}
        list_offsets(admin, [question, question], Deadline(5_000), committed=False)
        return list(learned)

    assert learned_for("orders") == ["orders"]
    assert learned_for("clicks") == ["clicks"]
    assert learned_for("orders") == []
    assert learned_for("orders", partitions=3) == []
    assert learned_for("orders") == ["orders"]
    now_s = time.monotonic()
    replace_in(admin_module, "time", monotonic=lambda: now_s + 301)
    assert learned_for("orders") == ["orders"]


@pytest.mark.parametrize("is_native", [False, True])
def test_leaders_of_many_topics_are_learned_in_few_requests(
    is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, they would take longer than the time-out."""
    monkeypatch.setattr(admin_module, "MANY", 1 if is_native else 1 << 30)
    with MockCluster() as cluster:
        asked = [TopicPartition(f"topic-{n}", 0) for n in range(100)]
        for partition in asked:
            cluster.create_topic(partition.topic)
        slow_down = cluster._library.rd_kafka_mock_broker_set_rtt
        slow_down(ctypes.c_void_p(cluster._cluster), 1, 150)
        admin = AdminConnection({"bootstrap.servers": cluster.bootstrap_servers})
        admin._asked = int(is_native)
        for _ in range(2):
            (told,) = list_offsets(
                admin,
                [dict.fromkeys(asked, Latest())],
                Deadline(10_000),
                committed=False,
            )
            assert {one.offset for one in told.values()} == {0}  # type: ignore[union-attr]
        assert (admin._native is not None) == is_native
        admin.close()


def test_offsets_of_a_topic_without_leaders_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = CountingClient()
    monkeypatch.setattr(AdminConnection, "client", client)
    admin = AdminConnection({"bootstrap.servers": "nowhere:1"})
    new = TopicPartition("orders", 0)

    for code in (KafkaError.LEADER_NOT_AVAILABLE, None):
        client.error = None if code is None else KafkaError(code)
        (found,) = list_offsets(
            admin, [{new: Latest()}], Deadline(1_000), committed=False
        )
        assert is_moving(found[new]) == bool(code)
        assert client.sizes == ([] if code else [1])


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 300),
        ({"topic.metadata.refresh.interval.ms": "30000"}, 45),
        ({"topic.metadata.refresh.interval.ms": "-1"}, 300),
        ({"metadata.max.age.ms": "10000"}, 5),
    ],
)
def test_leaders_are_learned_again_before_the_client_forgets_them(
    settings: dict[str, str], seconds: float
) -> None:
    given = {"bootstrap.servers": "nowhere:1", **settings}
    assert AdminConnection(given)._learned_s == seconds


class Ignorant:
    """A native client to which brokers report no leader."""

    def learn_leaders(self, topic: str | None, timeout_ms: int) -> bool:
        return False

    def last_report(self) -> str:
        return "nobody there"

    def list_offsets(self, *_: object) -> None:
        raise AssertionError("it does not know whom to ask")


@pytest.fixture
def ignorant() -> AdminConnection:
    admin = AdminConnection({"bootstrap.servers": "127.0.0.1:1"})
    admin._asked = admin_module.MANY
    admin._native = Ignorant()  # type: ignore[assignment]
    return admin


QUESTIONS = [{TopicPartition("orders", 0): -1}]


def test_a_native_client_that_learned_no_leader_is_not_asked_for_offsets(
    ignorant: AdminConnection,
) -> None:
    """Leaders that come only then may end the process."""
    assert ignorant.list_natively(QUESTIONS, Deadline(5_000), committed=False) is None
    assert ignorant._native is None


def test_nobody_else_is_asked_for_offsets_once_the_time_is_over(
    ignorant: AdminConnection,
) -> None:
    with pytest.raises(BrokerUnavailableError, match="nobody there"):
        ignorant.list_natively(QUESTIONS, Deadline(0), committed=False)
