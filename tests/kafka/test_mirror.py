"""Committed offsets as those of a consumer group."""

from __future__ import annotations

import ctypes
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    GroupOccupiedError,
    KafkaError,
)
from kafka_tx.kafka import group_commits
from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import LogPosition, TopicPartition
from kafka_tx.testing.mock import MockCluster
from tests.prompt_errors import prompt_error

MakeTopic = Callable[..., str]


def at(offsets: dict[TopicPartition, int]) -> dict[TopicPartition, LogPosition]:
    """Positions whose leader epochs nobody knows."""
    return {p: LogPosition(offset, None) for p, offset in offsets.items()}


def offsets_of(
    mirror: GroupMirror, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The mock cluster has leader epochs of its own."""
    return {p: found.offset for p, found in mirror.load(partitions).items()}


@pytest.fixture
def mirror(admin_settings: ClientSettings) -> Iterator[GroupMirror]:
    mirror = GroupMirror(admin_settings, "mirrored", timeout_ms=5_000)
    yield mirror
    mirror.close()


def test_what_was_stored_is_loaded_and_the_rest_is_left_out(
    mirror: GroupMirror, topic: MakeTopic
) -> None:
    name = topic(partitions=3)
    zero, one, two = (TopicPartition(name, number) for number in range(3))

    mirror.store(at({zero: 5, one: 0}))
    mirror.store(at({zero: 6}))

    assert offsets_of(mirror, [zero, one, two]) == {zero: 6, one: 0}


OFFSET_COMMIT, FIND_COORDINATOR = 8, 10
NOT_COORDINATOR, INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED = 16, 24, 30
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27


def refuse(cluster: MockCluster, *codes: int, request: int = OFFSET_COMMIT) -> None:
    """Answer the next requests with these errors."""
    cluster._library.rd_kafka_mock_push_request_errors(
        ctypes.c_void_p(cluster._cluster), request, len(codes), *codes
    )


@pytest.fixture(autouse=True)
def willing(cluster: MockCluster) -> Iterator[None]:
    """Leave no error for the requests of the next test."""
    yield
    for request in OFFSET_COMMIT, FIND_COORDINATOR:
        cluster._library.rd_kafka_mock_clear_request_errors(
            ctypes.c_void_p(cluster._cluster), request
        )


def test_a_coordinator_that_is_only_being_made_is_asked_again(
    mirror: GroupMirror, topic: MakeTopic, cluster: MockCluster
) -> None:
    one = TopicPartition(topic(), 0)
    refuse(cluster, NOT_COORDINATOR, NOT_COORDINATOR)

    mirror.store(at({one: 5}))

    assert offsets_of(mirror, [one]) == {one: 5}


def test_a_coordinator_that_does_not_come_is_unavailable(
    admin_settings: ClientSettings, topic: MakeTopic, cluster: MockCluster
) -> None:
    mirror = GroupMirror(admin_settings, "mirrored", timeout_ms=300)
    refuse(cluster, *[NOT_COORDINATOR] * 500)

    with pytest.raises(BrokerUnavailableError, match="group 'mirrored'"):
        mirror.store(at({TopicPartition(topic(), 0): 5}))

    mirror.close()


def test_a_client_that_failed_is_replaced(
    admin_settings: ClientSettings, topic: MakeTopic, cluster: MockCluster
) -> None:
    mirror = GroupMirror(admin_settings, "replaced", timeout_ms=1_000)
    one = TopicPartition(topic(), 0)
    mirror.store(at({one: 1}))
    first = mirror._writer.client
    refuse(cluster, *[NOT_COORDINATOR] * 500)
    with pytest.raises(BrokerUnavailableError):
        mirror.store(at({one: 2}))

    assert mirror._writer.client is not first
    mirror.close()


def test_one_client_writes_all(mirror: GroupMirror, topic: MakeTopic) -> None:
    one = TopicPartition(topic(), 0)
    mirror.store(at({one: 1}))
    first = mirror._writer.client

    mirror.store(at({one: 2}))

    assert mirror._writer.client is first


def test_only_the_partitions_of_no_topic_are_left_out(
    admin_settings: ClientSettings, topic: MakeTopic
) -> None:
    """The client gives those that were taken the error of the others."""
    mirror = GroupMirror(admin_settings, "in-part", timeout_ms=1_000)
    name = topic(partitions=2)
    there = [ClientPartition(name, n, 5 + n, "text") for n in range(2)]
    gone = [ClientPartition("gone", n, 7) for n in range(2)]
    beyond = ClientPartition(name, 9, 3)

    absent = mirror.store_positions([*gone, *there, beyond])

    assert absent == {(at.topic, at.partition) for at in [*gone, beyond]}
    found = mirror.load_positions(TopicPartition(name, n) for n in range(2))
    assert [(at.offset, at.metadata) for at in found] == [(5, "text"), (6, "text")]
    mirror.close()


def test_many_partitions_come_in_requests_that_a_broker_takes(
    mirror: GroupMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker keeps a request as a batch of a topic: each record has all names."""
    batches: list[int] = []
    unknown = ClientError(ClientError.UNKNOWN_TOPIC_OR_PART)
    refused = ClientError(ClientError.OFFSET_METADATA_TOO_LARGE)

    def write(
        positions: list[ClientPartition], _: object
    ) -> dict[TopicPartition, ClientError]:
        batches.append(sum(60 + len("mirrored") + len(p.topic) for p in positions))
        no = {19_999: unknown, 3: refused}
        return {
            TopicPartition(p.topic, p.partition): no[p.partition]
            for p in positions
            if p.partition in no
        }

    monkeypatch.setattr(mirror._writer, "write", write)
    with pytest.raises(KafkaError, match="1 of 20000 partitions: t-3"):
        mirror.store(at({TopicPartition("t", n): 5 for n in range(20_000)}))

    assert max(batches) < 1_000_000
    assert sum(batches) > 1_000_000
    assert mirror._absent == {TopicPartition("t", 19_999)}


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS])
def test_a_group_with_members_is_named_and_is_written_when_they_are_gone(
    mirror: GroupMirror, topic: MakeTopic, cluster: MockCluster, code: int
) -> None:
    one, two = (TopicPartition(topic(), 0) for _ in range(2))
    refuse(cluster, code)
    with pytest.raises(GroupOccupiedError, match="2 of 2 partitions"):
        mirror.store(at({one: 1, two: 1}))

    mirror.store(at({one: 2}))

    assert offsets_of(mirror, [one]) == {one: 2}


@pytest.mark.parametrize("request_key", [OFFSET_COMMIT, FIND_COORDINATOR])
def test_a_refused_group_is_told_at_once(
    admin_settings: ClientSettings, cluster: MockCluster, request_key: int
) -> None:
    def store() -> None:
        refuse(cluster, *[GROUP_AUTHORIZATION_FAILED] * 3, request=request_key)
        with closing(GroupMirror(admin_settings, "refused")) as mirror:
            mirror.store(at({TopicPartition("t", 0): 5}))

    prompt_error(store, 5, AuthenticationError, "READ on group 'refused'")


AWAY = TopicPartition("t", 0)


@contextmanager
def away() -> Iterator[tuple[MockCluster, GroupMirror]]:
    """A cluster of the test's own, and a mirror that has written to it."""
    with MockCluster() as own:
        own.create_topic("t")
        options = {"bootstrap.servers": own.bootstrap_servers}
        settings = client_settings(options, purpose="admin")
        mirror = GroupMirror(settings, "away", timeout_ms=20_000)
        mirror.store(at({AWAY: 1}))
        yield own, mirror
        mirror.close()


def test_brokers_that_hang_hold_up_nothing_beyond_the_time_out() -> None:
    with away() as (own, mirror):
        slow = ctypes.c_size_t(1), ctypes.c_int(0), ctypes.c_int(8_000)

        def store() -> None:
            own._library.rd_kafka_mock_broker_push_request_error_rtts(
                ctypes.c_void_p(own._cluster), 1, OFFSET_COMMIT, *slow
            )
            late = GroupMirror(mirror._settings, "away", timeout_ms=300)
            with closing(late):
                late.store(at({AWAY: 2}))

        prompt_error(store, 4, BrokerUnavailableError, "group 'away'")


def test_no_more_threads_hide_no_error_and_end_nothing(
    replace_in: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Thread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with MockCluster() as cluster:
        options = {"bootstrap.servers": cluster.bootstrap_servers}
        settings = client_settings(options, purpose="admin")
        mirror = GroupMirror(settings, "mirrored", timeout_ms=300)
        cluster.stop_broker()
        replace_in(group_commits, "threading", Thread=Thread)
        with pytest.raises(BrokerUnavailableError):
            mirror.store(at({TopicPartition("orders", 0): 5}))
        monkeypatch.undo()
        mirror.close()


def test_limits_of_readers_do_not_matter(
    cluster: MockCluster, topic: MakeTopic
) -> None:
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "fetch.max.bytes": "5242880",
        "receive.message.max.bytes": "20000000",
    }
    mirror = GroupMirror(client_settings(options, purpose="admin"), "mirrored")
    one = TopicPartition(topic(), 0)

    mirror.store(at({one: 5}))

    assert offsets_of(mirror, [one]) == {one: 5}
    mirror.close()


def test_a_broker_that_comes_back_gets_the_offsets() -> None:
    with away() as (own, mirror):
        own.stop_broker()
        back = threading.Timer(1.5, own.start_broker)
        back.start()

        mirror.store(at({AWAY: 2}))

        back.join()
        assert offsets_of(mirror, [AWAY]) == {AWAY: 2}


def test_a_refusal_for_good_is_not_asked_again(
    mirror: GroupMirror, topic: MakeTopic, cluster: MockCluster
) -> None:
    one = TopicPartition(topic(), 0)
    refuse(cluster, INVALID_GROUP_ID)

    with pytest.raises(KafkaError, match="did not take the offsets of 1 of 1"):
        mirror.store(at({one: 5}))

    assert mirror.load([one]) == {}


def test_other_consumers_of_the_group_see_the_offsets(
    mirror: GroupMirror, topic: MakeTopic, cluster: MockCluster
) -> None:
    name = topic(b"a", b"b")

    mirror.store(at({TopicPartition(name, 0): 1}))

    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "mirrored"}
    )
    (committed,) = consumer.committed([ClientPartition(name, 0)], timeout=60)
    consumer.close()
    assert committed.offset == 1


def test_a_group_nobody_wrote_has_no_offsets(
    admin_settings: ClientSettings, topic: MakeTopic
) -> None:
    mirror = GroupMirror(admin_settings, "never-written", timeout_ms=5_000)

    assert mirror.load([TopicPartition(topic(), 0)]) == {}
    mirror.close()


def test_nothing_to_do_asks_no_broker() -> None:
    settings = client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="admin")
    mirror = GroupMirror(settings, "g", timeout_ms=100)

    mirror.store(at({}))

    assert mirror.load([]) == {}


@pytest.mark.parametrize(
    "act",
    [
        lambda mirror: mirror.store(at({TopicPartition("t", 0): 1})),
        lambda mirror: mirror.load([TopicPartition("t", 0)]),
    ],
    ids=["store", "load"],
)
def test_a_cluster_that_is_away_is_named_within_the_time_out(
    act: Callable[[GroupMirror], object],
) -> None:
    settings = client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="admin")
    mirror = GroupMirror(settings, "g", timeout_ms=500)

    named = r"127\.0\.0\.1:1.*group 'g'"
    prompt_error(lambda: act(mirror), 4, BrokerUnavailableError, named)


def test_a_refused_log_in_is_told_long_before_the_time_out(
    login_options: dict[str, str],
) -> None:
    mirror = GroupMirror(client_settings(login_options, purpose="admin"), "g")

    partition = TopicPartition("t", 0)
    prompt_error(lambda: mirror.load([partition]), 5, AuthenticationError, "SASL")


def test_it_is_pickled_without_its_client(
    mirror: GroupMirror, topic: MakeTopic
) -> None:
    partition = TopicPartition(topic(), 0)
    mirror.store(at({partition: 3}))

    copy = pickle.loads(pickle.dumps(mirror))

    assert offsets_of(copy, [partition]) == {partition: 3}
    copy.close()
    copy.close()
