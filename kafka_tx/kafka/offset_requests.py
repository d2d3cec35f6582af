"""Asking the leaders of partitions for offsets: log bounds, times, ends of epochs."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import confluent_kafka.admin
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.kafka.admin import (
    LARGEST_REQUEST,
    AdminConnection,
    Deadline,
    NativeAnswer,
)
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import ErrorWatch, is_refused, is_unreachable
from kafka_tx.logs import event_log
from kafka_tx.model import (
    AtTime,
    Earliest,
    Latest,
    TopicDescription,
    TopicPartition,
)

_Spec: Any = confluent_kafka.admin.OffsetSpec  # type: ignore[attr-defined]

Question = Mapping[TopicPartition, Earliest | Latest | AtTime]
"""The offset to ask for in each partition."""


class ListedOffset(NamedTuple):
    """An offset that a leader reported; -1 if no record is as late as the given time.

    ``leader_epoch``: of the leader, if the request was for the end and it is known.
    """

    offset: int
    leader_epoch: int | None


Listed = dict[TopicPartition, ListedOffset | ClientError]

SILENT = ClientError(ClientError._TIMED_OUT, "its leader did not answer in time")

_MOVING = {
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.FENCED_LEADER_EPOCH,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError.OFFSET_NOT_AVAILABLE,
}


def list_offsets(
    admin: AdminConnection,
    questions: Sequence[Question],
    deadline: Deadline,
    *,
    committed: bool,
) -> list[Listed]:
    """Send all questions together and wait for every answer.

    A partition without a leader holds back the answers for all the others: leave it
    out. One whose leader does not answer in time gets an error, the others their
    offsets. ``committed`` makes the end the last stable offset.

    Raises:
        BrokerUnavailableError: No partition got an answer in time.
        AuthenticationError: A broker refused the client, or a topic to it.
    """
    found = _natively(admin, questions, deadline, committed)
    if found is None:
        topics = {tp.topic for question in questions for tp in question}
        unled = admin.learn_leaders(topics, deadline)
        pending = [
            _send(
                admin,
                {tp: at for tp, at in question.items() if tp.topic not in unled},
                deadline,
                committed,
            )
            for question in questions
        ]
        found = [
            {tp: _offset(admin.wait(answer, deadline)) for tp, answer in asked.items()}
            for asked in pending
        ]
        for question, listed in zip(questions, found, strict=True):
            listed.update({tp: unled[tp.topic] for tp in question if tp.topic in unled})
    _check(admin, [answer for listed in found for answer in listed.values()], deadline)
    return found


def is_moving(answer: object) -> bool:
    """Whether the partition has just changed its leader: ask again in a moment."""
    return isinstance(answer, ClientError) and answer.code() in _MOVING


def is_silent(answer: object) -> bool:
    """Whether the partition's leader did not answer in time."""
    return isinstance(answer, ClientError) and is_unreachable(answer)


def _natively(
    admin: AdminConnection,
    questions: Sequence[Question],
    deadline: Deadline,
    committed: bool,
) -> list[Listed] | None:
    asked = [{tp: _wanted(q[tp]) for tp in q} for q in questions]
    answers = admin.list_natively(asked, deadline, committed)
    return None if answers is None else [*map(_read, asked, answers)]


def _wanted(position: Earliest | Latest | AtTime) -> int:
    if isinstance(position, Earliest):
        return -2
    return -1 if isinstance(position, Latest) else max(-2, position.timestamp_ms)


def offsets_of(
    asked: Iterable[TopicPartition], answer: NativeAnswer
) -> dict[TopicPartition, ListedOffset]:
    """The offsets of an answer; -1001 where there is an error instead."""
    packed, packed_epochs, _ = answer
    epochs = (None if e < 0 else e for e in array("i", packed_epochs))
    offsets = zip(array("q", packed), epochs, strict=True)
    return dict(zip(asked, map(ListedOffset._make, offsets), strict=True))


@dataclass
class EndsAgain:
    """A question for ends that is asked again and again; its topics had all leaders."""

    partitions: Collection[TopicPartition]
    question: dict[TopicPartition, int]
    topics: Mapping[str, TopicDescription]
    answer: NativeAnswer | None = None
    ends: dict[TopicPartition, ListedOffset] = field(default_factory=dict)

    @classmethod
    def of_leaders(
        cls,
        partitions: Collection[TopicPartition],
        topics: Mapping[str, TopicDescription],
    ) -> EndsAgain:
        """The question in the order of leaders: then few requests have two of them."""

        def leader(partition: TopicPartition) -> int:
            at = topics[partition.topic].leaders[partition.partition]
            return -1 if at is None else at.node_id

        question = dict.fromkeys(sorted(partitions, key=leader), -1)
        return cls(partitions, question, topics)

    def told(self, answer: NativeAnswer) -> dict[TopicPartition, ListedOffset]:
        """The ends; the same mapping as before for the same answer."""
        if answer != self.answer:
            self.answer, self.ends = answer, offsets_of(self.question, answer)
        return self.ends


def _read(asked: Iterable[TopicPartition], answer: NativeAnswer) -> Listed:
    errors = {tp: ClientError(*error) for tp, error in answer[-1].items()}
    return {**offsets_of(asked, answer), **errors}


def _send(
    admin: AdminConnection, question: Question, deadline: Deadline, committed: bool
) -> dict[TopicPartition, Future[Any]]:
    level = "READ_COMMITTED" if committed else "READ_UNCOMMITTED"
    answers: dict[TopicPartition, Future[Any]] = {}
    partitions = list(question)
    for first in range(0, len(partitions), LARGEST_REQUEST):
        chunk = partitions[first : first + LARGEST_REQUEST]
        # the client answers with the same partition objects, in an order of its own
        asked = {ClientPartition(*tp): tp for tp in chunk}
        futures = admin.client.list_offsets(
            {client: _spec(question[tp]) for client, tp in asked.items()},
            isolation_level=IsolationLevel[level],
            request_timeout=deadline.rest_s(),
        )
        answers.update((asked[client], future) for client, future in futures.items())
    return answers


def _spec(position: Earliest | Latest | AtTime) -> Any:  # noqa: ANN401 - untyped there
    match _wanted(position):
        case -2:
            return _Spec.earliest()
        case -1:
            return _Spec.latest()
        case time_ms:
            return _Spec.for_timestamp(time_ms)


def _check(
    admin: AdminConnection, answers: Iterable[object], deadline: Deadline
) -> None:
    everything = list(answers)
    errors = [answer for answer in everything if isinstance(answer, ClientError)]
    if errors:
        admin.forget_leaders()
    for error in errors:
        if is_refused(error):
            raise admin.failed(error, "a request for offsets")
    if errors and len(errors) == len(everything) and all(map(is_unreachable, errors)):
        raise admin.unreachable("a request for offsets", deadline)


def _offset(answer: Any) -> ListedOffset | ClientError:  # noqa: ANN401 - client's
    if isinstance(answer, ClientError):
        return answer
    offset = int(answer.offset)
    if offset < -1:
        # -1001: the leader did not answer; the client reports no error
        return SILENT
    return ListedOffset(offset, answer.leader_epoch)


_log = event_log(__name__)

BEYOND = 1 << 62
"""Beyond every log."""

_END = re.compile(r"broker end offset is (-?\d+)")
_SETTINGS = {
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}
_SLICE_S = 0.05


def epoch_ends(
    settings: Mapping[str, str],
    wanted: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    timeout_ms: int,
) -> dict[TopicPartition, int]:
    """As ``ClusterView.epoch_ends``; partitions without an answer in time are left out.

    The client has no such request. A consumer that seeks an offset with a leader epoch
    checks by itself whether the log reaches it, and names the end in its error. So it
    seeks an offset beyond every log.

    It has to be a seek. A consumer that is assigned that offset fetches there unchecked
    if it knows the leader already, and then no end is named.

    Args:
        settings: Of a consumer.
        wanted: Leader epochs.
        ends: Where the logs end: offsets that consumers can be assigned.
        timeout_ms: For all together.

    Raises:
        AuthenticationError: A broker refused the client.
        ConfigError: librdkafka refuses a setting.
    """
    deadline, found = Deadline(timeout_ms), dict[TopicPartition, int]()
    for is_last in (False, True):  # a log may lose its end meanwhile
        waiting = {p: at for p, at in wanted.items() if p in ends and p not in found}
        if waiting and not deadline.is_over():
            for partition, text in _told(settings, waiting, ends, deadline).items():
                if is_last or _END.search(text):
                    found[partition] = named_end(partition, text)
    return found


def _told(
    settings: Mapping[str, str],
    wanted: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    deadline: Deadline,
) -> dict[TopicPartition, str]:
    """The errors that a consumer has beyond the logs, as far as they came in time."""
    watch, told = ErrorWatch(addresses(settings)), dict[TopicPartition, str]()
    with closing(new_consumer({**settings, **_SETTINGS}, watch)) as consumer:
        consumer.assign([ClientPartition(*p, ends[p]) for p in wanted])
        for p, epoch in wanted.items():
            with suppress(KafkaException):  # of a partition that has failed already
                consumer.seek(ClientPartition(*p, BEYOND, leader_epoch=epoch))
        while wanted.keys() - told and not deadline.is_over():
            for message in consumer.consume(len(wanted) - len(told), _SLICE_S):
                error = message.error()
                if error and error.code() == ClientError._AUTO_OFFSET_RESET:
                    topic, number = message.topic(), message.partition()
                    assert topic is not None
                    assert number is not None
                    told[TopicPartition(topic, number)] = error.str()
            watch.raise_refusal()
    return told


def named_end(partition: TopicPartition, text: str) -> int:
    """The end that the error names; ``BEYOND`` if the leader keeps no epochs (-1).

    Logs in message formats before Kafka 0.11 have none, and their leaders count epochs.
    """
    named = _END.search(text)
    if named is None or int(named[1]) < 0:
        _log.warning(
            "%s: brokers do not report where a leader epoch ended. If a new leader has"
            " other records at the same offsets, only a shorter log shows it: %s",
            *(partition, text),
        )
        return BEYOND
    return int(named[1])
