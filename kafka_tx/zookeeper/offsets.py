"""Committed offsets in ZooKeeper, in the form of storm-kafka.

``<root>/<id>/partition_<n>`` for one topic, ``<root>/<id>/<topic>/partition_<n>`` if
several topics share an id. A topology that goes over from one to the other goes on at
what was written last, in either place. Each node is a JSON object::

    {"topology": {"id": …, "name": …}, "offset": <next offset>, "partition": <n>,
     "broker": {"host": …, "port": …}, "topic": …}

Fields that storm-kafka does not know are in ``"kafka_tx": {…}``. Its tools can read
these nodes, and its own nodes are continued here. Beside them, ``<root>/<id>/~owners``
says who may write. Source: Storm, ZkState and PartitionManager.commit (deviates: a
record that cannot be read is an error, where storm-kafka went on from somewhere else).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import Broker, CommittedOffset, TopicPartition
from kafka_tx.offsets.offset_fields import optional_fields, with_optional_fields
from kafka_tx.offsets.owners import Claim, Owners, new_word
from kafka_tx.stored import NODES
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.ownership.store_base import OffsetsOfId
from kafka_tx.zookeeper.client import (
    Check,
    Create,
    MovedError,
    Node,
    Op,
    OutcomeUnknownError,
    Set,
    ZooKeeperClient,
    in_requests,
    nodes_above,
)
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings, check_root

_T = TypeVar("_T")

OWNERS = "~owners"
_PARTITION = "partition_"
_TRIES = 5


class ZooKeeperOffsetStore(OffsetsOfId):
    """An OffsetStore in storm-kafka's form. Runs beyond the offset are not stored.

    ``by_topic`` puts the topic into the path, as storm-kafka does when topics are
    matched by a regular expression; without it an id is for one topic. A session given
    as ``client`` is shared with others, and not closed here.
    """

    def __init__(
        self,
        url: str | ZooKeeperSettings,
        id: str,  # noqa: A002 - the seam's word
        *,
        by_topic: bool = False,
        client: ZooKeeperClient | None = None,
    ) -> None:
        settings = url if isinstance(url, ZooKeeperSettings) else None
        self._settings = settings or ZooKeeperSettings.parse(str(url))
        self._base = check_root(f"{self._settings.root}/{id}", "id")
        super().__init__(self._settings.url, id)
        self.retry_ms = self._settings.retry_for_ms
        self._by_topic = by_topic
        self._client = client or ZooKeeperClient(self._settings)
        self._owns_client = client is None
        self._existing: set[str] = set()
        self._claim: Claim | None = None
        self._seen = Owners()
        self._owners_version: int | None = None

    def acquire(self, task: int = 0, tasks: int = 1) -> int:
        """As ``OffsetStore.acquire``."""

        def take_over() -> Claim:
            node = self._client.node(self._owners_path)
            owners, claim = self._owners(node).claimed(task, tasks)
            data = records.encode_owners(owners).encode()
            self._client.change(self._taking_over(node, data))
            return claim

        self._claim, self._owners_version = self._tried(take_over), None
        return self._claim.epoch

    def topics(self) -> frozenset[str]:
        """As ``OffsetStore.topics``; a node that cannot be read tells of none."""
        names = self._client.children([self._base]).get(self._base, [])
        folders = self._client.children(f"{self._base}/{name}" for name in names)
        topics = {
            path.rpartition("/")[2]
            for path, inside in folders.items()
            if any(name.startswith(_PARTITION) for name in inside)
        }
        flat = [f"{self._base}/{n}" for n in names if n.startswith(_PARTITION)]
        for node in self._client.nodes(flat).values():
            with suppress(*NO_RECORD):
                topics.add(str(decoded(node.data)[0]["topic"]))
        return frozenset(topics)

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """As ``OffsetStore.load``, from the form that was written last.

        A node of another partition is corrupted, too, if it is where this partition's
        is written; in the other form it is none of this partition.
        """
        wanted = {partition: self._places(partition) for partition in partitions}
        found = self._client.nodes(chain.from_iterable(wanted.values()))
        self._existing.update(found)
        loaded = {p: self._newest(p, found) for p in wanted}
        return {p: offset for p, offset in loaded.items() if offset is not None}

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """As ``OffsetStore.store``.

        Up to about 2,000 partitions are one request. More are several: after a crash in
        between some partitions have their former offset.
        """
        data = {self._node(p): _record(p, offset) for p, offset in offsets.items()}
        claim = self._claim
        if claim is not None and data:
            claim.words += (new_word(),)
        self._tried(lambda: self._write(data))
        if claim is not None and data:
            claim.words = claim.words[-1:]

    def _tried(self, change: Callable[[], _T]) -> _T:
        problem: Exception | None = None
        for _ in range(_TRIES):
            try:
                return change()
            except (MovedError, OutcomeUnknownError) as error:
                self._existing.clear()  # read again; writing twice is harmless
                self._owners_version = None
                problem = error
        raise self._client.silent(problem or AssertionError()) from problem

    def close(self) -> None:
        """End the session, unless it is shared. Calling it twice is harmless."""
        if self._owns_client:
            self._client.close()

    @property
    def _owners_path(self) -> str:
        return f"{self._base}/{OWNERS}"

    def _owners(self, node: Node | None) -> Owners:
        text = None if node is None else node.data.decode(errors="replace")
        return records.decode_owners(text, records.Place(OWNERS, self.url, self.id))

    def _taking_over(self, node: Node | None, data: bytes) -> list[Op]:
        """Set the owners if they are still those of ``node``, or make the node."""
        path = self._owners_path
        if node is not None:
            return [Set(path, data, node.version)]
        operations = self._operations({path: data})
        if path in self._existing:
            raise MovedError(f"{path} was made by another")
        return operations

    def _write(self, data: Mapping[str, bytes]) -> None:
        """Write all nodes; the first request leaves the owner's next word."""
        guard = self._guard(writes=bool(data))
        for some in in_requests(self._operations(data)):
            self._client.change([*guard, *some])
            self._existing.update(operation.path for operation in some)
            if guard and isinstance(guard[0], Set):
                self._owners_version = guard[0].version + 1
                guard = [Check(self._owners_path, self._owners_version)]

    def _guard(self, *, writes: bool) -> list[Op]:
        """A check that fails if the owners changed; raises as ``Owners.check``."""
        if self._claim is None:
            return []
        if self._owners_version is None or not writes:
            self._client.catch_up(self._owners_path)
            node = self._client.node(self._owners_path)
            self._seen = self._owners(node)
            self._seen.check(self._claim, store=self.url, id=self.id)
            self._owners_version = node.version if node else None
        version = self._owners_version or 0
        if not writes:
            return [Check(self._owners_path, version)]
        self._seen = self._seen.wrote(self._claim)
        text = records.encode_owners(self._seen)
        return [Set(self._owners_path, text.encode(), version)]

    def _operations(self, data: Mapping[str, bytes]) -> list[Op]:
        """Set existing nodes; create the others and their parents."""
        ways = {at for node in data for at in nodes_above(node)}
        nodes = {*data, *ways}
        self._existing.update(self._client.stats(ways - self._existing))
        folders = {node.rpartition("/")[0] for node in nodes - self._existing}
        for folder, names in self._client.children(folders).items():
            self._existing.update(f"{folder}/{name}" for name in names)
        done: list[Op] = []
        for node in sorted(nodes):
            if node not in self._existing:
                done.append(Create(node, data.get(node, b"")))
            elif node in data:
                done.append(Set(node, data[node]))
        return done

    def _node(self, partition: TopicPartition) -> str:
        return self._places(partition)[0]

    def _places(self, partition: TopicPartition) -> tuple[str, str]:
        """Where its offset is written, and where it is if it was of the other form."""
        name = f"{_PARTITION}{partition.partition}"
        flat, deep = f"{self._base}/{name}", f"{self._base}/{partition.topic}/{name}"
        return (deep, flat) if self._by_topic else (flat, deep)

    def _newest(
        self, partition: TopicPartition, found: Mapping[str, Node]
    ) -> CommittedOffset | None:
        own, other = self._places(partition)
        # a node without data may be the folder of a topic with such a name
        has_own = own in found and bool(found[own].data or not found[own].children)
        has_other = other in found and bool(found[other].data)
        newest, changed = None, -1
        if has_own:
            beside = [other] if has_other else []
            stored, newest = self._read(own, partition, found, beside)
            if stored != partition:
                reason = f"it is of {stored}, expected {partition}"
                raise unreadable(self._settings, own, self.id, reason, beside)
            changed = found[own].changed
        if has_other and found[other].changed > changed:
            beside = [own] if has_own else []
            stored, committed = self._read(other, partition, found, beside)
            if stored == partition:
                return committed
        return newest

    def _read(
        self,
        path: str,
        partition: TopicPartition,
        found: Mapping[str, Node],
        beside: Collection[str],
    ) -> tuple[TopicPartition, CommittedOffset]:
        """The partition of which a node is, by default this one, and its offset."""
        try:
            record, committed = decoded(found[path].data)
        except NO_RECORD as error:
            raise unreadable(self._settings, path, self.id, error, beside) from None
        stored = TopicPartition(
            record.get("topic", partition.topic),
            record.get("partition", partition.partition),
        )
        return stored, committed


NO_RECORD = (ValueError, TypeError, KeyError, AttributeError)


def decoded(data: bytes) -> tuple[Mapping[str, Any], CommittedOffset]:
    """The JSON of a node, and its offset; raises one of ``NO_RECORD``, FormatError."""
    record = json.loads(data)
    offset, topology = record["offset"], record.get("topology") or {}
    if type(offset) is not int or offset < 0:
        raise ValueError(f"offset {offset!r}")
    committed = CommittedOffset(
        offset=offset,
        topology_id=str(topology.get("id") or ""),
        topology_name=str(topology.get("name") or ""),
        broker=_broker(record.get("broker")),
    )
    ours = record.get("kafka_tx")
    if ours:
        what = f"the offset of {record.get('topic')}-{record.get('partition')}"
        NODES.check_members(ours, f"{what} in ZooKeeper, of topology {topology}")
    return record, with_optional_fields(committed, ours or {})


def unreadable(
    settings: ZooKeeperSettings,
    path: str,
    id_: str,
    why: Exception | str,
    beside: Collection[str] = (),
) -> StateCorruptedError:
    """The error for a node that is no record of the partition's offset.

    ``beside`` are the nodes of the other form, of which one may be that partition's: a
    start goes on at it when this one is deleted.
    """
    is_text = isinstance(why, str)
    reason = why if is_text else f"it is no record of an offset ({why!r})"
    too = ""
    if beside:
        nodes = " or node ".join(beside)
        too = f", and node {nodes}, too, if it has an offset of that partition,"
    return StateCorruptedError(
        f"the committed offset in node {path} of ZooKeeper {settings.hosts}"
        f" cannot be read: {reason}. Nothing was changed and nothing is guessed in"
        f" its place. Look at the node; delete it{too} to start that partition as"
        " if nothing had been committed, or write the right offset into it",
        store=settings.url,
        id=id_,
        path=path,
        reason=reason,
    )


def _record(partition: TopicPartition, committed: CommittedOffset) -> bytes:
    broker = committed.broker or Broker("", 0)
    record: dict[str, Any] = {
        "topology": {"id": committed.topology_id, "name": committed.topology_name},
        "offset": committed.offset,
        "partition": partition.partition,
        "broker": {"host": broker.host, "port": broker.port},
        "topic": partition.topic,
    }
    extras = optional_fields(committed)
    if extras:
        record["kafka_tx"] = NODES.stamped(extras)
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def _broker(record: Mapping[str, Any] | None) -> Broker | None:
    if not record or not record.get("host"):
        return None
    return Broker(str(record["host"]), int(record.get("port", 9092)))
