"""Offsets of many partitions, asked in Python and in native code: the same answers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_tx.errors import AuthenticationError, BrokerUnavailableError
from kafka_tx.kafka import admin as admin_module
from kafka_tx.kafka import offset_requests
from kafka_tx.kafka.admin import AdminConnection, Deadline, NativeAnswer
from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.kafka.offset_requests import (
    Listed,
    ListedOffset,
    Question,
    is_moving,
    is_silent,
    list_offsets,
)
from kafka_tx.model import AtTime, Earliest, Latest, TopicPartition
from kafka_tx.native.library import client, load
from kafka_tx.testing.mock import MockCluster

MakeTopic = Callable[..., str]
Ask = Callable[..., list[Listed]]


@pytest.fixture
def admin_settings(cluster: MockCluster) -> ClientSettings:
    return settings_of(cluster.bootstrap_servers)


def settings_of(addresses: str, **more: str) -> ClientSettings:
    options = {"bootstrap.servers": addresses, **more}
    return client_settings(options, purpose="admin")


@pytest.fixture(params=["python", "native"])
def ask(
    request: pytest.FixtureRequest,
    admin_settings: ClientSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> Ask:
    """Put questions to the mock cluster, in turn in each way."""
    is_native = request.param == "native"
    monkeypatch.setattr(admin_module, "MANY", 0 if is_native else 1 << 30)

    def ask(
        *questions: Question,
        settings: ClientSettings = admin_settings,
        timeout_ms: int = 5_000,
        committed: bool = False,
    ) -> list[Listed]:
        admin = AdminConnection(settings)
        if is_native:
            with monkeypatch.context() as patched:
                patched.setattr(offset_requests, "_send", None)
                return list_offsets(
                    admin, questions, Deadline(timeout_ms), committed=committed
                )
        return list_offsets(admin, questions, Deadline(timeout_ms), committed=committed)

    return ask


def offsets_of(listed: Listed) -> dict[TopicPartition, int]:
    """The offsets of those that have one."""
    return {
        tp: told.offset for tp, told in listed.items() if isinstance(told, ListedOffset)
    }


def plain(found: list[Listed]) -> list[dict[TopicPartition, object]]:
    """Answers as values that compare: offset and epoch, or code and text."""
    return [
        {
            tp: answer
            if isinstance(answer, ListedOffset)
            else (answer.code(), answer.str())
            for tp, answer in listed.items()
        }
        for listed in found
    ]


@pytest.mark.parametrize("committed", [False, True])
def test_starts_ends_and_times(ask: Ask, topic: MakeTopic, committed: bool) -> None:
    name = topic(b"a", b"b", b"c", partitions=2)
    full, empty = TopicPartition(name, 0), TopicPartition(name, 1)
    later = AtTime(int(time.time() * 1000) + 3_600_000)

    starts, ends, times = ask(
        {full: Earliest(), empty: Earliest()},
        {empty: Latest(), full: Latest()},
        {full: later},
        committed=committed,
    )

    assert offsets_of(starts) == {full: 0, empty: 0}
    assert offsets_of(ends) == {full: 3, empty: 0}
    assert offsets_of(times) == {full: -1}
    assert all(type(tp) is TopicPartition for tp in ends)


def test_more_partitions_than_one_request_has(
    ask: Ask, topic: MakeTopic, cluster: MockCluster
) -> None:
    names = [topic(partitions=600) for _ in range(2)]
    asked = [TopicPartition(name, n) for n in range(600) for name in names]
    written = {asked[n]: 1 + n % 5 for n in (0, 1, 499, 500, 501, 998, 1_001, 1_199)}
    for tp, records in written.items():
        for _ in range(records):
            cluster.produce(tp.topic, b"v", partition=tp.partition)
    cluster.flush()

    starts, ends = ask(dict.fromkeys(asked, Earliest()), dict.fromkeys(asked, Latest()))

    assert offsets_of(starts) == dict.fromkeys(asked, 0)
    assert offsets_of(ends) == (dict.fromkeys(asked, 0) | written)


def test_both_ways_tell_the_same(
    admin_settings: ClientSettings, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(b"a", b"b", partitions=3)
    positions: list[Latest | Earliest | AtTime] = [Latest(), Earliest(), AtTime(0)]
    positions.append(Latest())  # there is no such partition
    asked: Question = {
        TopicPartition(name, n): wanted for n, wanted in enumerate(positions)
    }
    good: Question = {tp: asked[tp] for tp in asked if tp.partition < 3}
    monkeypatch.setattr(admin_module, "MANY", 1)

    for question in (good, asked):
        admin, is_native = AdminConnection(admin_settings), list[bool]()
        ask = admin.list_natively

        def counted(
            *given: Any,
            ask: Callable[..., Any] = ask,
            is_native: list[bool] = is_native,
        ) -> list[NativeAnswer] | None:
            answers: list[NativeAnswer] | None = ask(*given)
            is_native.append(answers is not None)
            return answers

        monkeypatch.setattr(admin, "list_natively", counted)
        (first,), (second,) = (
            plain(list_offsets(admin, [question], Deadline(10_000), committed=False))
            for _ in range(2)
        )
        assert is_native == [False, True]
        assert first == second
        assert first.keys() == question.keys()
        told = {n: first.get(TopicPartition(name, n)) for n in range(4)}
        if question is good:
            assert [getattr(told[n], "offset", None) for n in (0, 1)] == [2, 0]
        else:
            assert isinstance(told[3], tuple)
            assert not isinstance(told[3], ListedOffset)


def test_a_leader_that_is_silent_leaves_the_others_their_offsets(ask: Ask) -> None:
    with MockCluster(brokers=2) as cluster:
        cluster.create_topic("orders", 2)
        cluster.produce("orders", b"v", partition=0)
        cluster.produce("orders", b"v", partition=1)
        cluster.flush()
        asked = [TopicPartition("orders", n) for n in range(2)]
        question = dict.fromkeys(asked, Latest())
        settings = settings_of(cluster.bootstrap_servers)
        cluster.stop_broker(2)

        (found,) = ask(question, settings=settings, timeout_ms=8_000)

    told = [
        answer.offset for answer in found.values() if isinstance(answer, ListedOffset)
    ]
    assert told == [1]
    failed = [a for a in found.values() if not isinstance(a, ListedOffset)]
    assert [is_silent(a) or is_moving(a) for a in failed] == [True]
    assert set(found) == set(asked)


def test_nobody_there(ask: Ask) -> None:
    question = {TopicPartition("orders", 0): Latest()}

    with pytest.raises(BrokerUnavailableError, match=r"Last report.*127\.0\.0\.1:1"):
        ask(question, settings=settings_of("127.0.0.1:1"), timeout_ms=600)


def test_a_user_who_is_not_let_in(ask: Ask, cluster: MockCluster) -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "sesame",
    }
    question = {TopicPartition("orders", 0): Latest()}
    began = time.monotonic()

    with pytest.raises(AuthenticationError, match="refused this client"):
        ask(
            question,
            settings=settings_of(cluster.bootstrap_servers, **login),
            timeout_ms=20_000,
        )
    assert time.monotonic() - began < 15


def test_native_code_is_asked_again_only_after_a_good_answer(
    admin_settings: ClientSettings, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "MANY", 1)
    name = topic(b"a")
    admin, end = AdminConnection(admin_settings), {TopicPartition(name, 0): -1}

    def ask_for(question: dict[TopicPartition, int]) -> bool:
        return admin.list_natively([question], Deadline(10_000), False) is not None

    assert [ask_for(end) for _ in range(3)] == [False, True, True]
    assert ask_for({TopicPartition(name, 7): -1})
    assert [ask_for(end) for _ in range(2)] == [False, True]


def test_the_client_of_python_ends_where_nobody_uses_it(
    admin_settings: ClientSettings, topic: MakeTopic
) -> None:
    admin, question = AdminConnection(admin_settings), {TopicPartition(topic(), 0): -1}

    def asked_natively(questions: int) -> list[bool]:
        deadline = Deadline(30_000)
        for _ in range(questions):
            admin.list_natively([question], deadline, committed=False)
        return [admin._native is not None, admin._made is not None]

    admin.metadata(Deadline(10_000))
    assert asked_natively(admin_module.MANY // admin_module.AT_LEAST) == [False, True]
    assert asked_natively(1) == [True, True], "it was used since the last question"
    assert asked_natively(1) == [True, False]
    assert admin.metadata(Deadline(10_000)).brokers, "who needs it makes it again"
    assert asked_natively(1) == [True, True]
    assert asked_natively(1) == [True, False]
    admin.close()


# --- the extension by itself ----------------------------------------------------------


@contextmanager
def interrupted() -> Iterator[None]:
    """A signal comes soon, and its handler raises InterruptedError."""

    def interrupt(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_ends_the_waiting() -> None:
    asked = client({"bootstrap.servers": "127.0.0.1:1"})
    assert asked is not None

    with interrupted(), pytest.raises(InterruptedError):
        asked.list_offsets([{TopicPartition("orders", 0): -1}], False, 30_000, 500)


@pytest.mark.parametrize(
    ("questions", "largest", "error"),
    [
        ([{("orders",): -1}], 500, TypeError),
        ([{("orders", 0): "end"}], 500, TypeError),
        ([{("orders", 0): 1 << 64}], 500, OverflowError),
        ([{("orders", 1 << 40): -1}], 500, OverflowError),
        ([{("or\0ders", 0): -1}], 500, ValueError),
        ([{"orders": -1}], 500, TypeError),
        ([["orders"]], 500, TypeError),
        ({("orders", 0): -1}, 500, TypeError),
        ([{("orders", 0): -1}], 0, ValueError),
    ],
)
def test_what_cannot_be_asked_is_refused(
    questions: object, largest: int, error: type[Exception]
) -> None:
    asked = client({"bootstrap.servers": "127.0.0.1:1"})
    assert asked is not None

    with pytest.raises(error):
        asked.list_offsets(questions, False, 100, largest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["orders"], TypeError),
        ((7,), TypeError),
        (("or\0ders",), ValueError),
    ],
)
def test_topics_that_cannot_be_asked_for_are_refused(
    names: object, error: type[Exception]
) -> None:
    asked = client({"bootstrap.servers": "127.0.0.1:1"})
    assert asked is not None

    with pytest.raises(error):
        asked.describe_topics(names, 100)  # type: ignore[arg-type]


def test_topics_that_nobody_describes_in_time_are_asked_for_in_python(
    admin_settings: ClientSettings, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock cluster has no controller."""
    monkeypatch.setattr(admin_module, "MANY", 1)
    name = topic(b"a")
    admin = AdminConnection(admin_settings)
    assert admin.describe_natively([name], Deadline(1_000)) is None, "it has no client"
    for _ in range(2):
        admin.list_natively([{TopicPartition(name, 0): -1}], Deadline(10_000), False)
    assert admin._native is not None

    assert admin.describe_natively([name], Deadline(300)) is None
    assert admin._native is None


def test_a_signal_ends_the_waiting_for_topics() -> None:
    asked = client({"bootstrap.servers": "127.0.0.1:1"})
    assert asked is not None

    with interrupted(), pytest.raises(InterruptedError):
        asked.describe_topics(("orders",), 30_000)


def test_settings_that_librdkafka_refuses_are_left_to_python() -> None:
    assert load()[0] is not None
    assert client({"bootstrap.servers": "127.0.0.1:1", "no.such": "1"}) is None
