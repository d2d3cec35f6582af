"""Exactly-once writes: the plan of a batch, and one Kafka transaction for each part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kafka_tx.errors import KafkaError, KafkaTxError, StateCorruptedError
from kafka_tx.kafka.marker_log import MarkerLog
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.transaction import BatchRefusedError, Transaction
from kafka_tx.sinks.marker_rules import (
    begun_elsewhere,
    check_lives,
    check_others,
    check_rows,
    is_done,
    needs_all_markers,
)
from kafka_tx.sinks.sink_memory import Entry, Memory
from kafka_tx.sinks.sink_parts import (
    Digest,
    Marker,
    Part,
    SinkPlan,
    Wish,
    name_of,
    plan_of,
    planned,
)


@dataclass(frozen=True, slots=True)
class Written:
    """Whether this call wrote a part, and the digest of its rows.

    Attributes:
        unwritten: The rows, if an earlier run began the batch. They are written when
            all tasks have reported.
        has_read_all: Whether this call read all markers of the sink: its part was
            not written in this run before.
    """

    now: bool
    digest: Digest
    unwritten: tuple[OutRecord | OutBatch, ...] | None = None
    has_read_all: bool = False


class PartTransaction:
    """One part, written once (executor).

    1. ``init_transactions`` fences an older writer of the part and aborts its
       transaction.
    2. The part's marker is read, from the group or else from the marker topic. If it is
       of this txid the part is done, and the given records are only compared with those
       that were written.
    3. Before the first write of a run all markers of the sink are read (those that came
       after the driver read them): a batch that an earlier run has begun is not cut in
       another way. A part without a marker is announced there, before its records.
    4. Records and marker (as the offset of a group of the part, and as a record of the
       marker topic) are committed as one.
    5. An unknown outcome is resolved by reading the marker again, with a new producer,
       which fences the one in doubt.

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        part: The part to write.
        log: The marker topic.
        reading: From ``client_settings(…, purpose="consumer")``.
        since: The markers that the driver has read; None: none.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        part: Part,
        log: MarkerLog,
        reading: Mapping[str, str],
        since: Memory | None = None,
    ) -> None:
        self._settings = settings
        self._part = part
        self._log = log
        self._since = since
        self._reading = {**reading, "isolation.level": "read_committed"}
        self._memory: Memory | None = None
        self._topics = {log.place}

    def write(self, records: Iterable[OutRecord | OutBatch]) -> Written:
        """Write the records in one transaction, unless they were written before.

        ``records`` is iterated again after a topic has refused a batch.

        Raises:
            FencedError: A newer owner of the source, or another query, took over.
            OutOfOrderError: A later txid is committed, or the same one in another
                number of parts.
            ReplayDiffersError: The txid is committed with other records.
            StateCorruptedError: The marker topic has lost its records.
            DeliveryError, AuthenticationError, KafkaError: Nothing of it is visible.
        """
        if isinstance(records, Iterator):
            message = "the records of a part are needed again after a refusal"
            raise TypeError(message)
        while True:  # smaller batches each time, until a record is refused alone
            with suppress(BatchRefusedError):
                return self._write(records)

    def _write(self, records: Iterable[OutRecord | OutBatch]) -> Written:
        with self._begun() as transaction:
            own = self._own()
            digest = Digest()
            needs_all = needs_all_markers(self._part, own)
            if own is not None and is_done(self._part, own):
                for _ in digest.of(records):
                    pass
                check_rows(self._part, own, digest)
                return Written(False, digest, has_read_all=needs_all)
            if needs_all and self._is_begun():
                return Written(False, digest, tuple(digest.of(records)), True)
            with transaction.writing():
                if needs_all and own is None:
                    self._announce(transaction)
                self._send(transaction, digest.of(records))
                self._mark(transaction, digest)
            self._commit(transaction, digest)
            return Written(True, digest, has_read_all=needs_all)

    def end_open(self) -> None:
        """Abort what a dead writer of the part left open: readers wait for it."""
        with self._begun():
            pass

    def _begun(self) -> Transaction:
        part, topics = self._part, self._topics
        names = part.name, str(part)
        return Transaction(self._settings, *names, self._reading, part.group, topics)

    # --- markers --------------------------------------------------------------------

    def _own(self) -> Marker | None:
        """The marker of the part; from the marker topic if the group has expired."""
        part, self._memory = self._part, None
        kept = self._of_group()
        if kept is not None and not needs_all_markers(part, kept):
            return kept
        self._memory = self._recall()
        entries = self._memory.entries(part.id)
        # a task leaves out a plan that another sink's transaction hides
        entries = [each for each in entries if isinstance(each.kept, Marker)]
        with _asking_groups(self._log, entries, self._recall):
            check_others(part, self._memory.markers)
        logged = self._memory.own(part.life, part.index)
        if kept is None:
            return logged
        if logged is not None and logged.txid >= kept.txid:
            logged_entry, of_group = Entry(part.id, logged), Entry(part.id, kept)
            _check_same(self._log, logged_entry, of_group, self._recall)
            return logged
        if self._of_group() != kept:  # another run wrote, and the topic was compacted
            return self._own()
        what = (
            f"the marker of part {part.index} of txid {kept.txid} of sink '{part.id}'"
        )
        still = f"group '{part.group}' still has"
        raise _lost(self._log, part.group, f"{what}, which {still}")

    def _of_group(self) -> Marker | None:
        part = self._part
        found = self._log.kept(Entry(part.id, part.marker(Digest())))
        kept = None if found is None else found.kept
        assert kept is None or isinstance(kept, Marker)
        return kept

    def _recall(self) -> Memory:
        part = self._part
        return self._log.recall(part.id, self._since, own=part.name, run=part.run)

    def _is_begun(self) -> bool:
        """Whether an earlier run began the batch with an unknown number of parts."""
        assert self._memory is not None
        markers = self._memory.markers
        check_lives(self._part, markers)
        return bool(begun_elsewhere(self._part, markers)) and self._part.parts == 0

    # --- writing --------------------------------------------------------------------

    def _send(
        self, transaction: Transaction, records: Iterable[OutRecord | OutBatch]
    ) -> None:
        transaction.send(records)

    def _announce(self, transaction: Transaction) -> None:
        """Before any record that readers may have to wait for; see ``Entry``."""
        entry = Entry(self._part.id, self._part.marker(Digest())).announced()
        transaction.send([self._log.record(entry)], is_small=True)

    def _mark(self, transaction: Transaction, digest: Digest) -> None:
        entry = Entry(self._part.id, self._part.marker(digest))
        transaction.send([self._log.record(entry)], is_small=True)
        transaction.add_offset(self._log.offset(entry))

    def _commit(self, transaction: Transaction, digest: Digest) -> None:
        try:
            transaction.commit()
        except KafkaError:
            with self._begun():  # fences the transaction in doubt
                own = self._own()
                if own is None or not is_done(self._part, own):
                    raise
                check_rows(self._part, own, digest)  # an older task may have written


class PlanKeeper:
    """Settles and stores the plan of a sink (driver); made as PartTransaction."""

    def __init__(
        self, settings: Mapping[str, str], log: MarkerLog, reading: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._log = log
        self._reading = {**reading, "isolation.level": "read_committed"}

    def settle(self, wish: Wish) -> tuple[SinkPlan, Memory]:
        """The plan for a batch, stored unless it was; and the markers, for the tasks.

        An older program that is about to store its own is fenced.

        Raises:
            AnotherNumberingError, FencedError, OutOfOrderError: As ``planned``.
            ConfigError: The marker topic expires records.
            StateCorruptedError: The sink was written, and its plan is gone.
            AuthenticationError, KafkaError: The brokers refuse, or do not answer.
        """
        with self._begun(wish) as transaction:
            memory = self._recall_all(wish)
            markers = [m for m in memory.markers if not m.life]
            last = max((m.txid for m in markers), default=0)
            stored = memory.plan or plan_of(markers)
            entries = memory.entries(wish.id)
            with _asking_groups(self._log, entries, lambda: self._recall(wish)):
                plan = planned(stored, wish, last)
            if plan == memory.plan:
                return plan, memory
            entry = Entry(wish.id, plan)
            with transaction.writing():
                transaction.send([self._log.record(entry)], is_small=True)
                transaction.add_offset(self._log.offset(entry))
            try:
                transaction.commit()
            except KafkaError:
                with self._begun(wish):  # fences the transaction in doubt
                    if self._recall(wish).plan != plan:
                        raise
        return plan, memory

    def _recall_all(self, wish: Wish) -> Memory:
        """As ``_recall``; an empty topic is refused if a group knows of a marker.

        Another run may write between two answers: then the group changes.
        """
        part = Part(wish.id, wish.attempt, 0, wish.parts)
        first = Entry(wish.id, part.marker(Digest()))
        memory, asked = self._recall(wish), None
        while memory.is_empty and (of_group := self._log.set_in_group(first)):
            if of_group == asked:
                what = (
                    f"what it held of sink '{wish.id}': group '{part.group}' has more"
                )
                raise _lost(self._log, part.group, what)
            memory, asked = self._recall(wish), of_group
        return memory

    def _recall(self, wish: Wish) -> Memory:
        return self._log.recall(wish.id, own=name_of(wish.id, "plan"))

    def _begun(self, wish: Wish) -> Transaction:
        name = name_of(wish.id, "plan")
        what = f"the plan of sink '{wish.id}'"
        return Transaction(self._settings, name, what, self._reading, name)


@contextmanager
def _asking_groups(
    log: MarkerLog, entries: Iterable[Entry], recall: Callable[[], Memory]
) -> Iterator[None]:
    """Name a marker that its group does not know, if one was the cause of a refusal."""
    try:
        yield
    except KafkaTxError:
        for entry in entries:
            of_group = log.kept(entry)
            if of_group is not None and of_group.txid <= entry.txid:
                _check_same(log, entry, of_group, recall)
        raise


def _check_same(
    log: MarkerLog, logged: Entry, of_group: Entry, recall: Callable[[], Memory]
) -> None:
    """Refuse a marker of the topic that is not its group's, which is as new.

    One transaction commits both, so one of them is not the sink's; unless another run
    has committed between the two answers. Then one of them changes when asked again:
    the group last, as the topic may have dropped a marker for one that it has now.
    """
    if logged.value == of_group.value:
        return
    if logged not in recall().entries(logged.sink) or log.kept(logged) != of_group:
        return
    topic, key = log.topic, logged.key.decode()
    raise StateCorruptedError(
        f"topic '{topic}' has the marker {logged.value.decode()} under the key {key},"
        f" and group '{logged.group}' has {of_group.value.decode()}. The sink"
        f" '{logged.sink}' commits both at once, so one of them is not its own:"
        " somebody has written to the topic, or has set the group; or the option"
        " 'topic' of the sink was another one for a while. Nothing was written now."
        " Compare the sink's topics with the source. If the sink has not written txid"
        f" {logged.txid}, write the group's marker under this"
        f" key to '{topic}', to partition 0. If it has, delete the group:"
        f" kafka-consumer-groups.sh --delete --group {logged.group}. Then start again."
        " Let only users write the topic who trust each other (tx.markerTopic).",
        store=topic,
        path=key,
        reason="its group has another one",
    )


def _lost(log: MarkerLog, path: str, what: str) -> StateCorruptedError:
    return StateCorruptedError(
        f"the topic '{log.topic}' has lost {what}. The topic was deleted or is not"
        " compacted, 'tx.markerTopic' was changed, or the sink's keys were deleted"
        " there. Nothing was written. Give the"
        " former 'tx.markerTopic'. If it is gone, compare the sink's topic with the"
        " source, and go on with another tx.id of the sink, which writes an unfinished"
        " batch whole. A sink that is to begin again needs its groups deleted, too"
        f" (kafka-consumer-groups.sh --delete --group {path}).",
        store=log.topic,
        path=path,
        reason="lost",
    )
