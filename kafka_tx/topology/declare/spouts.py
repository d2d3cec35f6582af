"""Spouts: the sources of the batches of a transactional topology.

A spout object lives on the driver, where it decides which rows each batch holds
(*plan*). The object that it sends to the tasks then reads exactly these rows (*read*).
Plan and read share only metadata of JSON values, which the coordinator stores: for a
transactional spout before anything is emitted, for an opaque one when the batch has
committed.

===================================  ==================================================
``TransactionalSpout``               one plan for the batch, any number of reading tasks
``PartitionedTransactionalSpout``    a plan for each partition; a replay is the same
``OpaquePartitionedTransactional…``  the same; a replay is planned anew
===================================  ==================================================

The engine uses only what all of them have: ``mode``, ``open``, ``is_ready``,
``is_drained``, ``initialize_transaction``, ``is_empty``, ``batch``, ``observed``,
``committed``, ``close``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

from kafka_tx.config import Mode
from kafka_tx.model import TransactionAttempt, Unavailable
from kafka_tx.topology.rows.blocks import Block
from kafka_tx.topology.rows.fields import FieldsLike

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, lists and dicts with str keys of them."""


class BatchSource(Protocol):
    """Reads one attempt's rows in the tasks of a spout. Sent to the tasks, pickled.

    If a source has a length, this is the most rows of the batch: the tasks of a small
    batch share one task of Spark.
    """

    def read(self, task: int, tasks: int, facts: dict[str, Json]) -> Iterator[Block]:
        """Yield this task's share of the rows of the batch.

        Args:
            task: Index of this task, from 0.
            tasks: How many tasks share the batch; all of them are called.
            facts: Filled, per partition, with facts of the read for the driver
                (records, bytes, a checksum).
        """


class Spout:
    """The base of all transactional spouts. Subclass another class, not this one."""

    fields: FieldsLike = ()
    """The emitted fields, without ``tx``."""

    mode: Mode = "transactional"
    """Whether a replay holds the same records; if not, the mode is ``opaque``."""

    def open(self) -> None:
        """Drop all plans: the topology starts, perhaps not for the first time.

        Called on the driver, first; no other running topology has the object. An error
        refuses the start, before the topology becomes the owner of its id. The store's
        state decides where batches go on.
        """

    def is_ready(self) -> bool:
        """Whether a brand-new batch may be planned now; never called for a replay.

        Called on the driver, again and again: it must not block.
        """
        return True

    def is_drained(self) -> bool | None:
        """Whether all present rows are planned.

        Called on the driver after an empty batch was planned. Also called while a
        caller waits for idleness, no batch is in flight and the spout is not ready.
        The method must poll the source anew, even if ``is_ready`` polls rarely. None:
        unknown; an empty batch then counts as yes.
        """
        return None if self.is_ready() else True

    def initialize_transaction(self, txid: int, previous: Json | None) -> Json:
        """The metadata of a new batch, from that of ``txid - 1``.

        ``previous`` is None for txid 1, except in an opaque Kafka spout, whose first
        plan is stored: then it is where that plan begins.

        Called on the driver: once per txid ever for a transactional spout, once per
        attempt for an opaque one. After a retryable error, it is called again, whatever
        ``is_ready`` says; until then metrics show the batch as in flight.
        """
        raise NotImplementedError

    def is_empty(self, metadata: Json) -> bool:  # noqa: ARG002 - subclasses use it
        """Whether the batch is known to hold nothing; the next one then waits a little.

        An empty batch runs through both phases like any other.
        """
        return False

    def batch(self, attempt: TransactionAttempt, metadata: Json) -> BatchSource:
        """The object to send to the tasks of this attempt. Called on the driver.

        Raises:
            ReplayImpossibleError: The batch cannot be read again as it was.
        """
        raise NotImplementedError

    def empty_batch(self) -> BatchSource:
        """A batch without rows; ``build`` pickles it as a check."""
        return self.batch(TransactionAttempt(0, 0), None)

    def observed(
        self, attempt: TransactionAttempt, metadata: Json, facts: Mapping[str, Json]
    ) -> None:
        """Take the facts of the tasks' reads. Called on the driver, once processed."""

    def committed(self, txid: int, metadata: Json) -> None:
        """The batch is recorded; older txids are not needed any more.

        Called on the driver, in txid order. Source: Storm, cleanupBefore.
        """

    def close(self) -> None:
        """Release resources. Called once, on the driver, also after an error."""


class TransactionalSpout(Spout):
    """Plans a batch as a whole; any number of tasks read it, a replay is the same.

    Override ``initialize_transaction`` and ``emit_batch``. The object itself is pickled
    and sent to the tasks, unless ``emitter`` returns another object.
    """

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, task: int, tasks: int
    ) -> Iterator[Block]:
        """Yield this task's share of the batch: the same rows for every attempt.

        Called in a task. The shares of all tasks make the batch, whatever ``tasks`` is.
        """
        raise NotImplementedError

    def emitter(self) -> TransactionalSpout:
        """The object to send to the tasks."""
        return self

    @final
    def batch(self, attempt: TransactionAttempt, metadata: Json) -> BatchSource:
        """The emitter with the metadata of its batch."""
        return _WholeBatch(self.emitter(), attempt, metadata)


class PartitionEmitter(Protocol):
    """Reads partitions of a batch in a task. Pickled."""

    def read(
        self, partition: str, metadata: Json, facts: dict[str, Json]
    ) -> Iterator[Block]:
        """Yield the rows of a partition's metadata, the same rows every time."""


class PartitionedTransactionalSpout(Spout):
    """Plans a batch by partition; a replay of a txid holds exactly the same rows.

    Override ``partitions``, ``plan``, ``empty_after`` and ``read``; override ``offers``
    instead of ``plan`` when all partitions can be asked at once. The metadata of a
    batch is a mapping from partition to that partition's metadata. It freezes which
    partitions take part, so that a replay never reads one that was added later; task
    ``i`` of ``n`` reads the partitions ``i, i + n, …`` of it.

    The object itself is pickled and sent to the tasks, unless ``emitter`` returns
    another object.
    """

    def partitions(self) -> Sequence[str]:
        """The present partitions; new ones come last. Called on the driver."""
        raise NotImplementedError

    def plan(self, partition: str, last: Json | None) -> Json | Unavailable | None:
        """Plan a partition's part of a new batch. Called on the driver.

        Args:
            partition: Its name; also one that is not in ``partitions`` any more.
            last: Its metadata in the batch before; None if it was in none yet.

        Returns:
            The metadata; if there is nothing to read, that of an empty part at the same
            position. ``Unavailable``: the partition cannot be reached now; its part is
            ``empty_after(last)``, or missing while it has no position. None: the
            partition is gone for good; this batch and later ones leave it out. If its
            name comes back, it is a new partition.
        """
        raise NotImplementedError

    def offers(
        self, lasts: Mapping[str, Json | None]
    ) -> Mapping[str, Json | Unavailable | None]:
        """``plan`` of all partitions; a missing partition counts as unavailable."""
        return {
            partition: self.plan(partition, last) for partition, last in lasts.items()
        }

    def empty_after(self, metadata: Json) -> Json:
        """The metadata of an empty batch that begins where this one ends."""
        raise NotImplementedError

    def read(
        self, partition: str, metadata: Json, facts: dict[str, Json]
    ) -> Iterator[Block]:
        """Yield the rows of the metadata, always the same ones. Called in a task."""
        raise NotImplementedError

    def emitter(
        self,
        attempt: TransactionAttempt,  # noqa: ARG002 - subclasses use it
        metadata: Mapping[str, Json],  # noqa: ARG002 - subclasses use it
    ) -> PartitionEmitter:
        """The object to send to the tasks of this attempt at this batch."""
        return self

    def initialize_transaction(
        self,
        txid: int,  # noqa: ARG002 - partitions are planned from where they ended
        previous: Mapping[str, Json] | None,
    ) -> Mapping[str, Json]:
        """The metadata of a new batch: partitions known before, then the new ones.

        Partitions that are gone for good are left out.
        """
        lasts: dict[str, Json | None] = dict(previous or {})
        lasts |= {p: None for p in self.partitions() if p not in lasts}
        offers = self.offers(lasts)
        batch: dict[str, Json] = {}
        for partition, last in lasts.items():
            offer = offers.get(partition, _NOT_OFFERED)
            if offer is None:
                continue
            if not isinstance(offer, Unavailable):
                batch[partition] = offer
            elif last is not None:
                batch[partition] = self.empty_after(last)
        return batch

    def empty_batch(self) -> BatchSource:
        """A batch without partitions."""
        return self.batch(TransactionAttempt(0, 0), {})

    @final
    def batch(
        self, attempt: TransactionAttempt, metadata: Mapping[str, Json]
    ) -> BatchSource:
        """The emitter with the metadata of all partitions."""
        return _Partitions(self.emitter(attempt, metadata), dict(metadata))


_NOT_OFFERED = Unavailable("not offered")


class OpaquePartitionedTransactionalSpout(PartitionedTransactionalSpout):
    """A ``PartitionedTransactionalSpout`` whose replay may hold other rows.

    Every attempt is planned anew, from where the batch before it ended *this* time. So
    a partition that cannot be reached contributes an empty batch at the same position,
    and the others go on. Each row is in exactly one committed batch.
    """

    mode: Mode = "opaque"


@dataclass(frozen=True, slots=True)
class _WholeBatch:
    emitter: TransactionalSpout
    attempt: TransactionAttempt
    metadata: Json

    def read(
        self,
        task: int,
        tasks: int,
        facts: dict[str, Json],  # noqa: ARG002 - a batch as a whole has no partitions
    ) -> Iterator[Block]:
        return self.emitter.emit_batch(self.attempt, self.metadata, task, tasks)


@dataclass(frozen=True, slots=True)
class _Partitions:
    emitter: PartitionEmitter
    metadata: dict[str, Json]

    def read(self, task: int, tasks: int, facts: dict[str, Json]) -> Iterator[Block]:
        for partition in list(self.metadata)[task::tasks]:
            of_partition: dict[str, Json] = {}
            yield from self.emitter.read(
                partition, self.metadata[partition], of_partition
            )
            if of_partition:
                facts[partition] = of_partition
