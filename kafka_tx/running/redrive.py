"""Sends dead letters back to their records' partitions, each one exactly once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kafka_tx import assembly, sink_assembly
from kafka_tx.clock import now_ms
from kafka_tx.config import SinkConfig, SourceConfig, check_name
from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    DamagedRecordsError,
    DeliveryError,
    FormatError,
    KafkaError,
    KafkaTxError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafka_tx.kafka import dead_letter_form
from kafka_tx.kafka.dead_letter_form import BYTES, OFFSET, PARTITION, TOPIC
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.transaction import BatchRefusedError
from kafka_tx.model import (
    Earliest,
    LogBounds,
    LogPosition,
    OffsetRange,
    TopicPartition,
    Topics,
    Unavailable,
)
from kafka_tx.offsets.position_checks import Finding, check_position
from kafka_tx.own_topics import MARKER_TOPIC, is_internal
from kafka_tx.planned_topic import damaged_records
from kafka_tx.planning.log_bounds import EpochEnds
from kafka_tx.running.at_least_once.dead_letters import records_of
from kafka_tx.sinks.letter_topic import TopicFacts
from kafka_tx.sinks.sent_letters import LetterPlace, SentLetters

if TYPE_CHECKING:
    from kafka_tx.kafka.transaction import Transaction

_AT_ONCE = 1_000
"""Most dead letters in one transaction."""

_MOST_LEFT = 10_000
"""Most dead letters of a partition that cannot be sent and are offered again."""

_LASTS = {
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_MSG_SIZE",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "POLICY_VIOLATION",
    "TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
}
"""Codes of refusals that stay until somebody changes the topic."""

_NUMBERS = {PARTITION: 2**31 - 1, OFFSET: 2**63 - 2, BYTES: 2**31 - 1}
"""Headers that are numbers, with their largest values."""


DAMAGED = "cannot be read: damaged where brokers keep it"
"""Of a dead letter, and of the record that it names."""


class DeadLetterUnusableError(KafkaTxError):
    """A dead letter cannot be sent back.

    ``lasts``: whether it can never be sent back, as far as known.
    """

    error_class = "KAFKA_TX_LETTER_UNUSABLE"
    lasts: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of a dead-letter topic.

    Attributes:
        record: The failed record, without the dead letter's own headers.
        about: The dead letter's own headers, by name; empty: it is no dead letter.
        damage: All offsets that are damaged together, if it cannot be read; else None.
    """

    at: TopicPartition
    offset: int
    record: OutRecord
    about: Mapping[str, str]
    damage: OffsetRange | None = None

    @property
    def where(self) -> str:
        """Partition and offset of the dead letter; all offsets of the same damage."""
        if self.damage is not None:
            return f"{self.at}@{self.damage.start} to {self.damage.end - 1}"
        return f"{self.at}@{self.offset}"

    @property
    def origin(self) -> tuple[TopicPartition, int] | None:
        """Partition and offset of the failed record; None if no header names them."""
        numbers = [self.number(name) for name in (PARTITION, OFFSET)]
        with suppress(KeyError, ConfigError):
            topic = check_name(TOPIC, self.about[TOPIC])
            if numbers[0] is not None and numbers[1] is not None:
                return TopicPartition(topic, numbers[0]), numbers[1]
        return None

    def number(self, name: str) -> int | None:
        """The number in a header; None: it is absent, or none that can be."""
        text = self.about.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            return None
        return int(text) if int(text) <= _NUMBERS[name] else None

    def unusable(self, reason: str, *, lasts: bool = True) -> DeadLetterUnusableError:
        """The error that it cannot be sent back."""
        return DeadLetterUnusableError(f"{self.where}: {reason}", lasts=lasts)


class Redrive:
    """The dead letters of one topic, and which of them were sent back.

    One transaction holds the sent records, a record of the topic ``markers``, and the
    offsets of the group ``kafka_tx.<topic>``. So each dead letter is sent once,
    wherever a sender dies. A second sender fences the first one. The ``kafka.*``
    options come without their prefix; ``timeout_ms`` is for each request to the
    brokers. ``to``: the only topics to send to; empty: any.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        timeout_ms: int,
        *,
        markers: str = MARKER_TOPIC,
        to: Collection[str] = (),
    ) -> None:
        self.group = f"kafka_tx.{topic}"
        self._topic = topic
        self._markers = markers
        self._to = to
        self._config = SourceConfig(
            subscription=Topics((topic,)),
            kafka={**kafka, "isolation.level": "read_committed"},
            start=Earliest(),
            include_headers=True,
            poll_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            num_retries=1,
        )
        self._reader = assembly.range_reader(self._config)
        self._log = sink_assembly.letter_log(
            self._config.kafka, topic, markers, self.group, timeout_ms
        )
        self._facts: dict[str, TopicFacts] = {}
        self._problems: dict[tuple[TopicPartition, int], DeliveryError] = {}
        self._closed: dict[str, DeliveryError] = {}

    def waiting(self, *, sent: bool = False) -> list[OffsetRange]:
        """Ranges of dead letters that were not sent; ``sent``: of sent ones, too.

        Another sender may have an open transaction, also after its death: what it has
        not committed counts as not sent.

        Raises:
            UnknownTopicError: The topic does not exist.
            KafkaError: The brokers refuse, or do not answer.
        """
        return self._waiting(self._recalled(is_sender=False), sent=sent)

    def read(self, wanted: OffsetRange) -> Iterator[DeadLetter]:
        """The dead letters of a range; an empty one for each damaged offset.

        Raises:
            FetchError: They cannot be read now.
            OffsetOutOfRangeError: The log no longer holds them.
        """
        while len(wanted):
            try:
                for batch in self._reader.read(wanted):
                    yield from map(_dead_letter, records_of(batch))
            except DamagedRecordsError as error:
                damage = damaged_records(error)
                if damage is None:
                    raise
                end = min(damage.end, wanted.end)
                for offset in range(damage.start, end):
                    nothing = OutRecord(error.topic, None, None)
                    at = wanted.topic_partition
                    yield DeadLetter(at, offset, nothing, {}, damage)
                wanted = wanted.between(end, wanted.end)
            else:
                return

    def send(
        self,
        planned: Iterable[OffsetRange],
        topics: set[str],
        sent: Callable[[list[DeadLetter]], None],
        *,
        skips: bool = False,
        again: bool = False,
        left: Callable[[DeadLetterUnusableError], object] = str,
    ) -> None:
        """Send back all planned dead letters that can be sent back.

        Each one is sent or left alone. What is left is offered again the next time, as
        are dead letters that came after the plan.

        Args:
            planned: What ``waiting`` returned, with the same ``sent`` as ``again``.
            topics: The only topics to send to: those of the plan's usable dead letters.
            sent: Called with the dead letters of each committed transaction.
            skips: Do not offer those again that cannot be sent back for good.
            again: Also send dead letters that were sent back before.
            left: Called with the reason for each one that was not sent.

        Raises:
            KafkaError: The brokers refuse, do not answer, or another sender has begun.
                The dead letters that ``sent`` was given were sent. If the answer to a
                commit was lost, others may have been: ``waiting`` tells.
        """
        moves = partial(
            sink_assembly.group_transaction,
            self._config.kafka,
            self.group,
            f"the dead letters of '{self._topic}'",
            topics,
        )
        ends = {wanted.topic_partition: wanted.end for wanted in planned}
        todo: list[OffsetRange] | None = None
        known: _Known = {}
        while todo is None or todo:
            # After a refused batch, the next try has smaller ones.
            with suppress(BatchRefusedError), moves() as moving:
                before, known = known, self._recalled(is_sender=True)
                if todo is None:
                    waiting = self._waiting(known, sent=again)
                    todo = _chunks([_below(each, ends) for each in waiting])
                elif any(
                    at not in known or known[at][1] != sent_before
                    for at, (_, sent_before) in before.items()
                ):
                    raise KafkaError(
                        f"another sender has sent dead letters of '{self._topic}'"
                        " meanwhile. Once it has ended, run the command again: it sends"
                        " the rest"
                    )
                for letters, unusable in self._moved(
                    moving, known, todo, topics, skips=skips
                ):
                    sent(letters)
                    for error in unusable:
                        left(error)

    def _moved(
        self,
        moving: Transaction,
        known: _Known,
        todo: list[OffsetRange],
        topics: set[str],
        *,
        skips: bool,
    ) -> Iterator[tuple[list[DeadLetter], list[DeadLetterUnusableError]]]:
        """Send range after range, until none is left or a transaction is refused."""
        while todo:
            letters, unusable = self._sorted(todo[-1], topics)
            offered_again = [
                at for at, why in unusable.items() if not (skips and why.lasts)
            ]
            try:
                ended = self._move(moving, known, todo[-1], letters, offered_again)
            except BatchRefusedError:
                raise
            except DeliveryError as error:
                todo += self._blamed(todo.pop(), letters, error)
                return
            todo.pop()
            yield letters, list(unusable.values())
            if ended is not None and todo:
                raise KafkaError(
                    f"the dead letters of '{self._topic}' were not all sent: the"
                    " brokers have committed the last transaction, and their answer was"
                    " lost. Another sender may have begun. Once none runs, run the"
                    " command again: it sends the rest"
                ) from ended

    def _sorted(
        self, some: OffsetRange, topics: set[str]
    ) -> tuple[list[DeadLetter], dict[int, DeadLetterUnusableError]]:
        """The usable dead letters of a range, and why others are not, by offset."""
        letters, unusable = [], {}
        for dead_letter in self.read(some):
            try:
                usable = self.usable(dead_letter)
                if usable.record.topic not in topics:
                    reason = (
                        f"its topic '{usable.record.topic}' was not in the plan: run"
                        " the command again"
                    )
                    raise dead_letter.unusable(reason, lasts=False)
                letters.append(usable)
            except DeadLetterUnusableError as error:
                unusable[dead_letter.offset] = error
        return letters, unusable

    def _move(
        self,
        moving: Transaction,
        known: _Known,
        some: OffsetRange,
        letters: list[DeadLetter],
        left: list[int],
    ) -> KafkaError | None:
        """Send letters of a range, and store that all of it was sent but ``left``.

        Returns the error of a commit that was done: ``moving`` has ended.
        """
        at = some.topic_partition
        log, sent = known[at]
        sent = sent.settled(some.start, some.end, left, log.log_start)
        if len(sent.left) > _MOST_LEFT:
            raise DeadLetterUnusableError(
                f"more than {_MOST_LEFT} dead letters of {at} cannot be sent back, and"
                " no more can be remembered. Those before were sent. Mend what refuses"
                " them, and run the command again; or let go of those that can never be"
                " sent: add --skip-unusable",
                lasts=True,
            )
        sent = replace(sent, serial=sent.serial + 1, leader_epoch=log.leader_epoch)
        place = self._place(at, log)
        with moving.writing():
            moving.send(dead_letter.record for dead_letter in letters)
            moving.send([self._log.record(place, sent)], is_small=True)
            moving.add_position(at, sent.next_offset, place.metadata(sent.serial))
        known[at] = log, sent
        try:
            moving.commit()
        except KafkaError as error:
            with suppress(KafkaTxError):
                if self._recalled(is_sender=False)[at][1] == sent:
                    return error
            raise
        return None

    def _blamed(
        self, some: OffsetRange, letters: list[DeadLetter], error: DeliveryError
    ) -> list[OffsetRange]:
        """Find who is to blame for a refused transaction; what to try then.

        It is one letter, or a topic with all its letters. If neither is known, the
        range is halved.
        """
        topic = getattr(error, "topic", None)
        is_of_topic = isinstance(error, AuthenticationError) or error.retryable
        if topic == self._markers or topic in self._closed or not letters:
            raise error
        if is_of_topic:
            self._closed[str(topic)] = error
        elif len(letters) == 1:
            self._problems[letters[0].at, letters[0].offset] = error
        else:
            middle = letters[len(letters) // 2].offset
            return [some.between(middle, some.end), some.between(some.start, middle)]
        return [some]

    def usable(self, dead_letter: DeadLetter) -> DeadLetter:
        """The dead letter with the record as it is sent back.

        A time that its topic does not take or has removed becomes the present one.

        Raises:
            DeadLetterUnusableError: It is damaged, another version has written it, or
                its headers do not name the failed record; its value is missing, and the
                failed record is gone; or the topic does not take the record, or is not
                among those to send to.
        """
        at, offset = _origin(dead_letter)
        if at.topic in {self._markers, self._topic} or is_internal(at.topic):
            raise dead_letter.unusable(f"nothing is sent to topic '{at.topic}'")
        if self._to and at.topic not in self._to:
            reason = f"its topic '{at.topic}' is not given with --to"
            raise dead_letter.unusable(reason, lasts=False)
        if (refused := self._problems.get((dead_letter.at, dead_letter.offset))) or (
            refused := self._closed.get(at.topic)
        ):
            lasts = refused.code in _LASTS and not refused.is_own
            raise dead_letter.unusable(refused.message, lasts=lasts)
        record = replace(dead_letter.record, topic=at.topic, partition=at.partition)
        facts = self._facts_of(dead_letter, at.topic)
        is_whole = BYTES not in dead_letter.about
        _check_taken(dead_letter, facts, at, record.key if is_whole else b"")
        if not is_whole:  # too large to have its value, or its key
            place = OffsetRange(at, offset, offset + 1)
            record = self._original(dead_letter, place)
            _check_taken(dead_letter, facts, at, record.key)
        span = facts.record_times(now_ms())
        time_ms, late = dead_letter_form.timed(record.timestamp_ms, span)
        headers = [*(record.headers or ()), *late]
        record = replace(record, headers=headers, timestamp_ms=time_ms)
        return replace(dead_letter, record=record)

    def _original(self, dead_letter: DeadLetter, place: OffsetRange) -> OutRecord:
        """The failed record of a dead letter without value, if its log still has it.

        The same topic, partition and offset is the same record. Letters of earlier
        versions do not name the topic's id.
        """
        size = dead_letter.number(BYTES)
        key = dead_letter.record.key
        wanted = place.of_topic(dead_letter.about.get(dead_letter_form.TOPIC_ID))
        why = "is no longer there"
        try:
            for batch in self._reader.read(wanted):
                for _, record in records_of(batch):
                    if _is_of(record, key, size):
                        return record
                    why = "is another one"
        except DamagedRecordsError:
            why = DAMAGED
        except (OffsetOutOfRangeError, UnknownTopicError):
            pass
        except KafkaTxError as error:  # a right, or a broker, may come
            raise dead_letter.unusable(error.message, lasts=False) from error
        raise dead_letter.unusable(
            f"it is without the value ({size} bytes, too large for '{self._topic}'),"
            f" and the record at {place} {why}"
        )

    def _facts_of(self, dead_letter: DeadLetter, topic: str) -> TopicFacts:
        if topic not in self._facts:
            config = SinkConfig(kafka=self._config.kafka, topic=topic)
            try:
                self._facts[topic] = sink_assembly.topic_facts(config)
            except AuthenticationError as error:
                raise dead_letter.unusable(error.message, lasts=False) from error
        return self._facts[topic]

    # --- what was sent ----------------------------------------------------------------

    def _recalled(self, *, is_sender: bool) -> _Known:
        """The log of each partition, and what was sent of it."""
        with closing(assembly.cluster_view(self._config)) as view:
            found = view.topics(self._config.subscription).get(self._topic)
            if found is None:
                raise UnknownTopicError(
                    f"the topic '{self._topic}' does not exist; give the topic that the"
                    " job writes its dead letters to"
                )
            answers = view.bounds(found.partitions)
            logs = {at: _answered(at, log) for at, log in sorted(answers.items())}
            places = {at: self._place(at, log) for at, log in logs.items()}
            sent = self._log.recall(places.values(), is_sender=is_sender)
            positions = {
                at: LogPosition(
                    sent[place].next_offset, log.topic_id, sent[place].leader_epoch
                )
                for (at, place), log in zip(places.items(), logs.values(), strict=True)
            }
            ends = EpochEnds(view).completed(logs, positions)
        known = {}
        for at, log in logs.items():
            check = check_position(positions[at], ends[at])
            is_cut = check.finding is Finding.CUT and check.is_certain
            of_partition = sent[places[at]]
            known[at] = log, of_partition.cut(check.end) if is_cut else of_partition
        return known

    def _place(self, at: TopicPartition, log: LogBounds) -> LetterPlace:
        return LetterPlace(at.topic, log.topic_id or "", at.partition)

    def _waiting(self, known: _Known, *, sent: bool) -> list[OffsetRange]:
        return [
            OffsetRange(at, *run)
            for at, (log, done) in known.items()
            for run in (SentLetters() if sent else done).waiting(log.log_start, log.end)
        ]


def _is_of(record: OutRecord, key: bytes | None, size: int | None) -> bool:
    """Whether a letter without value is the record's.

    The letter of a typed record may begin with the schema id of the record's header.
    """
    from kafka_tx.schemas.framed import ID_HEADERS, with_id

    headers = dict(record.headers or ())
    framed_key = with_id(record.key, headers.get(ID_HEADERS["key"]))
    framed = with_id(record.value, headers.get(ID_HEADERS["value"]))
    sizes = {len(value or b"") for value in (record.value, framed)}
    return size in sizes and key in {None, record.key, framed_key}


def _check_taken(
    dead_letter: DeadLetter, facts: TopicFacts, at: TopicPartition, key: bytes | None
) -> None:
    problem = facts.refusal(at.partition, key)
    if problem is not None:
        raise dead_letter.unusable(problem[0], lasts=problem[1])


def _origin(dead_letter: DeadLetter) -> tuple[TopicPartition, int]:
    if dead_letter.damage is not None:
        raise dead_letter.unusable(DAMAGED)
    if dead_letter.about:
        try:
            dead_letter_form.check_format(dead_letter.about, dead_letter.where)
        except FormatError as error:  # the right version can send it
            raise dead_letter.unusable(error.message, lasts=False) from error
    if dead_letter.origin is None:
        raise dead_letter.unusable(
            "it is no dead letter: its headers do not say where the record was"
        )
    return dead_letter.origin


_Known = dict[TopicPartition, tuple[LogBounds, SentLetters]]


def _dead_letter(found: tuple[int, OutRecord]) -> DeadLetter:
    offset, record = found
    headers, about = dead_letter_form.split(record.headers or ())
    assert record.partition is not None
    at = TopicPartition(record.topic, record.partition)
    time_ms = dead_letter_form.time_of(about, record.timestamp_ms)
    record = replace(record, headers=headers, timestamp_ms=time_ms)
    return DeadLetter(at, offset, record, about)


def _below(some: OffsetRange, ends: Mapping[TopicPartition, int]) -> OffsetRange:
    """The part of a range that was planned."""
    end = ends.get(some.topic_partition, 0)
    return some.between(min(some.start, end), min(some.end, end))


def _chunks(ranges: list[OffsetRange]) -> list[OffsetRange]:
    """Ranges that are small enough for one transaction, the last one first."""
    chunks = [
        wanted.between(start, min(start + _AT_ONCE, wanted.end))
        for wanted in ranges
        for start in range(wanted.start, wanted.end, _AT_ONCE)
    ]
    return chunks[::-1]


def _answered(at: TopicPartition, log: LogBounds | Unavailable) -> LogBounds:
    if isinstance(log, Unavailable):
        raise BrokerUnavailableError(f"the log of {at} is not available: {log.reason}")
    return log
