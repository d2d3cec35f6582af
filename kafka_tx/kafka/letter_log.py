"""Stores which dead letters were sent back, where it does not expire.

A group's offsets expire after ``offsets.retention.minutes``, partition by partition. So
what was sent is a record of the compacted topic of markers, too. One transaction
commits both with the records that were sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    DamagedRecordsError,
    StateCorruptedError,
)
from kafka_tx.kafka.group_commits import read_group
from kafka_tx.kafka.marker_topic import ALL, COMMITTED, Kept, MarkerTopic
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.logs import event_log
from kafka_tx.model import LogBounds
from kafka_tx.sinks.sent_letters import LetterPlace, SentLetters
from kafka_tx.sinks.sink_memory import NOT_OURS

logger = event_log(__name__)

Group = Mapping[LetterPlace, tuple[int, int]]
"""The offset and serial of the group, by partition."""


class LetterLog:
    """Reads and makes the records about one dead-letter topic; for one thread.

    Args:
        topic: The dead-letter topic.
        markers: Created as a compacted topic by the first sender, if absent.
        group: Its offsets are the second form.
        settings: From ``client_settings(…, purpose="consumer")``.
    """

    def __init__(
        self,
        topic: str,
        markers: str,
        group: str,
        settings: Mapping[str, str],
        timeout_ms: int,
    ) -> None:
        self._markers = MarkerTopic(markers, settings, topic)
        self._group = group
        self._settings = settings
        self._timeout_ms = timeout_ms

    def record(self, place: LetterPlace, sent: SentLetters) -> OutRecord:
        """The record of the marker topic."""
        return OutRecord(self._markers.name, place.key, sent.value, None, partition=0)

    def recall(
        self, places: Collection[LetterPlace], *, is_sender: bool
    ) -> dict[LetterPlace, SentLetters]:
        """What was sent of each partition.

        ``is_sender``: the caller has ended the transactions of other senders.
        Otherwise what they have not committed counts as not sent, and a user without
        rights on the marker topic sees what the group knows.

        Raises:
            ConfigError: The marker topic expires records (for a sender).
            AuthenticationError: Credentials, permission or TLS.
            BrokerUnavailableError: No answer in time; or the transaction of another
                writer hides records of the marker topic.
            KafkaError: A broker answered with another error.
            StateCorruptedError: Records of the marker topic are damaged.
        """
        group = self._of_group(places, is_sender=is_sender)
        try:
            logged = self._of_markers(places, group, is_sender=is_sender)
        except DamagedRecordsError as error:
            raise self._damaged(error) from error
        except AuthenticationError as error:
            if is_sender:
                raise
            logged = {}  # a reader need not have the rights of a sender
            logger.warning("only the group tells which letters were sent: %s", error)
        found = {}
        for place in places:
            sent = logged.get(place, SentLetters())
            offset, serial = group.get(place, (0, 0))
            if is_sender and serial and not sent.serial:
                logger.warning(
                    "topic '%s' does not say which dead letters of '%s', partition %d,"
                    " were sent: all below offset %d count as sent. Was another"
                    " --marker-topic given before?",
                    *(self._markers.name, place.topic, place.partition, offset),
                )
            if not serial or serial > sent.serial:  # the markers do not know of it
                sent = replace(sent.sent_below(offset), serial=max(serial, sent.serial))
            found[place] = sent
        return found

    def _of_group(self, places: Collection[LetterPlace], *, is_sender: bool) -> Group:
        level = COMMITTED if is_sender else ALL
        settings = {**self._settings, "isolation.level": level}
        wanted = [ClientPartition(p.topic, p.partition) for p in places]
        offsets = read_group(settings, self._group, wanted, self._timeout_ms)
        by_number = {each.partition: each for each in offsets}
        found = {}
        for place in places:
            at = by_number.get(place.partition)
            serial = None if at is None else place.serial_of(at.metadata)
            if at is not None and serial is not None:
                found[place] = at.offset, serial
        return found

    def _of_markers(
        self, places: Collection[LetterPlace], group: Group, *, is_sender: bool
    ) -> dict[LetterPlace, SentLetters]:
        if is_sender:
            log, stable = self._markers.bounds()
            self._markers.check_policy()
        elif self._markers.exists():
            log, stable = self._markers.bounds()
        else:
            return {}
        by_key = {place.key: place for place in places}
        stable = min(stable, log.end)
        settled = self._markers.read(LogBounds(log.log_start, stable), COMMITTED)
        newest = {by_key[kept.key]: kept for kept in settled if kept.key in by_key}
        found = {place: self._read(kept) for place, kept in newest.items()}
        # another writer's transaction hides what follows: the group knows its outcome
        for kept in self._markers.read(LogBounds(stable, log.end), ALL):
            place = by_key.get(kept.key)
            if place is None:
                continue
            sent = self._read(kept)
            if sent.serial <= group.get(place, (0, 0))[1]:
                found[place] = sent
            elif place not in group:
                hidden = self._hidden(place, stable)
                if is_sender:
                    raise hidden
                logger.warning("some may have been sent back: %s", hidden)
        return found

    def _hidden(self, place: LetterPlace, stable: int) -> BrokerUnavailableError:
        return self._markers.silent(
            f"whether dead letters of '{place.topic}' were sent back is hidden by a"
            f" transaction that is open since offset {stable}, and the offsets of group"
            f" '{self._group}' have expired."
        )

    def _damaged(self, error: DamagedRecordsError) -> StateCorruptedError:
        name = self._markers.name
        return StateCorruptedError(
            f"topic '{name}' cannot be read, so it is not known which dead letters were"
            f" sent back: {error.message} Nothing was sent. If another replica has the"
            " records, let its broker lead the partition. Otherwise give another"
            " --marker-topic: all below the offsets of group"
            f" '{self._group}' then count as sent. If that group is gone, none does:"
            " --dry-run shows what would be sent, perhaps again.",
            store=name,
            path=f"offset {error.position}",
            reason=error.message,
        )

    def _read(self, kept: Kept) -> SentLetters:
        name, key = self._markers.name, kept.key.decode(errors="replace")
        what = f"the record at offset {kept.offset} of topic '{name}', key {key},"
        try:
            return SentLetters.of_value(kept.value or b"null", what)
        except NOT_OURS as error:
            raise StateCorruptedError(
                f"the record at offset {kept.offset} of topic '{name}', with the key"
                f" {key}, does not say which dead letters were sent back: {error}."
                " Nothing was sent. Write a record without value under this key: then"
                f" all below the offsets of group '{self._group}' count as sent.",
                store=name,
                path=key,
                reason=str(error),
            ) from None
