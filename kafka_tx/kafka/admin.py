"""An admin client, and waiting for its answers with a bound in time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from kafka_tx.errors import AuthenticationError, KafkaTxError
from kafka_tx.kafka.clients import addresses, new_admin
from kafka_tx.kafka.errors import (
    ErrorWatch,
    client_error,
    is_unreachable,
    refused,
    translated,
    unreachable,
)
from kafka_tx.logs import event_log
from kafka_tx.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata

    from kafka_tx.native import _reader

logger = event_log(__name__)

_Answer = TypeVar("_Answer")
_Client = TypeVar("_Client", AdminClient, Consumer)

_SLICE_S = 0.05
"""Pause between two checks whether the brokers refused the client."""
_FIRST_TRY_S = 0.5
_GRACE_S = 1.0
"""How long a request may take beyond its time-out to report the time-out."""


MANY, AT_LEAST = 100, 10
"""After questions for so many offsets a second client, in native code, pays off. A
question counts for ten at least: who asks ten times goes on asking."""
LARGEST_REQUEST, LARGEST_NATIVE = 500, 100
"""Partitions: the client's own work grows with the square of it. In native code that is
most of the work."""

_LEARNED_S = 300.0
"""Longest time for which leaders count as known; see ``_remembers_s``."""
_NO_LEADER = ClientError.LEADER_NOT_AVAILABLE
"""Of a topic that has just been made, or whose brokers are away."""
_FEW = 10
"""More topics are looked up together, with all others of the cluster."""

NativeAnswer = tuple[bytes, bytes, dict[TopicPartition, tuple[int, str]]]
"""Packed offsets and leader epochs, and codes with texts of errors."""

NativeTopics = tuple[
    list[tuple[str, str | None, bytes, int, str]], dict[int, tuple[str, int]]
]
"""Topics and brokers, as of ``_reader.Client.describe_topics``."""

Settings = Mapping[str, str | None]
"""The settings of a topic or broker, by name."""


def _remembers_s(settings: Mapping[str, str]) -> float:
    """How long a client remembers leaders: 15 minutes by default."""
    refresh_ms = int(settings.get("topic.metadata.refresh.interval.ms", 300_000))
    usual_ms = 3 * refresh_ms if refresh_ms > 0 else 900_000
    return int(settings.get("metadata.max.age.ms", usual_ms)) / 1_000


class Deadline:
    """The end of one call's time, shared by all its requests and pauses."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._at = time.monotonic() + timeout_ms / 1000

    def rest_s(self) -> float:
        """Seconds left, never less than what librdkafka takes for a time-out."""
        return max(0.01, self._at - time.monotonic())

    def within(self, limit_ms: int) -> Deadline:
        """This deadline, or ``limit_ms`` from now if that is earlier."""
        return Deadline(min(limit_ms, int(self.rest_s() * 1000)))

    def is_over(self, grace_s: float = 0.0) -> bool:
        """Whether the time is used up."""
        return time.monotonic() >= self._at + grace_s

    def pause(self, pause_ms: int) -> bool:
        """Wait before a retry; False at once when there is no time for one."""
        if time.monotonic() + pause_ms / 1000 >= self._at:
            return False
        time.sleep(pause_ms / 1000)
        return True


class Connection(ABC, Generic[_Client]):
    """A client that is made when it is first used. For one thread."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._made: _Client | None = None
        self._watch = ErrorWatch(addresses(settings))
        self._was_let_in = False

    @abstractmethod
    def _new(self) -> _Client:
        """A client that reports to ``_watch``; raises ConfigError."""

    @property
    def client(self) -> _Client:
        """The client. Raises ConfigError."""
        if self._made is None:
            self._watch = ErrorWatch(addresses(self._settings))
            self._was_let_in = False
            self._made = self._new()
        return self._made

    def close(self) -> None:
        """Release the connections; the next call makes new ones."""
        self._made = None

    def renewed(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask, and ask again on a new client if brokers accepted this one before.

        A client reads certificates and keys when it is made. If their files are
        replaced, brokers refuse its next connection.
        """
        try:
            return ask()
        except AuthenticationError as error:
            if not self._was_let_in:
                raise
            logger.info("asking again on a new connection: %s", error)
            self.close()
            return ask()

    def _answered(self) -> None:
        self._was_let_in = True
        self._watch.answered()

    def raise_refusal(self) -> None:
        """Raise AuthenticationError when a broker refused the client."""
        self.client.poll(0)
        self._watch.raise_refusal()

    def failed(self, error: ClientError, what: str) -> KafkaTxError:
        """The error to raise for a client's error about ``what``."""
        return translated(error, what, self._watch)

    def unreachable(self, what: str, deadline: Deadline) -> KafkaTxError:
        """The error to raise when no broker answered ``what`` in time.

        The next request goes over new connections: old ones may be silent for ever, and
        the client would notice it only after its whole socket time-out.
        """
        if self._made is not None:
            self._made.poll(0)
        error = unreachable(what, deadline.timeout_ms, self._watch)
        self.close()
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._settings,)


def replicas_of(metadata: ClusterMetadata, topic: str) -> int:
    """How many replicas each partition of a topic has; 0: the topic is not known."""
    found = metadata.topics[topic].partitions.values()
    return min((len(each.replicas) for each in found), default=0)


class AdminConnection(Connection[AdminClient]):
    """An admin client; futures of its requests go to ``wait``.

    Waiting calls read the client's error reports, so that a refusal is raised at once
    and not when the time is over. They raise AuthenticationError (a broker refused
    the client) and BrokerUnavailableError (no answer in time).
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._asked = 0
        self._is_used = False
        self._native: _reader.Client | None = None
        self._learned_s = min(_LEARNED_S, _remembers_s(settings) / 2)
        self._learned: dict[str, float] = {}
        self._learned_natively: dict[str, float] = {}

    def _new(self) -> AdminClient:
        self._learned = {}
        return new_admin(self._settings, self._watch)

    def close(self) -> None:
        """As ``Connection.close``."""
        super().close()
        self._native, self._asked = None, 0

    @property
    def client(self) -> AdminClient:
        """As ``Connection.client``."""
        self._is_used = True
        return super().client

    def learn_leaders(
        self, topics: Collection[str], deadline: Deadline
    ) -> dict[str, ClientError]:
        """Let the client know who leads these topics: before it is asked for offsets.

        If it does not know one, librdkafka 2.16 looks for the leader on the caller's
        thread and on its own, and an answer with metadata that comes just then ends the
        process with a segmentation fault. Raises as ``metadata``.

        Returns:
            Topics that have no leaders just now, with the error that says so: offsets
            of them must not be asked for.
        """
        unknown = self._unknown(self._learned, topics)
        found: dict[str, TopicMetadata] = {}
        for topic in unknown if len(unknown) <= _FEW else [None]:  # None: all at once
            found |= self.metadata(deadline, topic).topics
        errors = {
            topic: error
            for topic in unknown
            if topic in found and (error := found[topic].error) is not None
        }
        learned = [topic for topic in unknown if topic not in errors]
        self._learned.update(dict.fromkeys(learned, time.monotonic()))
        return {t: e for t, e in errors.items() if e.code() == _NO_LEADER}

    def forget_leaders(self) -> None:
        """Learn all leaders again: after a failure the client has dropped some."""
        self._learned.clear()

    def _unknown(
        self, learned: Mapping[str, float], topics: Collection[str]
    ) -> list[str]:
        too_old = time.monotonic() - self._learned_s
        return [topic for topic in topics if learned.get(topic, -inf) <= too_old]

    def list_natively(
        self,
        questions: list[dict[TopicPartition, int]],
        deadline: Deadline,
        committed: bool,
    ) -> list[NativeAnswer] | None:
        """Ask for offsets in native code; None where Python has to ask.

        -1 asks for the end, -2 for the start, other numbers for a time in ms. Python
        asks if the extension was not built, or if only Python can use the settings. It
        also asks the first questions of a connection, see ``MANY``, and the next ones
        after a failure, and that for which native code did not learn all leaders.

        Python's client ends if nobody has used it since the last question: at rest its
        threads take as long as the questions.
        """
        if self._asked < MANY:
            self._asked += max(AT_LEAST, sum(map(len, questions)))
            return None
        from kafka_tx.native import library

        if self._native is None:
            self._native = library.client(self._settings)
            self._learned_natively = {}
        client, topics = self._native, {tp.topic for asked in questions for tp in asked}
        if client is None or not self._learn_natively(client, topics, deadline):
            return None
        try:
            rest_ms = int(deadline.rest_s() * 1000)
            answers = client.list_offsets(questions, committed, rest_ms, LARGEST_NATIVE)
        except library.read_error() as error:
            self._raise_refused(error)
            self._watch.failed(error.args[-1])
            raise self.unreachable("a request", deadline) from None
        failures = [failed for *_, failed in answers]
        if any(len(f) < len(q) for f, q in zip(failures, questions, strict=True)):
            self._answered()
        if any(failures):
            self._watch.failed(client.last_report())
            self._native, self._asked = None, 0
        if not self._is_used:
            self._made = None
        self._is_used = False
        return answers

    def describe_natively(
        self, topics: Collection[str], deadline: Deadline
    ) -> NativeTopics | None:
        """As ``described``, in native code; None where Python has to ask.

        Python asks as long as native code was not asked for offsets: it is cheaper
        where there are many partitions. It also asks if native code got no answer.
        """
        client = self._native
        if client is None or not topics:
            return None
        from kafka_tx.native import library

        try:
            found = client.describe_topics(
                tuple(topics), int(deadline.rest_s() * 1_000)
            )
        except library.read_error() as error:
            self._raise_refused(error)
            self._native, self._asked = None, 0
            return None
        self._answered()
        return found

    def _raise_refused(self, error: Exception) -> None:
        kind, *_, text = error.args
        if kind == "denied":
            raise refused(text, self._watch.addresses) from None

    def _learn_natively(
        self, client: _reader.Client, topics: Collection[str], deadline: Deadline
    ) -> bool:
        """As ``learn_leaders``. False: Python has to ask, now and the next time."""
        unknown = self._unknown(self._learned_natively, topics)
        for topic in unknown if len(unknown) <= _FEW else [None]:
            within_s = (
                deadline.rest_s() if topic is None else min(1.0, deadline.rest_s())
            )
            if not client.learn_leaders(topic, int(within_s * 1_000)):
                break
        else:
            self._learned_natively.update(dict.fromkeys(unknown, time.monotonic()))
            return True
        report = client.last_report()
        self._native, self._asked = None, 0
        if deadline.rest_s() > _SLICE_S:
            return False
        self._watch.failed(report)
        raise self.unreachable("a request", deadline)

    def wait(
        self, future: Future[_Answer], deadline: Deadline
    ) -> _Answer | ClientError:
        """The answer, or the client's error for it."""
        while True:
            try:
                answer = future.result(timeout=_SLICE_S)
            except FutureTimeoutError:
                self.raise_refusal()
                if deadline.is_over(_GRACE_S):
                    raise self.unreachable("a request", deadline) from None
            except KafkaException as exception:
                return client_error(exception)
            else:
                self._answered()
                return answer

    def metadata(self, deadline: Deadline, topic: str | None = None) -> ClusterMetadata:
        """The metadata of the whole cluster, or of one topic; raises KafkaError, too.

        The client's call does not notice a refusal, so the first calls are short.
        """
        slice_s = _FIRST_TRY_S
        while True:
            try:
                timeout_s = min(slice_s, deadline.rest_s())
                found = self.client.list_topics(topic, timeout=timeout_s)
            except KafkaException as exception:
                self.raise_refusal()
                if not is_unreachable(client_error(exception)):
                    raise self.failed(client_error(exception), "metadata") from None
                if deadline.is_over():
                    raise self.unreachable("a metadata request", deadline) from None
                slice_s *= 2
            else:
                self._answered()
                return found

    def described(self, topics: Collection[str], deadline: Deadline) -> dict[str, Any]:
        """The controller's answer by topic: the client's description, or its error."""
        if not topics:
            return {}
        answers = self.client.describe_topics(
            TopicCollection(list(topics)), request_timeout=deadline.rest_s()
        )
        return {name: self.wait(future, deadline) for name, future in answers.items()}

    def settings_of(
        self,
        names: Iterable[str],
        deadline: Deadline,
        *,
        of_brokers: bool = False,
    ) -> dict[str, Settings | ClientError]:
        """The settings of topics or brokers, by name; the client's error for others."""
        types = ConfigResource.Type
        kind = types.BROKER if of_brokers else types.TOPIC
        asked = self.client.describe_configs(
            [ConfigResource(kind, name) for name in names],
            request_timeout=deadline.rest_s(),
        )
        found: dict[str, Settings | ClientError] = {}
        for resource, future in asked.items():
            answer: Any = self.wait(future, deadline)
            if not isinstance(answer, ClientError):
                answer = {name: entry.value for name, entry in answer.items()}
            found[resource.name] = answer
        return found
