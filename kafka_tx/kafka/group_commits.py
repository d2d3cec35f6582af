"""Reading and writing the offsets of a consumer group without joining it.

Through a consumer, because the admin client's requests to a group's coordinator, for
reading and for writing, end the process with a segmentation fault or a failed assertion
when the coordinator is not ready or goes away, as on a new cluster or when a broker
goes down (librdkafka 2.16 and before, its issues 3663, 4605 and 5040).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.kafka.admin import Connection, Deadline
from kafka_tx.kafka.clients import addresses, new_consumer
from kafka_tx.kafka.errors import (
    ErrorWatch,
    client_error,
    is_absent,
    is_refused,
    is_unreachable,
    translated,
    unreachable,
)
from kafka_tx.model import LogPosition, TopicPartition

_LATER = {
    ClientError._WAIT_COORD,
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
}
"""Brokers are creating Kafka's own topic of offsets, or loading it after a failover."""
_FIRST_TRY_S = 0.5
_PAUSE_MS = 100

OCCUPIED = {
    ClientError.UNKNOWN_MEMBER_ID,
    ClientError.ILLEGAL_GENERATION,
    ClientError.REBALANCE_IN_PROGRESS,
    ClientError.NON_EMPTY_GROUP,
}
"""What brokers say to a commit from outside of a group that has members."""
_DEFERRED_MS = 100
"""How long the client may keep a commit while it knows no coordinator (checked each
second). By default 45 s, in which it cannot be ended, and commits after its time."""
_SLICES_S = 0.001, 0.05
"""First and longest slice of a wait; a poll does not end when the answer comes."""
_ENDING_S = 2.0
"""In which a client that was given up may still send its commit again."""

_never_ended: list[object] = []
"""Clients that could not be ended on a thread; here they would block."""

_Result = tuple[ClientError | None, list[ClientPartition]]
"""The client's last error, and the partitions with theirs."""


def read_group(
    settings: Mapping[str, str],
    group: str,
    partitions: list[ClientPartition],
    timeout_ms: int,
) -> list[ClientPartition]:
    """The group's next offsets with their metadata, for partitions that have one.

    Raises:
        BrokerUnavailableError: No broker answered in time.
        AuthenticationError: Credentials, permission (DESCRIBE of the group) or TLS.
        KafkaError: A broker answered with another error.
    """
    watch = ErrorWatch(addresses(settings))
    with closing(new_consumer(_outside(settings, group), watch)) as consumer:
        found = _committed(consumer, watch, group, partitions, Deadline(timeout_ms))
    for position in found:
        if position.error is not None and not is_absent(position.error):
            where = f"group '{group}', {position.topic}-{position.partition}"
            raise translated(position.error, where, watch)
    return [p for p in found if p.error is None and p.offset >= 0]


def as_commit(
    partition: TopicPartition, at: LogPosition, metadata: str = ""
) -> ClientPartition:
    """A position as the client commits it, with its leader epoch if that is known."""
    epoch = -1 if at.leader_epoch is None else at.leader_epoch
    return ClientPartition(*partition, at.offset, metadata, epoch)


def as_position(found: ClientPartition) -> LogPosition:
    """A committed offset and its leader epoch; a group knows no topic ids."""
    return LogPosition(found.offset, None, found.leader_epoch)


def _outside(settings: Mapping[str, str], group: str) -> dict[str, str]:
    """Settings of a consumer that never joins, and fetches nothing.

    A limit of answers that is too small for fetches is refused.
    """
    usable = {k: v for k, v in settings.items() if k != "receive.message.max.bytes"}
    return {**usable, "group.id": group, "enable.auto.commit": "false"}


def _committed(
    consumer: Consumer,
    watch: ErrorWatch,
    group: str,
    partitions: list[ClientPartition],
    deadline: Deadline,
) -> list[ClientPartition]:
    """Repeat until a broker answers. The client's call ignores refusals."""
    slice_s = _FIRST_TRY_S
    while True:
        try:
            found: list[ClientPartition] = consumer.committed(
                partitions, timeout=min(slice_s, deadline.rest_s())
            )
        except KafkaException as exception:
            error = client_error(exception)
            message = consumer.poll(0)  # hands the client's reports to ``watch``
            watch.raise_refusal()
            refusal = _refusal_in(message)
            if refusal is not None:
                what = f"READ or DESCRIBE on group '{group}'"
                raise translated(refusal, what, watch) from None
            if not is_unreachable(error) and error.code() not in _LATER:
                raise translated(error, f"group '{group}'", watch) from None
            if deadline.is_over() or not deadline.pause(_PAUSE_MS):
                what = f"group '{group}'"
                raise unreachable(what, deadline.timeout_ms, watch) from None
            slice_s *= 2
        else:
            return found


def _refusal_in(message: Message | None) -> ClientError | None:
    """The refusal of a group: only a message of ``poll`` has it; requests time out."""
    error = None if message is None else message.error()
    return error if error is not None and is_refused(error) else None


class GroupWriter(Connection[Consumer]):
    """Commits offsets from outside of a group: no generation, no member.

    One commit at a time. After a failed one the next goes over new connections.
    """

    def __init__(self, settings: Mapping[str, str], group: str) -> None:
        super().__init__(settings)
        self._group = group
        self._is_waiting = False
        self._ending: threading.Thread | None = None
        self._answers: list[_Result] = []

    def write(
        self, positions: list[ClientPartition], deadline: Deadline
    ) -> dict[TopicPartition, ClientError]:
        """Commit them in one request; returns what the group refused.

        Waits for a coordinator that is not ready.

        Raises:
            BrokerUnavailableError: No coordinator answered in time.
            AuthenticationError: Credentials, permission or TLS.
            KafkaError: The client cannot commit.
        """
        try:
            error, answer = self._answer(positions, deadline)
            return self._refused(positions, error, answer, deadline)
        except BaseException:
            self.close()
            raise

    def needs_rights(self) -> str:
        """What a user may need who is refused, for the text of the error."""
        return f"READ on group '{self._group}' and its topics"

    def close(self) -> None:
        """As ``Connection.close``; does not wait for brokers that are silent."""
        consumer, self._made = self._made, None
        if consumer is None:
            return
        if not self._is_waiting:
            consumer.close()
            return
        # The client ends after its last request, and hung brokers never answer.
        self._is_waiting = False
        last = [consumer]
        del consumer
        ending = threading.Thread(
            target=last.clear, name="kafka_tx-end-of-client", daemon=True
        )
        try:
            ending.start()
        except RuntimeError:  # no more threads, or the process ends
            _never_ended.append(last)
        else:
            self._ending = ending

    def _new(self) -> Consumer:
        self._answers = answers = []
        settings = _outside(self._settings, self._group)
        return new_consumer(
            {**settings, "session.timeout.ms": str(_DEFERRED_MS)},
            self._watch,
            on_commit=lambda error, answer: answers.append((error, answer)),
        )

    def _answer(self, positions: list[ClientPartition], deadline: Deadline) -> _Result:
        """Commit until the group's coordinator is ready to answer."""
        where = f"group '{self._group}'"
        if self._ending is not None:
            self._ending.join(min(_ENDING_S, deadline.rest_s()))
            self._ending = None
        while True:
            error, answer = self._commit(positions, deadline)
            if error is None or not _is_early(error):
                break
            if not deadline.pause(_PAUSE_MS):
                raise self.unreachable(where, deadline)
        if error is not None and error.code() < ClientError.NO_ERROR:
            raise self.failed(error, where)
        self._answered()
        return error, answer

    def _commit(self, positions: list[ClientPartition], deadline: Deadline) -> _Result:
        try:
            self.client.commit(offsets=positions, asynchronous=True)
        except KafkaException as exception:
            what = f"group '{self._group}'"
            raise self.failed(client_error(exception), what) from None
        self._is_waiting = True
        slice_s, longest_s = _SLICES_S
        while True:
            # unnamed: the traceback of an error would keep the client from ending
            message = self.client.poll(min(slice_s, deadline.rest_s()))
            result = self._answers.pop() if self._answers else None
            self._is_waiting = result is None
            if result is not None and result[0] is None:
                return result
            self._watch.raise_refusal()
            refusal = _refusal_in(message)
            if refusal is not None:
                raise self.failed(refusal, self.needs_rights())
            if result is not None:
                return result
            if deadline.is_over():
                raise self.unreachable(f"group '{self._group}'", deadline)
            slice_s = min(1.2 * slice_s, longest_s)

    def _refused(
        self,
        positions: list[ClientPartition],
        error: ClientError | None,
        answer: list[ClientPartition],
        deadline: Deadline,
    ) -> dict[TopicPartition, ClientError]:
        """The offsets that were not taken, with their errors.

        If some were refused, the client gives its last error also to those that were
        taken. The group's offsets show which these are.
        """
        failed = {_place(tp): tp.error for tp in answer if tp.error is not None}
        if error is None or len(failed) < 2 or error.code() in OCCUPIED:
            return failed
        if is_refused(error):
            return failed
        doubtful = [
            at for at, refusal in failed.items() if refusal.code() == error.code()
        ]
        found = _committed(
            self.client,
            self._watch,
            self._group,
            [ClientPartition(*at) for at in doubtful],
            deadline,
        )
        has = {_place(tp): _content(tp) for tp in found if tp.error is None}
        taken = {_place(tp) for tp in positions if has.get(_place(tp)) == _content(tp)}
        return {at: refusal for at, refusal in failed.items() if at not in taken}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._settings, self._group)


def _is_early(error: ClientError) -> bool:
    is_local = error.code() < ClientError.NO_ERROR
    return error.code() in _LATER or (is_local and is_unreachable(error))


def _place(at: ClientPartition) -> TopicPartition:
    return TopicPartition(at.topic, at.partition)


def _content(at: ClientPartition) -> tuple[int, str]:
    return at.offset, at.metadata or ""
