"""What a consumer says decides how a range goes on, or why it cannot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message

from kafka_tx.errors import (
    AuthenticationError,
    DamagedRecordsError,
    FetchError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka import range_fetch
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.kafka.range_fetch import RangeFetch
from kafka_tx.model import OffsetRange, TopicPartition

START, END = 10, 15
TIMEOUT_MS = 60_000
WANTED = OffsetRange(TopicPartition("orders", 0), START, END)
SETTINGS = {"bootstrap.servers": "one:9092"}


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class ScriptedConsumer:
    """Gives the lists of its script, one per call, then nothing but passing time."""

    def __init__(self, clock: Clock) -> None:
        self.script: list[list[Message]] = []
        self.watermarks = (0, 100)
        self.topic_error: ClientError | None = None
        self.partitions = {0: SimpleNamespace(leader=1)}
        self.statistics: Any = None
        self._clock = clock

    def assign(self, partitions: object) -> None: ...

    def close(self) -> None: ...

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        if self.script:
            return self.script.pop(0)
        self._clock.now += timeout_s
        return []

    def get_watermark_offsets(self, partition: object, timeout: float) -> Any:
        if self.watermarks == (-1, -1):
            raise KafkaException(ClientError(ClientError._TIMED_OUT))
        return self.watermarks

    def list_topics(self, topic: str, timeout: float) -> Any:
        if self.watermarks == (-1, -1):
            raise KafkaException(ClientError(ClientError._TRANSPORT))
        described = SimpleNamespace(error=self.topic_error, partitions=self.partitions)
        return SimpleNamespace(topics={topic: described})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(range_fetch, "time", clock)
    return clock


@pytest.fixture
def consumer(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> ScriptedConsumer:
    consumer = ScriptedConsumer(clock)

    def make(_: Mapping[str, str], __: ErrorWatch, statistics: Any) -> ScriptedConsumer:
        consumer.statistics = statistics
        return consumer

    monkeypatch.setattr(range_fetch, "new_consumer", make)
    return consumer


@pytest.fixture
def fetch(consumer: ScriptedConsumer) -> RangeFetch:
    return RangeFetch(SETTINGS, WANTED, TIMEOUT_MS)


def record(offset: int) -> Message:
    return Message(topic="orders", partition=0, offset=offset, value=b"v")


def of_epoch(epoch: int, offset: int) -> Message:
    return Message("orders", 0, offset, value=b"v", leader_epoch=epoch)


def event(code: int, offset: int = -1) -> Message:
    return Message(
        topic="orders", partition=0, offset=offset, error=ClientError(code, "because")
    )


def end_of_log(offset: int) -> Message:
    return event(ClientError._PARTITION_EOF, offset)


def drain(fetch: RangeFetch) -> list[int | None]:
    """The offsets of all records until the fetch is done or raises."""
    offsets: list[int | None] = []
    while not fetch.is_done:
        offsets += [message.offset() for message in fetch.take(100)]
    return offsets


@pytest.mark.parametrize("others", [[11, 12], [12], [14], [16]])
def test_no_record_of_a_later_leader_epoch_is_given(
    consumer: ScriptedConsumer, others: list[int]
) -> None:
    wanted = replace(WANTED, leader_epoch=3)
    fetch = RangeFetch(SETTINGS, wanted, TIMEOUT_MS)
    before = [of_epoch(2, 10), of_epoch(3, 11)][: others[0] - 10]
    consumer.script = [before + [of_epoch(4, offset) for offset in others]]

    if others[0] >= END:
        assert drain(fetch) == [10, 11]
        return
    with pytest.raises(OffsetOutOfRangeError, match="leader epoch 3") as caught:
        drain(fetch)
    assert caught.value.fields["log_end"] == others[0]


# --- the end of a range -------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "offsets"),
    [
        ([[record(10), record(12), record(14)]], [10, 12, 14]),
        ([[record(10)], [record(11), record(15)]], [10, 11]),
        ([[record(10)], [record(20)]], [10]),
        ([[record(99)]], []),
        ([[record(10), end_of_log(15)]], [10]),
        ([[record(10), end_of_log(13)], [record(13), record(14)]], [10, 13, 14]),
        ([[record(10), end_of_log(13), record(13)], [end_of_log(16)]], [10, 13]),
        ([[end_of_log(15)]], []),
    ],
    ids=[
        "last record there",
        "a record beyond",
        "holes up to far beyond",
        "nothing but holes",
        "holes up to the end of the log",
        "the log grows",
        "the log grows within one answer",
        "an empty tail",
    ],
)
def test_the_position_ends_a_range_whatever_is_missing(
    fetch: RangeFetch,
    consumer: ScriptedConsumer,
    script: list[list[Message]],
    offsets: list[int],
) -> None:
    consumer.script = script

    assert drain(fetch) == offsets


def test_no_more_is_asked_for_than_the_range_can_hold(
    fetch: RangeFetch, consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def consume(count: int, timeout_s: float) -> list[Message]:
        asked.append(count)
        return [record(12)]

    monkeypatch.setattr(consumer, "consume", consume)
    fetch.take(1_000)
    fetch.take(1)
    fetch.take(1_000)

    assert asked == [5, 1, 2]


# --- what cannot be read ------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ClientError.OFFSET_OUT_OF_RANGE, OffsetOutOfRangeError),
        (ClientError._AUTO_OFFSET_RESET, OffsetOutOfRangeError),
        (ClientError.UNKNOWN_TOPIC_OR_PART, UnknownTopicError),
        (ClientError._UNKNOWN_PARTITION, UnknownTopicError),
        (ClientError.TOPIC_AUTHORIZATION_FAILED, AuthenticationError),
        (ClientError._BAD_MSG, FetchError),
        (ClientError._BAD_COMPRESSION, FetchError),
        (ClientError._NOT_IMPLEMENTED, FetchError),
        (ClientError.MSG_SIZE_TOO_LARGE, FetchError),
    ],
)
def test_an_error_that_stays_is_raised_at_once(
    fetch: RangeFetch,
    consumer: ScriptedConsumer,
    clock: Clock,
    code: int,
    kind: type[KafkaTxError],
) -> None:
    consumer.script = [[record(10), event(code, 11), record(12)]]
    consumer.watermarks = (12, 100)
    started = clock.now

    with pytest.raises(kind, match=r"orders-0 \[10, 15\)") as caught:
        drain(fetch)

    assert clock.now == started
    assert "one:9092" in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        ClientError.INVALID_MSG,
        ClientError.NOT_LEADER_FOR_PARTITION,
        ClientError._TRANSPORT,
        ClientError.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_an_error_that_may_pass_is_waited_out(
    fetch: RangeFetch, consumer: ScriptedConsumer, code: int
) -> None:
    consumer.script = [[record(10), event(code)], [], [], [record(11), record(14)]]

    assert drain(fetch) == [10, 11, 14]


def test_the_log_s_bounds_stand_in_the_error(
    fetch: RangeFetch, consumer: ScriptedConsumer
) -> None:
    consumer.script = [[event(ClientError._AUTO_OFFSET_RESET)]]
    consumer.watermarks = (12, 40)

    with pytest.raises(OffsetOutOfRangeError) as caught:
        drain(fetch)

    fields = caught.value.fields
    assert (fields["wanted"], fields["log_start"], fields["log_end"]) == (10, 12, 40)


# --- silence ------------------------------------------------------------------------


def test_silence_ends_with_the_time_out_and_tells_range_position_and_error(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    consumer.script = [[record(10), event(ClientError._TRANSPORT, 11)]]
    started = clock.now

    with pytest.raises(FetchError) as caught:
        drain(fetch)

    assert 60 < clock.now - started < 61
    text = str(caught.value)
    assert "orders-0 [10, 15)" in text
    assert "no progress for 60 s at offset 11" in text
    assert "Last error of the partition: because" in text
    assert caught.value.fields["position"] == 11


def test_what_a_broker_calls_corrupt_for_a_while_is_damaged(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    consumer.script = [[record(10), event(ClientError.INVALID_MSG)]]
    fetch.take(9)
    started = clock.now

    def read() -> None:
        while True:  # the client repeats it as often as it asks
            consumer.script = [[event(ClientError.INVALID_MSG)]]
            fetch.take(9)
            clock.now += 0.5

    with pytest.raises(DamagedRecordsError, match="damaged.* at offset 11"):
        read()

    assert 5 < clock.now - started < 6


def test_what_was_corrupt_before_other_records_came_is_not(
    fetch: RangeFetch, consumer: ScriptedConsumer
) -> None:
    """Silence then is a broker's, and no record is named as lost."""
    consumer.script = [[event(ClientError.INVALID_MSG)], [record(10)]]

    with pytest.raises(FetchError, match="no progress for 60 s at offset 11") as caught:
        drain(fetch)

    assert not isinstance(caught.value, DamagedRecordsError)


def test_a_log_that_holds_the_range_lost_nothing_whoever_said_so(
    fetch: RangeFetch, consumer: ScriptedConsumer
) -> None:
    """A former leader, which did not know that it was one."""
    consumer.script = [[event(ClientError.OFFSET_OUT_OF_RANGE)]]
    consumer.watermarks = (START, END)

    with pytest.raises(FetchError, match=r"holds \[10, 15\)"):
        drain(fetch)


def test_answers_that_cannot_be_decoded_are_damaged(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    consumer.script = [[record(10)]]
    fetch.take(1)
    started = clock.now
    for partial in (2, 4):
        consumer.statistics(json.dumps({"brokers": {"1": {"rxpartial": partial}}}))

    with pytest.raises(DamagedRecordsError, match="at offset 11"):
        drain(fetch)

    assert 5 < clock.now - started < 6


def test_records_before_damage_are_given_first(
    fetch: RangeFetch, consumer: ScriptedConsumer
) -> None:
    consumer.script = [[record(10), record(11), event(ClientError._BAD_MSG, 13)]]

    assert [message.offset() for message in fetch.take(9)] == [10, 11]
    with pytest.raises(DamagedRecordsError) as caught:
        fetch.take(9)

    assert caught.value.position == 13


def test_each_record_starts_the_time_anew(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    for offset in (10, 12):
        consumer.script = [[record(offset)]]
        fetch.take(1)
        clock.now += 59
        fetch.take(1)

    consumer.script = [[record(14)]]
    assert drain(fetch) == [14]


def test_passing_over_aborted_records_is_progress(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    for next_offset in (11, 12, 13):
        partition = {"partitions": {"0": {"next_offset": next_offset}}}
        clock.now += 59
        consumer.statistics(json.dumps({"topics": {"orders": partition}}))
        fetch.take(1)

    with pytest.raises(FetchError):
        drain(fetch)


def test_statistics_that_stand_still_are_no_progress(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    consumer.statistics(json.dumps({"topics": {}}))
    started = clock.now

    with pytest.raises(FetchError):
        drain(fetch)

    assert clock.now - started < 61


def test_time_between_batches_does_not_count(fetch: RangeFetch, clock: Clock) -> None:
    clock.now += 3_600
    fetch.resume_clock()

    assert fetch.take(1) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ClientError.TOPIC_AUTHORIZATION_FAILED, AuthenticationError),
        (ClientError.UNKNOWN_TOPIC_OR_PART, UnknownTopicError),
    ],
)
def test_a_broker_is_asked_for_the_reason_of_silence(
    fetch: RangeFetch,
    consumer: ScriptedConsumer,
    clock: Clock,
    code: int,
    kind: type[KafkaTxError],
) -> None:
    consumer.topic_error = ClientError(code)
    started = clock.now

    with pytest.raises(kind):
        drain(fetch)

    assert clock.now - started < 6


def test_a_partition_the_topic_does_not_have_is_named(
    fetch: RangeFetch, consumer: ScriptedConsumer
) -> None:
    consumer.partitions = {}

    with pytest.raises(UnknownTopicError, match="orders-0"):
        drain(fetch)


def test_a_partition_without_leader_is_waited_for_and_told(
    fetch: RangeFetch, consumer: ScriptedConsumer
) -> None:
    consumer.partitions = {0: SimpleNamespace(leader=-1)}

    with pytest.raises(FetchError, match="The partition has no leader"):
        drain(fetch)


def test_a_log_that_ends_below_the_range_is_out_of_range_after_a_grace(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    consumer.script = [[record(10), end_of_log(12)]]
    consumer.watermarks = (0, 12)
    started = clock.now

    with pytest.raises(OffsetOutOfRangeError) as caught:
        drain(fetch)

    assert 5 < clock.now - started < 6
    assert caught.value.fields["log_end"] == 12


def test_a_leader_that_learns_the_end_late_is_waited_for(
    fetch: RangeFetch, consumer: ScriptedConsumer, clock: Clock
) -> None:
    consumer.script = [[record(10), end_of_log(12)]]
    consumer.watermarks = (0, 15)
    fetch.take(5)
    clock.now += 6
    assert fetch.take(5) == []

    consumer.script = [[record(13)], [end_of_log(15)]]

    assert drain(fetch) == [13]


def test_brokers_that_are_all_away_make_a_fetch_error(
    fetch: RangeFetch, consumer: ScriptedConsumer
) -> None:
    consumer.watermarks = (-1, -1)

    with pytest.raises(FetchError, match="no progress"):
        drain(fetch)
