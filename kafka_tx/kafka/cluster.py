"""Topics, leaders and offsets of a cluster in few requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from typing import Any

from confluent_kafka import KafkaError as ClientError

from kafka_tx.errors import BrokerUnavailableError, KafkaTxError
from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.collector import collector_paused
from kafka_tx.kafka.errors import is_absent, is_unreachable
from kafka_tx.kafka.offset_requests import (
    SILENT,
    EndsAgain,
    Listed,
    ListedOffset,
    Question,
    epoch_ends,
    is_moving,
    is_silent,
    list_offsets,
)
from kafka_tx.kafka.topic_facts import retentions_of
from kafka_tx.kafka.topics import (
    from_description,
    from_metadata,
    from_native,
    names_of,
    readable,
    shrunk,
)
from kafka_tx.logs import event_log
from kafka_tx.model import (
    AtOffset,
    Earliest,
    Latest,
    LogBounds,
    Position,
    Retention,
    Subscription,
    TopicDescription,
    TopicPartition,
    TopicPattern,
    Topics,
    Unavailable,
)
from kafka_tx.protocols import Survey

_log = event_log(__name__)

_TRIES_WITH_MOVING_LEADERS = 5
_LEADER_PAUSE_MS = 200
_SHARES = 4
"""More attempts for offsets than these do not make each one shorter."""
_DESCRIBE_MS = 2_000
"""How long the controller may take to describe topics before any broker is asked."""


class KafkaClusterView:
    """Asks brokers through one admin client, which is made on first use.

    Implements ``protocols.ClusterView``; for one thread at a time. Picklable: the
    client and cached answers stay behind.

    A topic that is missing or smaller than before may be the answer of a broker that
    lags behind: the request is repeated ``num_retries`` times, as far as ``timeout_ms``
    lasts. Another id counts at once.

    Args:
        settings: From ``client_settings(…, purpose="admin")``.
        timeout_ms: The longest time for a description of topics. Each attempt for
            offsets has its share, at least a quarter, after which silent leaders are
            left out.
        num_retries: How often a request is repeated (``fetchOffset.numRetries``).
        retry_interval_ms: The pause before it (``fetchOffset.retryIntervalMs``).
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        timeout_ms: int = 30_000,
        num_retries: int = 3,
        retry_interval_ms: int = 1_000,
    ) -> None:
        self._settings = settings
        self._admin = AdminConnection(settings)
        self._timeout_ms = timeout_ms
        self._num_retries = num_retries
        self._retry_interval_ms = retry_interval_ms
        self._can_describe: bool | None = None
        self._seen: dict[str, TopicDescription] = {}
        self._last_topics: tuple[object, dict[str, TopicDescription]] = None, {}
        """The last answer of native code, and what it says."""
        self._last_ends: EndsAgain | None = None

    def __getstate__(self) -> dict[str, Any]:
        forgotten = ("_can_describe", "_last_ends")
        fresh: dict[str, Any] = {"_seen": {}, "_last_topics": (None, {})}
        return self.__dict__ | dict.fromkeys(forgotten) | fresh

    def close(self) -> None:
        """Release the connections; the next call makes new ones."""
        self._admin.close()

    # --- topics ---------------------------------------------------------------------

    @collector_paused()
    def topics(self, wanted: Subscription) -> dict[str, TopicDescription]:
        """As ``ClusterView.topics``.

        One request for named topics, two for a pattern; a pattern never matches Kafka's
        internal topics. For ``Assigned`` whole topics are described. While the
        controller is away topics come without their ids.
        """
        deadline = Deadline(self._timeout_ms)
        named = names_of(wanted)
        found = self._admin.renewed(lambda: self._describe(wanted, deadline))
        for _ in range(self._num_retries):
            if not shrunk(self._seen, found, named):
                break
            _log.info("a part of %s was missing in an answer; asking again", wanted)
            if not deadline.pause(self._retry_interval_ms):
                break
            found = self._describe(wanted, deadline)
        for name in list(self._seen) if named is None else named:
            self._seen.pop(name, None)
        self._seen.update(found)
        return found

    def _describe(
        self, wanted: Subscription, deadline: Deadline
    ) -> dict[str, TopicDescription]:
        names = names_of(wanted)
        if names is not None and (self._can_describe or not names):
            described = self._described(names, deadline)
            if described is not None:
                return described
        metadata = self._admin.metadata(deadline)
        if isinstance(wanted, TopicPattern):
            names = wanted.matching(readable(metadata))
        # librdkafka's mock cluster has no controller and cannot describe topics
        self._can_describe = metadata.controller_id in metadata.brokers
        if self._can_describe:
            described = self._described(names or [], deadline)
            if described is not None:
                return described
        existing = from_metadata(metadata)
        return {name: existing[name] for name in names or [] if name in existing}

    def _described(
        self, names: list[str], deadline: Deadline
    ) -> dict[str, TopicDescription] | None:
        """The topics with their ids; None when the controller does not answer.

        The client asks no other broker. The plain metadata of any broker has no ids.
        """
        found = {}
        own = deadline.within(_DESCRIBE_MS)
        native = self._admin.describe_natively(names, own)
        if native is not None and native == self._last_topics[0]:
            return self._last_topics[1]
        answers = (
            self._described_by(names, own) if native is None else from_native(native)
        )
        for name, answer in answers.items():
            if not isinstance(answer, ClientError):
                seen = self._seen.get(name)
                found[name] = answer if seen is None or seen != answer else seen
            elif is_unreachable(answer):
                self._can_describe = False
                return None
            elif not is_absent(answer):
                raise self._admin.failed(answer, f"topic '{name}'")
        self._last_topics = native, found
        return found

    def _described_by(
        self, names: Iterable[str], deadline: Deadline
    ) -> dict[str, TopicDescription | ClientError]:
        return {
            name: answer
            if isinstance(answer, ClientError)
            else from_description(answer)
            for name, answer in self._admin.described(list(names), deadline).items()
        }

    def topic_ids(self, names: Iterable[str]) -> dict[str, str | None]:
        """As ``ClusterView.topic_ids``; empty if the controller does not answer."""
        ids: dict[str, str | None] = {}
        answers = self._described_by(names, Deadline(_DESCRIBE_MS))
        for name, answer in answers.items():
            if not isinstance(answer, ClientError):
                if answer.topic_id is not None:
                    ids[name] = answer.topic_id
            elif is_absent(answer):
                ids[name] = None
        return ids

    # --- offsets --------------------------------------------------------------------

    @collector_paused()
    def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogBounds | Unavailable]:
        """As ``ClusterView.bounds``.

        Two requests to each broker, sent together, and one for the topics' ids. The end
        is the last stable offset if the settings have
        ``isolation.level=read_committed``.
        """
        asked = list(partitions)
        names = tuple({partition.topic for partition in asked})

        def describe() -> dict[str, TopicDescription]:
            return self._describe(Topics(names), Deadline(self._timeout_ms))

        return self._admin.renewed(lambda: self._identified(asked, describe))[1]

    @collector_paused()
    def survey(
        self, wanted: Subscription, partitions: Collection[TopicPartition]
    ) -> Survey:
        """As ``ClusterView.survey``, for about the cost of the slower part."""
        return self._admin.renewed(
            lambda: self._identified(partitions, lambda: self.topics(wanted))
        )

    def _identified(
        self,
        partitions: Collection[TopicPartition],
        describe: Callable[[], dict[str, TopicDescription]],
    ) -> Survey:
        """Ask for bounds, then describe the topics, whose ids must be those of before.

        A deleted id is never used again, so an id that was reported before and after
        was the topic's id all the time. Bounds of a topic whose id changed are asked
        once more.
        """
        before = self._ids_before({partition.topic for partition in partitions})
        bounds: dict[TopicPartition, LogBounds | Unavailable] = {}
        asked, topics = partitions, dict[str, TopicDescription]()
        for _ in range(2):
            starts, ends = self._listed(
                [dict.fromkeys(asked, Earliest()), dict.fromkeys(asked, Latest())]
            )
            topics = describe()
            now = {name: topic.topic_id for name, topic in topics.items()}
            for p in asked:
                bounds[p] = bounds_of(p, (starts[p], ends[p]), before, now)
            anew = {topic for topic, id_ in now.items() if id_ != before.get(topic)}
            asked = [p for p in asked if p.topic in anew and now[p.topic] is not None]
            if not asked:
                break
            before = now
            self._seen.update(
                {p.topic: topics[p.topic] for p in asked if p.topic in topics}
            )
        return topics, bounds

    def _ids_before(self, names: set[str]) -> dict[str, str | None]:
        unseen = names - self._seen.keys()
        if unseen:
            deadline = Deadline(self._timeout_ms)
            self._seen.update(self._describe(Topics(tuple(unseen)), deadline))
        return {name: self._seen[name].topic_id for name in names if name in self._seen}

    @collector_paused()
    def offsets(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """As ``ClusterView.offsets``; a given offset is not looked for in the log."""
        question = {p: at for p, at in wanted.items() if not isinstance(at, AtOffset)}
        (listed,) = self._admin.renewed(lambda: self._listed([question]))
        return {
            p: at.offset if isinstance(at, AtOffset) else _resolved(p, listed[p])
            for p, at in wanted.items()
        }

    @collector_paused()
    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ListedOffset]:
        """As ``ClusterView.ends``; one request to each broker for 100 partitions.

        Gives the same mapping again if the same tuple is asked for, and brokers report
        the same.
        """
        ends = self._admin.renewed(lambda: self._same_ends(partitions))
        if ends is not None:
            return ends
        question = dict.fromkeys(partitions, Latest())
        (listed,) = self._admin.renewed(lambda: self._listed([question]))
        if isinstance(partitions, tuple) and all(map(self._has_leader, question)):
            topics = {p.topic: self._seen[p.topic] for p in question}
            self._last_ends = EndsAgain.of_leaders(partitions, topics)
        return {
            p: offset
            for p, offset in listed.items()
            if isinstance(offset, ListedOffset)
        }

    def _same_ends(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset] | None:
        """The ends of the same logs as the last time, with the leaders of that time.

        None: another question, or not every leader answered.
        """
        last = self._last_ends
        if last is None or last.partitions is not partitions:
            return None
        if any(self._seen.get(name) is not seen for name, seen in last.topics.items()):
            return None
        deadline = Deadline(min(self._timeout_ms, _quick_ms([partitions])))
        try:
            answers = self._admin.list_natively(
                [last.question], deadline, self._is_committed
            )
        except BrokerUnavailableError:
            return None
        is_whole = answers is not None and not answers[0][-1]
        return last.told(answers[0]) if answers and is_whole else None

    @collector_paused()
    def epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """As ``ClusterView.epoch_ends``; the admin client cannot ask for them.

        For an epoch that is still going on: the end of the log. If brokers have no
        epochs: beyond every log.
        """
        try:
            ends = {p: end.offset for p, end in self.ends(list(wanted)).items()}
        except BrokerUnavailableError:
            return {}
        return epoch_ends(self._settings, wanted, ends, self._timeout_ms)

    def retentions(self, names: Iterable[str]) -> dict[str, Retention]:
        """As ``ClusterView.retentions``; one request, 5 s at most."""
        return retentions_of(self._admin, list(names))

    # --- asking leaders -------------------------------------------------------------

    def _listed(self, questions: Sequence[Question]) -> list[Listed]:
        """Ask all questions at once; ask again where a leader has just moved."""
        answers = self._answered(questions)
        deadline = Deadline(self._timeout_ms)
        for _ in range(_TRIES_WITH_MOVING_LEADERS):
            moving = [
                {tp: question[tp] for tp in question if is_moving(listed[tp])}
                for question, listed in zip(questions, answers, strict=True)
            ]
            if not any(moving) or not deadline.pause(_LEADER_PAUSE_MS):
                break
            for listed, fresh in zip(answers, self._ask(moving, deadline), strict=True):
                listed.update(fresh)
        return answers

    def _answered(self, questions: Sequence[Question]) -> list[Listed]:
        attempt_ms = self._timeout_ms // (min(self._num_retries, _SHARES - 1) + 1)
        for _ in range(self._num_retries):
            try:
                return self._ask(questions, Deadline(attempt_ms))
            except KafkaTxError as error:
                if not error.retryable:
                    raise
                _log.info("asking again for offsets: %s", error)
                time.sleep(self._retry_interval_ms / 1000)
        return self._ask(questions, Deadline(attempt_ms))

    def _ask(self, questions: Sequence[Question], deadline: Deadline) -> list[Listed]:
        """Ask the known leaders; ask for a new leader if one does not answer.

        A partition that has lost its leader holds back the answers for all.
        """
        quick_ms = _quick_ms(questions)
        try:
            answers = self._ask_leaders(questions, deadline.within(quick_ms))
        except BrokerUnavailableError:
            answers = [dict.fromkeys(question, SILENT) for question in questions]
        silent = [
            {tp: question[tp] for tp in question if is_silent(listed[tp])}
            for question, listed in zip(questions, answers, strict=True)
        ]
        if any(silent):
            for partition in {tp for question in silent for tp in question}:
                self._seen.pop(partition.topic, None)
            try:
                again = self._ask_leaders(silent, deadline)
            except BrokerUnavailableError:
                if sum(map(len, silent)) == sum(map(len, questions)):
                    raise
                return answers  # these leaders only are out of reach
            for listed, fresh in zip(answers, again, strict=True):
                listed.update(fresh)
        return answers

    def _ask_leaders(
        self, questions: Sequence[Question], deadline: Deadline
    ) -> list[Listed]:
        missing = self._without_leader({tp for q in questions for tp in q}, deadline)
        answers = list_offsets(
            self._admin,
            [{tp: q[tp] for tp in q if tp not in missing} for q in questions],
            deadline,
            committed=self._is_committed,
        )
        for question, listed in zip(questions, answers, strict=True):
            listed.update({tp: missing[tp] for tp in question if tp in missing})
        return answers

    @property
    def _is_committed(self) -> bool:
        """Whether the end of a log is the last stable offset."""
        return self._settings.get("isolation.level") == "read_committed"

    def _without_leader(
        self, partitions: set[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, ClientError]:
        """The partitions without a leader, after describing those that seem so again.

        One of them in a request would hold back the answers for all others: the client
        asks for its leader every three seconds.
        """
        suspects = [tp for tp in partitions if not self._has_leader(tp)]
        if suspects:
            names = tuple({tp.topic for tp in suspects})
            for name in names:
                self._seen.pop(name, None)
            self._seen.update(self._describe(Topics(names), deadline))
        return {tp: self._absence(tp) for tp in suspects if not self._has_leader(tp)}

    def _has_leader(self, partition: TopicPartition) -> bool:
        seen = self._seen.get(partition.topic)
        return seen is not None and seen.leaders.get(partition.partition) is not None

    def _absence(self, partition: TopicPartition) -> ClientError:
        seen = self._seen.get(partition.topic)
        if seen is not None and partition.partition in seen.leaders:
            return ClientError(ClientError.BROKER_NOT_AVAILABLE, "it has no leader")
        return ClientError(ClientError.UNKNOWN_TOPIC_OR_PART, "it does not exist")


def _quick_ms(questions: Iterable[Sized]) -> int:
    """How long leaders from an earlier answer may take to reply.

    Busy brokers need seconds for tens of thousands of partitions.
    """
    return 2_000 + sum(map(len, questions)) // 10


def bounds_of(
    partition: TopicPartition,
    answers: tuple[ListedOffset | ClientError, ListedOffset | ClientError],
    before: Mapping[str, str | None],
    after: Mapping[str, str | None],
) -> LogBounds | Unavailable:
    """Start and end as the leader reported them, if they are of one topic.

    ``before`` are ids at some earlier time, None: not reported; ``after`` are ids after
    the leader's answer, without topics that are gone.
    """
    start, end = answers
    topic = partition.topic
    for answer in answers:
        if isinstance(answer, ClientError):
            return Unavailable(f"{partition}: {answer.str()}", after.get(topic))
    assert isinstance(start, ListedOffset)
    assert isinstance(end, ListedOffset)
    if topic in after and before.get(topic) == after[topic]:
        last = max(start.offset, end.offset)
        return LogBounds(start.offset, last, after[topic], end.leader_epoch)
    return _not_of_one_topic(partition, before.get(topic), after)


def _not_of_one_topic(
    partition: TopicPartition, was: str | None, after: Mapping[str, str | None]
) -> Unavailable:
    topic = partition.topic
    if topic not in after:
        return Unavailable(f"{partition}: its topic is not there any more")
    if after[topic] is None:
        return Unavailable(
            f"{partition}: no broker tells whether its topic is still the one with the"
            f" id {was}"
        )
    return Unavailable(
        f"{partition}: its topic was re-created during the request", after[topic]
    )


def _resolved(
    partition: TopicPartition, answer: ListedOffset | ClientError
) -> int | Unavailable | None:
    if isinstance(answer, ClientError):
        return Unavailable(f"{partition}: {answer.str()}")
    return answer.offset if answer.offset >= 0 else None
