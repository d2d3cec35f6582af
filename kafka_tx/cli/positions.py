"""The stored position of an id, of all kinds of jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka_tx import assembly
from kafka_tx.cli.stores import url_or_file
from kafka_tx.errors import FormatError, StateCorruptedError, StateError
from kafka_tx.model import CommittedOffset, LogPosition, TopicPartition
from kafka_tx.protocols import Store
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.txid_layout import Door, door_of
from kafka_tx.transactions.ledger.ledger import Committed, Ledger, LedgerState
from kafka_tx.transactions.ledger.ledger_reading import stored_batches
from kafka_tx.transactions.ownership.memory import (
    MemorySnapshot,
    MemoryStore,
    Positions,
    StoredId,
)


@dataclass(frozen=True, slots=True)
class KnownId:
    """The stored state of an id; at least once there are no txids."""

    door: Door
    state: LedgerState
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    """At least once: the stored offsets, with what is completed above them."""

    @property
    def current(self) -> Committed | None:
        """The position; None: nothing is committed, or a tool has moved the id away.

        A moved id goes on in another store. Its position here never changes, so no log
        says anything about it.
        """
        return None if self.state.moved_to else self.state.committed


def known_doors(store: Store, at_least_once: Callable[[], Positions]) -> list[KnownId]:
    """The states stored under an id, one for each kind of job.

    An at-least-once topology may have the id of something that counts txids.

    Raises:
        StateCorruptedError, FormatError: A record cannot be read.
        StateUnavailableError: The store does not answer.
    """
    texts = store.read()
    records.check_formats(texts, store.url, store.id)
    door, known = door_of(texts), []
    if door is Door.SOURCE:
        known.append(KnownId(door, Ledger(store).load()))
    if door is Door.TRANSACTIONAL:
        known.append(KnownId(door, stored_batches(store)))
    epoch, found = at_least_once()
    if not found:
        return known
    return [*known, at_least_once_id(epoch, found)]


def at_least_once_id(
    epoch: int, found: Mapping[TopicPartition, CommittedOffset]
) -> KnownId:
    """The state of an at-least-once topology with these offsets."""
    ids = {p.topic: at.topic_id for p, at in found.items() if at.topic_id}
    offsets = {partition: at.offset for partition, at in found.items()}
    epochs = {p: e for p, at in found.items() if (e := at.leader_epoch) is not None}
    last_ms = max((at.committed_ms or 0 for at in found.values()), default=0)
    committed = Committed(0, offsets, ids, last_ms, leader_epochs=epochs)
    return KnownId(Door.AT_LEAST_ONCE, LedgerState(epoch, committed, {}), found)


def each_id(
    url: str, ids: Collection[str] = ()
) -> Iterator[tuple[str, list[KnownId] | StateError]]:
    """The states of these ids, or of all, ascending; raises as ``stored_ids``.

    An id that cannot be read hides no other: its error stands for its states.
    """
    for name, stored in assembly.stored_states(url, ids).items():
        try:
            yield name, known_doors(stored.store, stored.at_least_once)
        except (StateCorruptedError, FormatError) as error:
            yield name, error


def positions_in(doors: Iterable[KnownId]) -> dict[TopicPartition, LogPosition]:
    """All current positions; where two jobs read a partition, the lower one.

    So neither job hides the lag of the other.
    """
    found: dict[TopicPartition, LogPosition] = {}
    for one in doors:
        committed = one.current
        for partition, at in committed.positions().items() if committed else ():
            if partition not in found or at.offset < found[partition].offset:
                found[partition] = at
    return dict(sorted(found.items()))


def doors_of(url: str, store: Store) -> list[KnownId]:
    """The same of an opened store; raises as ``known_doors``."""
    return known_doors(store, stored_of(url, store).at_least_once)


def stored_of(url: str, store: Store) -> StoredId:
    """What is stored of an opened store's id now; nothing, if the store has no such id.

    Raises: as ``assembly.stored_states``.
    """
    found = assembly.stored_states(url_or_file(url), [store.id])
    nothing = MemoryStore.copy_of(store.url, store.id, MemorySnapshot(0, {}))
    return found.get(store.id, StoredId(nothing, lambda: (0, {})))


def committed_of(url: str, store: Store) -> KnownId:
    """The one kind of job that has committed offsets under an id.

    Raises:
        StateError: There are none, or those of two topologies.
    """
    known = doors_of(url, store)
    return only_one([one for one in known if one.state.committed is not None], store)


def only_one(found: list[KnownId], store: Store) -> KnownId:
    """The one kind of job that has offsets under an id.

    Raises:
        StateError: None has, or two have.
    """
    if len(found) == 1:
        return found[0]
    why = "has no committed offsets yet"
    if found:
        doors = " and of an ".join(one.door for one in found)
        why = f"is that of a {doors}, so it has no offsets of its own"
    raise StateError(
        f"id '{store.id}' in {store.url} {why}; `kafka-tx status` shows what it has",
        store=store.url,
        id=store.id,
    )


def refuse_copied(id_: str, state: LedgerState, command: str) -> None:
    """Raise StateError if the id goes on in another store."""
    if there := state.moved_to:
        raise StateError(
            f"id '{id_}' was copied to {there}, and goes on there: the offsets here are"
            f" old. Run: kafka-tx {command} --store '{there}' --id {id_}, with the"
            " other options as before",
            id=id_,
        )


def only_of_a_source(store: Store, why: str) -> None:
    """Refuse an id that is not of a source, by a StateError."""
    door = door_of(store.read())
    if door is Door.SOURCE:
        return
    if door is Door.TRANSACTIONAL:
        raise StateError(
            f"id '{store.id}' in {store.url} is a transactional topology, and these"
            f" {why}. Nothing was changed. To let it begin anew: `kafka-tx offsets"
            " reset`, with startingOffsets of its spout where it shall begin",
            store=store.url,
            id=store.id,
        )
    raise StateError(
        f"id '{store.id}' in {store.url} has no batches of a source, whose offsets"
        f" alone can be changed here: others {why}. Nothing was changed. To let an"
        " at-least-once topology begin anew: `kafka-tx offsets reset`, with"
        " start_offset_time of its spout where it shall begin",
        store=store.url,
        id=store.id,
    )
