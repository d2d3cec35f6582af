"""Which dead letters can be sent back, and as which record; no broker is asked."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError

from kafka_tx import assembly, sink_assembly
from kafka_tx.errors import (
    AuthenticationError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import delivery_error
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.running import redrive
from kafka_tx.running.redrive import DeadLetter, DeadLetterUnusableError, Redrive
from kafka_tx.sinks.letter_topic import TopicFacts

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
