"""Topics and offsets of a cluster, seen through batched requests."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kafka_tx.errors import AuthenticationError, BrokerUnavailableError, ConfigError
from kafka_tx.kafka import admin, cluster
from kafka_tx.kafka.client_settings import ClientSettings, client_settings
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.offset_requests import SILENT, ListedOffset
from kafka_tx.model import (
    Assigned,
    AtOffset,
    AtTime,
    Broker,
    Earliest,
    Latest,
    LogBounds,
    TopicDescription,
    TopicPartition,
    TopicPattern,
    Topics,
    Unavailable,
)
from kafka_tx.protocols import ClusterView
from kafka_tx.testing.mock import MockCluster
from tests.prompt_errors import prompt_error

MakeTopic = Callable[..., str]


@pytest.fixture
def view(admin_settings: ClientSettings) -> Iterator[KafkaClusterView]:
    view = KafkaClusterView(admin_settings, timeout_ms=5_000, retry_interval_ms=10)
    yield view
    view.close()


def test_it_is_what_the_other_rooms_ask_for(view: KafkaClusterView) -> None:
    as_seam: ClusterView = view

    assert as_seam is view


def test_named_topics_are_described_and_absent_ones_left_out(
    view: KafkaClusterView, topic: MakeTopic
) -> None:
    three, one = topic(partitions=3), topic()

    found = view.topics(Topics((three, one, "absent")))

    assert sorted(found) == sorted([three, one])
    assert [tp.partition for tp in found[three].partitions] == [0, 1, 2]
    assert found[three].topic_id is None
    assert all(isinstance(b, Broker) for b in found[three].leaders.values())


def test_asking_for_an_absent_topic_does_not_create_it(view: KafkaClusterView) -> None:
    assert view.topics(Topics(("never-made",))) == {}
    assert view.topics(Topics(("never-made",))) == {}


def test_a_pattern_finds_topics_made_later(
    view: KafkaClusterView, topic: MakeTopic
) -> None:
    first = topic()
    wanted = TopicPattern("topic-.*")
    assert first in view.topics(wanted)

    second = topic()

    assert {first, second} <= set(view.topics(wanted))


def test_the_topics_of_assigned_partitions_are_described_whole(
    view: KafkaClusterView, topic: MakeTopic
) -> None:
    name = topic(partitions=2)

    found = view.topics(Assigned((TopicPartition(name, 1),)))

    assert sorted(found[name].leaders) == [0, 1]


def test_a_bad_pattern_is_told_before_anything_else(view: KafkaClusterView) -> None:
    with pytest.raises(ConfigError, match="regular expression"):
        view.topics(TopicPattern("("))


def test_bounds_are_log_start_and_end(view: KafkaClusterView, topic: MakeTopic) -> None:
    name = topic(b"a", b"b", b"c", partitions=2)
    full, empty = TopicPartition(name, 0), TopicPartition(name, 1)

    assert view.bounds([full, empty]) == {full: LogBounds(0, 3), empty: LogBounds(0, 0)}
    assert view.bounds([]) == {}


def test_a_partition_that_cannot_be_had_does_not_spoil_the_others(
    view: KafkaClusterView, topic: MakeTopic
) -> None:
    name = topic(b"a")
    good, bad = TopicPartition(name, 0), TopicPartition(name, 9)

    found = view.bounds([good, bad])

    assert found[good] == LogBounds(0, 1)
    assert found[bad] == Unavailable(f"{bad}: it does not exist")


def test_positions_of_all_kinds_are_resolved_in_the_order_asked(
    view: KafkaClusterView, topic: MakeTopic
) -> None:
    name = topic(b"a", b"b", partitions=5)
    at = [TopicPartition(name, number) for number in range(6)]

    found = view.offsets(
        {
            at[4]: AtOffset(77),
            at[0]: Latest(),
            at[1]: Earliest(),
            at[2]: AtTime(int(time.time() * 1000) + 3_600_000),
            at[5]: Latest(),
        }
    )

    assert list(found) == [at[4], at[0], at[1], at[2], at[5]]
    assert found[at[4]] == 77
    assert found[at[0]] == 2
    assert found[at[1]] == 0
    assert found[at[2]] is None
    assert isinstance(found[at[5]], Unavailable)


def test_given_offsets_need_no_broker() -> None:
    view = KafkaClusterView(nowhere(), timeout_ms=100, num_retries=0)
    partition = TopicPartition("t", 0)

    assert view.offsets({partition: AtOffset(5)}) == {partition: 5}


# --- answers that lag behind --------------------------------------------------------


def scripted(
    view: KafkaClusterView,
    monkeypatch: pytest.MonkeyPatch,
    *answers: Mapping[str, int],
) -> list[int]:
    """Let the view's looks give these topics (name to number of partitions)."""
    polls: list[int] = []
    leader = Broker("one", 9092, 1)

    def poll(*_: object) -> dict[str, TopicDescription]:
        answer = answers[min(len(polls), len(answers) - 1)]
        polls.append(1)
        return {
            name: TopicDescription(name, dict.fromkeys(range(count), leader))
            for name, count in answer.items()
        }

    monkeypatch.setattr(view, "_describe", poll)
    return polls


def test_an_answer_with_fewer_partitions_is_asked_for_again(
    view: KafkaClusterView, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = scripted(view, monkeypatch, {"t": 3}, {"t": 1}, {}, {"t": 3})
    view.topics(Topics(("t",)))

    found = view.topics(Topics(("t",)))

    assert len(found["t"].leaders) == 3
    assert len(polls) == 4


def test_a_topic_that_stays_away_is_believed_to_be_gone_and_asked_for_once_more_only(
    view: KafkaClusterView, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = scripted(view, monkeypatch, {"t": 3}, {})
    view.topics(Topics(("t",)))

    assert view.topics(Topics(("t",))) == {}
    assert len(polls) == 1 + 1 + 3
    assert view.topics(Topics(("t",))) == {}
    assert len(polls) == 1 + 1 + 3 + 1


def test_a_partition_without_leader_is_not_asked_for_offsets(
    view: KafkaClusterView, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(b"a", partitions=2)
    led, leaderless = TopicPartition(name, 0), TopicPartition(name, 1)
    without = TopicDescription(name, {0: Broker("one", 9092, 1), 1: None})
    monkeypatch.setattr(view, "_describe", lambda *_: {name: without})
    view.topics(Topics((name,)))

    found = view.bounds([led, leaderless])

    assert found[led] == LogBounds(0, 1)
    assert found[leaderless] == Unavailable(f"{leaderless}: it has no leader")


def test_a_leader_that_does_not_answer_holds_up_no_other_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster still names it as the leader: only this client cannot reach it."""
    view = KafkaClusterView(nowhere())
    there, silent = (TopicPartition("t", number) for number in range(2))

    def answered(_: object, questions: Any, *__: object, **___: object) -> Any:
        if there not in questions[0]:
            raise BrokerUnavailableError("no leader of these answers")
        known = {there: ListedOffset(1, 0), silent: SILENT}
        return [known for _ in questions]

    leaders = {number: Broker("one", 9092, number) for number in range(2)}
    described = {"t": TopicDescription("t", leaders)}
    monkeypatch.setattr(cluster, "list_offsets", answered)
    monkeypatch.setattr(view, "_describe", lambda *_: described)

    found = view.bounds([there, silent])

    assert found[there] == LogBounds(1, 1, leader_epoch=0)
    assert isinstance(found[silent], Unavailable)
    with pytest.raises(BrokerUnavailableError):
        view.bounds([silent])


def test_leaders_of_many_partitions_may_take_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = KafkaClusterView(nowhere())
    given: list[float] = []

    def answered(_: object, questions: Any, deadline: Any, **__: object) -> Any:
        given.append(deadline.rest_s())
        return [dict.fromkeys(question, ListedOffset(0, 0)) for question in questions]

    monkeypatch.setattr(cluster, "list_offsets", answered)
    monkeypatch.setattr(view, "_without_leader", lambda *_: {})
    monkeypatch.setattr(view, "_describe", lambda *_: {})

    for number in (1, 10_000):
        view.bounds([TopicPartition("t", n) for n in range(number)])

    assert given[0] <= 2.0 < 3.5 < given[1] < 7.5  # a try of four has so much of 30 s


@pytest.mark.parametrize(
    ("retries", "pause_ms", "attempt_ms"),
    [
        (0, 1_000, 30_000),
        (1, 1_000, 15_000),
        (3, 1_000, 7_500),
        (3, 30_000, 7_500),
        (60, 10_000, 7_500),
    ],
)
@pytest.mark.parametrize("is_back", [True, False], ids=["back", "away"])
def test_more_retries_and_longer_pauses_take_no_time_from_an_attempt(
    monkeypatch: pytest.MonkeyPatch,
    replace_in: Callable[..., None],
    retries: int,
    pause_ms: int,
    attempt_ms: int,
    is_back: bool,
) -> None:
    view = KafkaClusterView(nowhere(), num_retries=retries, retry_interval_ms=pause_ms)
    now_s, given, pauses = [0.0], list[int](), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds * 1000)
        now_s[0] += seconds

    def ask(questions: Any, deadline: Any) -> Any:
        given.append(deadline.timeout_ms)
        if is_back and len(given) > retries:
            return [dict.fromkeys(each, ListedOffset(7, 0)) for each in questions]
        now_s[0] += deadline.timeout_ms / 1000
        raise BrokerUnavailableError("nobody answers")

    for module in (admin, cluster):
        replace_in(module, "time", monotonic=lambda: now_s[0], sleep=sleep)
    monkeypatch.setattr(view, "_ask", ask)
    partition = TopicPartition("t", 0)

    if is_back:
        assert view.offsets({partition: Latest()}) == {partition: 7}
    else:
        with pytest.raises(BrokerUnavailableError):
            view.offsets({partition: Latest()})
    assert given == [attempt_ms] * (retries + 1)
    assert pauses == [pause_ms] * retries


# --- brokers that cannot be had -----------------------------------------------------


def nowhere() -> ClientSettings:
    """Settings for an address where nobody listens."""
    return client_settings({"bootstrap.servers": "127.0.0.1:1"}, purpose="admin")


@pytest.mark.parametrize(
    "ask",
    [
        lambda view: view.topics(Topics(("t",))),
        lambda view: view.topics(TopicPattern(".*")),
        lambda view: view.bounds([TopicPartition("t", 0)]),
        lambda view: view.offsets({TopicPartition("t", 0): Latest()}),
    ],
    ids=["topics", "pattern", "bounds", "offsets"],
)
def test_an_address_where_nobody_listens_is_named_within_the_time_out(
    ask: Callable[[KafkaClusterView], Any],
) -> None:
    view = KafkaClusterView(nowhere(), timeout_ms=1_000, retry_interval_ms=10)

    error = prompt_error(
        lambda: ask(view), 4, BrokerUnavailableError, r"127\.0\.0\.1:1"
    )

    assert "Connection refused" in str(error)
    assert error.retryable


@pytest.mark.parametrize(
    "ask",
    [
        lambda view: view.topics(Topics(("t",))),
        lambda view: view.bounds([TopicPartition("t", 0)]),
    ],
    ids=["topics", "bounds"],
)
def test_a_refused_log_in_is_told_long_before_the_time_out(
    ask: Callable[[KafkaClusterView], Any], login_options: dict[str, str]
) -> None:
    view = KafkaClusterView(client_settings(login_options, purpose="admin"))

    error = prompt_error(lambda: ask(view), 5, AuthenticationError, "SASL")

    assert login_options["bootstrap.servers"] in str(error)
    assert "sesame" not in str(error)


def test_a_broker_that_comes_back_is_found_by_a_retry(topic: MakeTopic) -> None:
    with MockCluster() as own:
        own.create_topic("t")
        settings = client_settings(
            {"bootstrap.servers": own.bootstrap_servers}, purpose="admin"
        )
        view = KafkaClusterView(settings, timeout_ms=15_000, retry_interval_ms=10)
        view.topics(Topics(("t",)))
        own.stop_broker()
        impatient = KafkaClusterView(settings, timeout_ms=300, num_retries=0)
        with pytest.raises(BrokerUnavailableError):
            impatient.topics(Topics(("t",)))

        own.start_broker()

        assert list(view.topics(Topics(("t",)))) == ["t"]


def test_a_setting_librdkafka_refuses_is_told_without_secrets() -> None:
    settings = client_settings(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "socket.max.fails": "many",
            "sasl.password": "sesame",
        },
        purpose="admin",
    )

    with pytest.raises(ConfigError, match=r"socket\.max\.fails") as caught:
        KafkaClusterView(settings).topics(Topics(("t",)))

    assert "sesame" not in str(caught.value)


# --- life ---------------------------------------------------------------------------


def test_it_is_pickled_without_its_client(
    view: KafkaClusterView, topic: MakeTopic
) -> None:
    name = topic(b"a")
    view.topics(Topics((name,)))

    copy = pickle.loads(pickle.dumps(view))

    assert list(copy.topics(Topics((name,)))) == [name]
    copy.close()


def test_it_can_be_closed_twice_and_used_again(
    view: KafkaClusterView, topic: MakeTopic
) -> None:
    name = topic(b"a")
    view.topics(Topics((name,)))

    view.close()
    view.close()

    assert view.bounds([TopicPartition(name, 0)]) == {
        TopicPartition(name, 0): LogBounds(0, 1)
    }


# --- whose bounds they are ----------------------------------------------------------


class ToldInTurn(KafkaClusterView):
    """Topic ids and log ends as a list of answers tells them, one after the other."""

    def __init__(self, *answers: str | int | None) -> None:
        super().__init__({})
        self._answers = list(answers)

    def _describe(
        self, wanted: object, deadline: object
    ) -> dict[str, TopicDescription]:
        described = self._answers.pop(0)
        assert not isinstance(described, int), "topics are asked where a log should be"
        if described == "gone":
            return {}
        return {"t": TopicDescription("t", {0: Broker("b", 9092, 1)}, described)}

    def _listed(self, questions: object) -> list[Any]:
        end = self._answers.pop(0)
        assert isinstance(end, int), "a log is asked where topics should be"
        return [{T0: ListedOffset(0, 0)}, {T0: ListedOffset(end, 3)}]

    def is_over(self) -> None:
        """All answers were asked for."""
        assert not self._answers


T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["a", 7, "a"], LogBounds(0, 7, "a", 3)),
        ([None, 7, None], LogBounds(0, 7, None, 3)),
        (["a", 7, "b", 5, "b"], LogBounds(0, 5, "b", 3)),
        ([None, 7, "b", 5, "b"], LogBounds(0, 5, "b", 3)),
        (["gone", 7, "b", 5, "b"], LogBounds(0, 5, "b", 3)),
        (
            ["a", 7, "b", 5, "c"],
            Unavailable("t-0: its topic was re-created during the request", "c"),
        ),
        (["a", 7, "gone"], Unavailable("t-0: its topic is not there any more")),
        (
            ["a", 7, None],
            Unavailable(
                "t-0: no broker tells whether its topic is still the one with the id a"
            ),
        ),
    ],
)
def test_bounds_are_of_the_topic_that_was_there_before_and_after(
    answers: list[str | int | None], found: LogBounds | Unavailable
) -> None:
    view = ToldInTurn(*answers)

    assert view.bounds([T0]) == {T0: found}
    view.is_over()


def test_an_id_that_was_told_long_before_is_as_good_as_one_just_before() -> None:
    view = ToldInTurn("a", 7, "a", 8, "a", 9, "b", 2, "b")

    seen = [view.survey(Topics(("t",)), [T0])[1][T0] for _ in range(3)]

    assert seen == [
        LogBounds(0, 7, "a", 3),
        LogBounds(0, 8, "a", 3),
        LogBounds(0, 2, "b", 3),
    ]
    view.is_over()
