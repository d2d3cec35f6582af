"""The compacted topic in which the markers of Kafka sinks do not expire.

A marker is also an offset of a group, which is one quick request; but brokers drop
offsets of groups after ``offsets.retention.minutes``, and those of a deleted topic. So
it is a record here too, in the same transaction as the part's records.

All sinks of a cluster share the topic, and one open transaction hides later records
from readers of committed records. So markers behind it are read from this sink's
groups, which no other transaction hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import (
    BrokerUnavailableError,
    DamagedRecordsError,
    StateCorruptedError,
)
from kafka_tx.kafka.admin import Deadline
from kafka_tx.kafka.group_commits import read_group
from kafka_tx.kafka.marker_topic import ALL, COMMITTED, Kept, MarkerTopic
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.transaction import Transaction
from kafka_tx.model import LogBounds
from kafka_tx.own_topics import MARKERS, add_own
from kafka_tx.sinks.sink_memory import NOT_OURS, Entry, Memory, starts_of_keys
from kafka_tx.sinks.sink_parts import Marker, name_of

_Spoilt = dict[bytes, tuple[int, Entry, str]]
"""By key of the sink: the offset of a record that is no marker, and what is wrong."""

_TIMEOUT_MS = 30_000
_OPEN_MS = 150_000
"""Longer than brokers keep an abandoned transaction of a sink open (two minutes)."""
_SETTLED_WITHIN_MS = 2_000
"""Longer than a working transaction needs to commit its marker."""
_PAUSE_MS = 50


class MarkerLog:
    """Reads and makes records of the topic (driver and executor); for one thread.

    Args:
        topic: Created as a compacted topic at the first read, if absent.
        place: The topic that the sink writes: the groups of parts keep an offset of its
            partition 0, so that markers survive a deleted marker topic.
        reading: From ``client_settings(…, purpose="consumer")``.
        writing: From ``client_settings(…, purpose="producer")``.
    """

    def __init__(
        self,
        topic: str,
        place: str,
        reading: Mapping[str, str],
        writing: Mapping[str, str],
    ) -> None:
        self.topic = topic
        self.place = place
        self._reading = {**reading, "isolation.level": "read_committed"}
        self._writing = writing
        self._log = MarkerTopic(topic, reading, place)

    def record(self, entry: Entry) -> OutRecord:
        """The record of an entry."""
        return OutRecord(self.topic, entry.key, entry.value, None, partition=0)

    def offset(self, entry: Entry) -> ClientPartition:
        """The group offset of an entry."""
        topic = self._topic_of(entry)
        return ClientPartition(topic, 0, entry.txid, metadata=entry.metadata)

    def kept(self, entry: Entry, timeout_ms: int = _TIMEOUT_MS) -> Entry | None:
        """The entry that its group has committed, once no commit of it is open.

        None also for an offset that a person or another program has set: it tells
        nothing of the sink. Raises: as ``read_group``, and FormatError.
        """
        found = self._group_offset(entry, timeout_ms)
        if found is None or not found.metadata:
            return None
        try:
            return entry.of_group(found.offset, found.metadata)
        except NOT_OURS:
            return None

    def set_in_group(self, entry: Entry) -> tuple[int, str | None] | None:
        """Offset and metadata in its group, whoever has set them; None: none are."""
        found = self._group_offset(entry, _TIMEOUT_MS)
        return None if found is None else (found.offset, found.metadata)

    def _group_offset(self, entry: Entry, timeout_ms: int) -> ClientPartition | None:
        places = [ClientPartition(self._topic_of(entry), 0)]
        found = read_group(self._reading, entry.group, places, timeout_ms)
        return found[0] if found else None

    def _topic_of(self, entry: Entry) -> str:
        return self.place if isinstance(entry.kept, Marker) else self.topic

    def recall(
        self,
        sink: str,
        since: Memory | None = None,
        *,
        own: str = "",
        run: str | None = None,
    ) -> Memory:
        """All markers of the sink that were committed when the call began.

        One is missing if a later marker took its place meanwhile, and brokers have
        compacted the topic. The later one comes after ``Memory.end``.

        Transactions of other sinks are not waited for. One of this sink that seems to
        be open is ended: it commits nothing later that this call did not read.

        Args:
            sink: The id of the sink.
            since: The result of an earlier call: only later entries are read.
            own: A transactional id that the caller has just taken.
            run: Of a task: the plan, and what its siblings do now, are left out;
                transactions of others are waited for before they are ended.

        Raises:
            ConfigError: The topic is there, and is not compacted.
            AuthenticationError: Credentials, permission or TLS; or the topic is absent
                and may not be created.
            BrokerUnavailableError: No answer in time; or the outcome of a transaction
                of this sink is hidden by another one that stays open.
            KafkaError: A broker answered with another error.
            StateCorruptedError: What the sink has written is not known: somebody has
                overwritten a marker, and its group has none; or records are damaged.
        """
        log, stable = self._log.bounds()
        if since is None:
            self._log.check_policy()
            add_own(self.topic, MARKERS)
        memory = Memory()
        if since is not None and _is_of(log, since):
            memory = Memory.of_text(since.text)
        memory.topic_id = log.topic_id
        spoilt: _Spoilt = {}
        begin = max(memory.end, log.log_start)
        end = min(stable, log.end)
        for _, entry in self._entries(sink, begin, end, COMMITTED, spoilt):
            memory.take(entry)
        begin = max(begin, stable)
        newest = {
            e.group: (at, e)
            for at, e in self._entries(sink, begin, log.end, ALL, spoilt)
        }
        memory.end = log.end
        unsettled = []
        for at, entry in sorted(newest.values(), key=lambda pair: pair[0]):
            if _is_siblings(entry, own, run):
                memory.end = min(memory.end, at)
            else:
                unsettled.append((at, entry))
        for entry in self._outcomes(unsettled, own, run):
            memory.take(entry)
        self._restore(memory, spoilt)
        return memory

    def _entries(
        self, sink: str, start: int, end: int, level: str, spoilt: _Spoilt
    ) -> Iterator[tuple[int, Entry]]:
        """The sink's entries; ``spoilt`` gets keys whose newest record is none of ours.

        Everybody who may write the topic may write anything: other records are skipped.
        """
        bounds = LogBounds(start, max(start, end))
        for kept in self._records(sink, bounds, level):
            entry = Entry.of_key(kept.key)
            if entry is None:
                continue
            try:
                whole = entry.of_value(b"" if kept.value is None else kept.value)
            except ValueError as error:
                reason = "it was deleted" if kept.value is None else str(error)
                spoilt[kept.key] = kept.offset, entry, reason
            else:
                spoilt.pop(kept.key, None)
                yield kept.offset, whole

    def _records(self, sink: str, bounds: LogBounds, level: str) -> Iterator[Kept]:
        try:
            yield from self._log.read(bounds, level, starts_of_keys(sink))
        except DamagedRecordsError as error:
            raise self._damaged(sink, error) from error

    def _restore(self, memory: Memory, spoilt: _Spoilt) -> None:
        """Take from groups what somebody has overwritten in the topic.

        A sink whose every key was deleted, and whose groups are gone, begins again.
        """
        lost = []
        for at, entry, reason in spoilt.values():
            memory.drop(entry)
            found = self.kept(entry)
            if found is not None:
                memory.take(found)
            else:
                lost.append((at, entry, reason))
        for at, entry, reason in lost:
            if not memory.is_empty or reason != "it was deleted":
                raise self._corrupted(at, entry, reason)

    # --- behind an open transaction ---------------------------------------------------

    def _outcomes(
        self, unsettled: list[tuple[int, Entry]], own: str, run: str | None
    ) -> Iterator[Entry]:
        """The final commits of writers, once none of the sink's own hides another."""
        hidden = []
        for at, entry in unsettled:
            settled = self._settled(entry, own, run)
            if settled is not None:
                yield settled
            elif not entry.is_announcement:
                hidden.append((at, entry))
        for at, entry in hidden:
            shown = self._unhidden(at, entry)
            if shown is not None:
                yield shown

    def _settled(self, entry: Entry, own: str, run: str | None) -> Entry | None:
        """The final commit of the newest transaction of an entry's writer.

        The group's offset shows it, unless it expired: an abort leaves it unchanged.
        Another sink's transaction hides the log, not the group. An announcement that
        nothing follows is ended at once.
        """
        if entry.name != own:
            if not entry.is_announcement:
                found = self._soon(entry, _SETTLED_WITHIN_MS if run is not None else 0)
                if found is not None:
                    return found
            self._end(entry)
        return self.kept(entry)

    def _soon(self, entry: Entry, within_ms: int) -> Entry | None:
        """The entry that the group stores, once it is this one or a later one."""
        deadline = Deadline(within_ms)
        while True:
            try:
                found = self.kept(entry, max(_SETTLED_WITHIN_MS, within_ms))
            except BrokerUnavailableError:  # it is being committed, and not done
                return None
            if found is not None and (
                found.value == entry.value or found.txid > entry.txid
            ):
                return found
            if not deadline.pause(_PAUSE_MS):
                return None

    def _end(self, entry: Entry) -> None:
        """End what the writer of an entry may have left open."""
        what = f"what sink '{entry.sink}' left open"
        with Transaction(self._writing, entry.name, what, self._reading, entry.group):
            pass

    def _unhidden(self, at: int, entry: Entry) -> Entry | None:
        """The entry, if it was committed, once the log shows it.

        Its group has no offset: it was aborted, or the offset expired.
        """
        deadline = Deadline(_OPEN_MS)
        while (stable := self._log.stable_end()) <= at:
            if not deadline.pause(_PAUSE_MS):
                raise self._hidden(stable, at, entry)
        shown = self._log.read(LogBounds(at, at + 1), COMMITTED)
        return next((entry for kept in shown if kept.offset == at), None)

    def _hidden(self, stable: int, at: int, entry: Entry) -> BrokerUnavailableError:
        first = next(iter(self._log.read(LogBounds(stable, at), ALL)), None)
        is_first = first is not None and first.offset == stable
        blocking = Entry.of_key(first.key) if first and is_first else None
        tool = f"kafka-transactions.sh --bootstrap-server {self._log.addresses}"
        where = f"--topic {self.topic} --partition 0"
        who = "one that wrote no marker there"
        if blocking is not None:
            name = blocking.name
            who = f"that of '{name}' ({tool} describe --transactional-id {name})"
        return self._log.silent(
            f"whether '{entry.name}' has committed txid {entry.txid} is hidden by a"
            f" transaction that is open since offset {stable}: {who}. If it is ongoing,"
            " restart or stop its job, or wait for its time-out; if it is not, it"
            f" hangs: {tool} find-hanging {where} shows it, and {tool} abort {where}"
            f" --start-offset {stable} ends it."
        )

    def _damaged(self, sink: str, error: DamagedRecordsError) -> StateCorruptedError:
        return StateCorruptedError(
            f"the markers in topic '{self.topic}' cannot be read: {error.message} They"
            f" may be those of sink '{sink}', so it is not known what it has written."
            " Nothing was written now. If another replica has the records, let its"
            " broker lead the partition, and start again. Otherwise compare the sink's"
            " topic with the source, and go on with another tx.id of the sink and"
            " another tx.markerTopic: it then writes an unfinished batch whole.",
            store=self.topic,
            path=f"offset {error.position}",
            reason=error.message,
        )

    def _corrupted(self, at: int, entry: Entry, reason: str) -> StateCorruptedError:
        sink = entry.sink
        return StateCorruptedError(
            f"record {at} of topic '{self.topic}' took the place of a marker of sink"
            f" '{sink}' (key {entry.key.decode()}) and is none: {reason}. The group"
            f" '{entry.group}', which would have it too, has no offset. So it is not"
            " known what the sink has written. Nothing was written now. Compare the"
            " sink's topic with the source, and go on with another tx.id of the sink,"
            " which writes an unfinished batch whole. If this sink is to begin again,"
            f" delete all its keys from '{self.topic}' (records without value) and all"
            " its groups: kafka-consumer-groups.sh --bootstrap-server"
            f" {self._log.addresses} --delete --group {name_of(sink, '<part>')}. Let"
            " only users write the topic who trust each other (tx.markerTopic).",
            store=self.topic,
            path=entry.key.decode(),
            reason=reason,
        )


def _is_of(log: LogBounds, since: Memory) -> bool:
    return since.topic_id == log.topic_id and since.end <= log.end


def _is_siblings(entry: Entry, own: str, run: str | None) -> bool:
    """Whether a task ignores the entry: the plan, or of a task of its own run."""
    if run is None or entry.name == own:
        return False
    return not isinstance(entry.kept, Marker) or entry.kept.run == run
