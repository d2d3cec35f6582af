"""Which dead letters can be sent back, and as which record; no broker is asked."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError

from kafka_tx import assembly, sink_assembly
from kafka_tx.errors import (
    AuthenticationError,
    KafkaError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import delivery_error, refused_record
from kafka_tx.kafka.transaction import BatchRefusedError
from kafka_tx.model import LogBounds, OffsetRange, TopicPartition
from kafka_tx.running import redrive
from kafka_tx.running.redrive import DeadLetter, DeadLetterUnusableError, Redrive
from kafka_tx.sinks.letter_topic import TopicFacts
from kafka_tx.sinks.sent_letters import SentLetters

AT = TopicPartition("dead", 0)
ABOUT = {
    "kafka_tx.topic": "orders",
    "kafka_tx.partition": "0",
    "kafka_tx.offset": "5",
    "kafka_tx.error": "e",
    "kafka_tx.bytes": "3",
    "kafka_tx.format": "3",
}
CUT = DeadLetter(AT, 3, OutRecord("dead", None, None, ()), ABOUT)
"""Too large for the dead-letter topic: it has neither key nor value."""


class Log:
    """Has the failed record, or raises."""

    def __init__(self, answer: OutRecord | KafkaTxError) -> None:
        self.answer = answer

    def read(self, wanted: Any) -> Any:
        if isinstance(self.answer, KafkaTxError):
            raise self.answer
        yield [(wanted.start, self.answer)]


@pytest.fixture
def usable(monkeypatch):
    monkeypatch.setattr(redrive, "records_of", iter)
    monkeypatch.setattr(assembly, "range_reader", lambda _: None)
    monkeypatch.setattr(sink_assembly, "letter_log", lambda *_: None)

    def judged(answer, policy="delete", letter=CUT):
        made: Any = Redrive({}, "dead", 1_000)
        made._reader = Log(answer)
        made._facts["orders"] = TopicFacts("orders", 1, policy=policy)
        return made.usable(letter).record

    return judged


@pytest.mark.parametrize(
    ("error", "lasts", "says"),
    [
        (AuthenticationError("needs READ on topic 'orders'"), False, "needs READ"),
        (OffsetOutOfRangeError("trimmed"), True, "is no longer there"),
        (UnknownTopicError("no topic"), True, "is no longer there"),
    ],
)
def test_a_record_that_may_not_be_read_is_not_gone(usable, error, lasts, says):
    """Who lets go of what can never be sent loses what waits for a right."""
    with pytest.raises(DeadLetterUnusableError, match=says) as raised:
        usable(error)

    assert raised.value.lasts is lasts


def test_a_letter_without_its_key_is_judged_with_the_key_of_its_record(usable):
    record = OutRecord("orders", b"k", b"abc", (), 0)

    assert usable(record, policy="compact").key == b"k"
    with pytest.raises(DeadLetterUnusableError, match="no record without key"):
        usable(OutRecord("orders", None, b"abc", (), 0), policy="compact")


def test_a_letter_may_begin_with_the_schema_ids_of_its_records_headers(usable):
    """The source of its query has no column ``headers``."""
    head = b"\0\0\0\0\7"
    headers = [("__key_schema_id", head), ("__value_schema_id", head)]
    record = OutRecord("orders", b"k", b"abc", headers, 0)
    about = {**ABOUT, "kafka_tx.bytes": "8"}
    letter = DeadLetter(AT, 3, OutRecord("dead", head + b"k", None, ()), about)

    found = usable(record, letter=letter)

    assert (found.key, found.value, found.headers) == (b"k", b"abc", headers)
    with pytest.raises(DeadLetterUnusableError, match="is another one"):
        usable(OutRecord("orders", b"k", b"abc", (), 0), letter=letter)


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS", "NETWORK_EXCEPTION"])
def test_a_topic_that_takes_no_record_for_now_is_to_blame_and_no_letter(code):
    """To find a letter to blame, as many transactions would fail as there are."""
    made: Any = Redrive({}, "dead", 1_000)
    error = delivery_error("orders", None, 3, ClientError(getattr(ClientError, code)))

    some = OffsetRange(AT, 0, 9)
    assert made._blamed(some, [CUT, CUT], error) == [some]

    with pytest.raises(DeadLetterUnusableError, match="was not written") as raised:
        made.usable(CUT)
    assert not raised.value.lasts


class Writer:
    """A transaction that keeps what it commits."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.stored = SentLetters()

    def writing(self) -> Any:
        return nullcontext()

    def send(self, records: Any, *, is_small: bool = False) -> None:
        self.values += [record.value for record in records if record]

    def add_position(self, at: Any, next_offset: int, metadata: str) -> None:
        self.position = next_offset

    def commit(self) -> None:
        pass


class LosingAnswers(Writer):
    """Another sender fences it before the answer to its first commit arrives."""

    def __init__(self, stored: SentLetters) -> None:
        super().__init__()
        self._after = [stored]

    def commit(self) -> None:
        if self._after:
            self.stored = self._after.pop()
            raise KafkaError("fenced")


def sending(monkeypatch, topics, writer) -> Any:
    """A redrive of a log with one letter for each of ``topics``."""
    made: Any = Redrive({}, "dead", 1_000)
    made._log = SimpleNamespace(record=lambda *_: None)
    letters = [
        DeadLetter(
            *(AT, offset, OutRecord("dead", None, topic.encode(), (), 0)),
            {name: at for name, at in ABOUT.items() if name != "kafka_tx.bytes"}
            | {"kafka_tx.topic": topic},
        )
        for offset, topic in enumerate(topics)
    ]
    for topic in topics:
        made._facts[topic] = TopicFacts(topic, 1)
    bounds = LogBounds(0, len(topics), "id")
    made._recalled = lambda **_: {AT: (bounds, writer.stored)}
    made.read = lambda some: iter(letters[some.start : some.end])
    monkeypatch.setattr(
        sink_assembly, "group_transaction", lambda *_: nullcontext(writer)
    )
    return made


@pytest.mark.usefixtures("usable")
def test_only_letters_and_topics_of_the_plan_are_sent_to(monkeypatch):
    """Letters may come while a person reads the plan, or become usable."""
    writer = Writer()
    topics = ["orders", "payments", "orders", "orders"]
    made = sending(monkeypatch, topics, writer)
    sent: list[Any] = []
    left: list[Any] = []

    planned = [OffsetRange(AT, 0, 3)]
    made.send(planned, {"orders"}, sent.extend, skips=True, left=left.append)

    assert [each.offset for each in sent] == [0, 2]
    assert (writer.values, writer.position) == ([b"orders", b"orders"], 3)
    (error,) = left
    assert not error.lasts
    assert "'payments' was not in the plan: run the command again" in str(error)


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize(
    ("committed", "at_once", "sends", "says", "rest"),
    [
        (SentLetters(2, serial=1), 2, [0, 1], None, []),
        (SentLetters(1, serial=1), 1, [0], "run the command again", [1]),
        (SentLetters(2, serial=2), 2, [], "fenced", []),  # of another sender
        (SentLetters(), 2, [], "fenced", [0, 1]),
    ],
)
def test_letters_of_a_commit_without_answer_were_sent_if_it_was_done(
    monkeypatch, committed, at_once, sends, says, rest
):
    monkeypatch.setattr(redrive, "_AT_ONCE", at_once)
    made = sending(monkeypatch, ["orders"] * 2, LosingAnswers(committed))
    sent: list[Any] = []

    with pytest.raises(KafkaError, match=says) if says else nullcontext():
        made.send([OffsetRange(AT, 0, 2)], {"orders"}, sent.extend)

    assert [each.offset for each in sent] == sends
    made.send(made.waiting(), {"orders"}, sent.extend)
    assert [each.offset for each in sent] == sends + rest


class Overtaken(Writer):
    """Refused at first; another sender begins and ends before it tries again."""

    def __init__(self) -> None:
        super().__init__()
        self._others = [SentLetters(1, serial=1)]

    def send(self, records: Any, *, is_small: bool = False) -> None:
        if self._others:
            self.stored = self._others.pop()
            raise BatchRefusedError("smaller ones", topic="orders")
        super().send(records, is_small=is_small)


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("again", [False, True])
def test_what_another_sender_sent_between_two_tries_is_not_sent_twice(
    monkeypatch, again
):
    writer = Overtaken()
    made = sending(monkeypatch, ["orders"] * 2, writer)
    sent: list[Any] = []

    with pytest.raises(KafkaError, match="run the command again"):
        made.send([OffsetRange(AT, 0, 2)], {"orders"}, sent.extend, again=again)
    assert (sent, writer.values) == ([], [])

    made.send(made.waiting(), {"orders"}, sent.extend)
    assert [each.offset for each in sent] == [1]


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize("is_own", [False, True])
def test_a_letter_that_is_too_large_for_this_client_waits_for_a_larger_limit(is_own):
    made: Any = Redrive({}, "dead", 1_000)
    record = OutRecord("orders", b"k", b"large")
    why = ClientError(ClientError.MSG_SIZE_TOO_LARGE)
    letter = replace(CUT, record=record)
    made._blamed(
        OffsetRange(AT, 3, 4), [letter], refused_record(record, why, is_own=is_own)
    )

    with pytest.raises(DeadLetterUnusableError, match=r"(?i)raise") as raised:
        made.usable(letter)

    assert raised.value.lasts is not is_own
