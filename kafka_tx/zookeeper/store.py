"""The store in ZooKeeper.

``<root>/<id>/<path>`` holds the value of a path, so that a root ``/transactional`` and
the paths of a topology give exactly Storm's layout. One node more, ``~owner``, holds
the epoch. Every write sets it too, at the version that was read: that fences, orders
the writers of one id, and tells a reader whether something changed while it read.

A write is one request. What does not fit into one is refused before it is sent.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import RLock

from kafka_tx.config import check_id
from kafka_tx.errors import (
    ConfigError,
    FencedError,
    FormatError,
    StateConflictError,
    StateCorruptedError,
    StateError,
    StateLostError,
    StateUnavailableError,
)
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.protocols import NOTHING, Expected, Paths, Store, Texts
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.ownership.memory import (
    MemorySnapshot,
    MemoryStore,
    Positions,
    StoredId,
)
from kafka_tx.transactions.ownership.refusals import conflict, fenced
from kafka_tx.transactions.ownership.store_base import StateOfId
from kafka_tx.zookeeper.client import (
    MAX_REQUEST_BYTES,
    Check,
    Create,
    Delete,
    MovedError,
    Node,
    Op,
    OutcomeUnknownError,
    Set,
    ZooKeeperClient,
    nodes_above,
    size_of,
)
from kafka_tx.zookeeper.offsets import NO_RECORD, OWNERS, decoded, unreadable
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings
from kafka_tx.zookeeper.tree import Layout, Tree

_PARTITION = re.compile(r"partition_[0-9]+")


def stored_ids(url: str) -> list[str]:
    """Every id with records or with offsets in Storm's form, ascending. Only reads.

    Raises:
        ConfigError: The URL cannot be used.
        StateUnavailableError: ZooKeeper does not answer.
        StateError: It refuses: authentication, ACL.
    """
    settings = ZooKeeperSettings.parse(url)
    with closing(ZooKeeperClient(settings)) as client:
        return list(_nodes_by_id(client, settings.root))


def stored_states(url: str, ids: Collection[str] = ()) -> dict[str, StoredId]:
    """The state of these ids, or of all, in one session; raises as ``stored_ids``."""
    settings = ZooKeeperSettings.parse(url)
    with closing(ZooKeeperClient(settings)) as client:
        found = _nodes_by_id(client, settings.root, ids)
        return {id_: _readable(client, settings, id_, n) for id_, n in found.items()}


def _nodes_by_id(
    client: ZooKeeperClient, root: str, ids: Collection[str] = ()
) -> dict[str, list[str]]:
    wanted = ids or client.children([root]).get(root, [])
    below = client.children(f"{root}/{name}" for name in wanted)
    return {
        node.rpartition("/")[2]: names
        for node, names in sorted(below.items())
        if (OWNER in names and len(names) > 1) or _keeps_offsets(names)
    }


def _readable(
    client: ZooKeeperClient, settings: ZooKeeperSettings, id_: str, names: list[str]
) -> StoredId:
    """One id; an error that a person must mend is raised when its state is used."""
    try:
        return _stored(client, settings, id_, names)
    except (StateCorruptedError, FormatError) as error:
        return StoredId.unreadable(settings.url, id_, error)
    except ConfigError as error:  # the name is no id
        at = records.Place("", settings.url, id_)
        return StoredId.unreadable(settings.url, id_, records.corrupted(str(error), at))


def _stored(
    client: ZooKeeperClient, settings: ZooKeeperSettings, id_: str, names: list[str]
) -> StoredId:
    snapshot = MemorySnapshot(0, {})
    if OWNER in names:
        store = ZooKeeperStore(settings, id_, client=client)
        texts = {p: t for p, t in store.read().items() if not is_offset(p)}
        snapshot = MemorySnapshot(store.epoch(), texts)
    copy = MemoryStore.copy_of(settings.url, id_, snapshot)
    if not _keeps_offsets(names):
        return StoredId(copy, lambda: (0, {}))
    base = f"{settings.root}/{id_}"
    folders = [f"{base}/{n}" for n in names if n not in {OWNERS, OWNER}]
    below = client.children(folders)
    nodes = [f for f in folders if not below.get(f)]
    nodes += [f"{f}/{name}" for f in folders for name in below.get(f, ())]
    wanted = [node for node in nodes if is_offset(node)]
    found = client.nodes([*wanted, f"{base}/{OWNERS}"])
    owners = found.pop(f"{base}/{OWNERS}", None)

    def positions() -> Positions:
        text = None if owners is None else owners.data.decode(errors="replace")
        at = records.Place(OWNERS, settings.url, id_)
        epoch = records.decode_owners(text, at).last
        nodes = sorted(found.items(), key=lambda node: node[1].changed)
        return epoch, dict(_offset(path, found, settings, id_) for path, _ in nodes)

    return StoredId(copy, positions)


def _offset(
    path: str, nodes: Mapping[str, Node], settings: ZooKeeperSettings, id_: str
) -> tuple[TopicPartition, CommittedOffset]:
    try:
        record, found = decoded(nodes[path].data)
        partition = TopicPartition(str(record["topic"]), int(record["partition"]))
    except NO_RECORD as error:
        beside = _of_the_other_form(path, nodes)
        raise unreadable(settings, path, id_, error, beside) from None
    return partition, found


def _of_the_other_form(path: str, nodes: Iterable[str]) -> list[str]:
    """The nodes of the same number: those with a topic, or the one without."""
    name, depth = path.rpartition("/")[2], path.count("/")
    other = (node for node in nodes if node.count("/") != depth)
    return sorted(node for node in other if node.rpartition("/")[2] == name)


def is_offset(path: str) -> bool:
    """Whether a path below an id is that of an offset in Storm's form."""
    return _PARTITION.fullmatch(path.rpartition("/")[2]) is not None


def _keeps_offsets(children: Iterable[str]) -> bool:
    return any(name == OWNERS or _PARTITION.fullmatch(name) for name in children)


OWNER = "~owner"

_BEGUN_ANEW_AT = 2_000_000_000
"""The version at which ``~owner`` is made anew: ZooKeeper counts to 2**31 - 1 and goes
on below zero, where -1 would mean "whatever version"."""

_TRIES = 100
"""Most tries: before each further try, another writer has made one step."""


_Found = tuple[dict[str, str], dict[str, list[str]]]


@dataclass(frozen=True, slots=True)
class Owner:
    """The record of ``~owner``: epoch, name of the last write, version (-1: none)."""

    epoch: int = 0
    write: str = ""
    version: int = -1

    @classmethod
    def of(cls, node: Node, store: Store) -> Owner:
        """Read the node; raises StateCorruptedError for another record."""
        text = node.data.decode(errors="replace")
        return records.decode_as(
            "owner",
            text,
            lambda said: cls(int(said["epoch"]), str(said["write"]), node.version),
            records.Place(OWNER, store.url, store.id),
        )

    def record(self) -> bytes:
        """The data of the node that says this."""
        payload = {"epoch": self.epoch, "write": self.write}
        return records.encode("owner", payload).encode()


class ZooKeeperStore(StateOfId):
    """A Store in ZooKeeper: ``zookeeper://h1:2181,h2:2181/root``, or its settings.

    After a lost connection it looks up whether the write arrived. A session given as
    ``client`` is shared with others, and not closed here.
    """

    def __init__(
        self,
        url: str | ZooKeeperSettings,
        id: str,  # noqa: A002 - the seam's word
        *,
        client: ZooKeeperClient | None = None,
    ) -> None:
        settings = url if isinstance(url, ZooKeeperSettings) else None
        self._settings = settings or ZooKeeperSettings.parse(str(url))
        super().__init__(self._settings.url, check_id(id))
        self.retry_ms = self._settings.retry_for_ms
        self._base = f"{self._settings.root}/{self.id}"
        self._client = client or ZooKeeperClient(self._settings)
        self._owns_client = client is None
        self._tree = Tree(self._client, self._base, self._corrupted)
        self._layout = Layout(-1)
        self._writing = RLock()

    def acquire(
        self, put: Texts = NOTHING, *, above: int = 0, expect: Expected = None
    ) -> int:
        """As ``Store.acquire``."""
        return self._change(put, (), expect, lambda epoch: max(epoch, above) + 1)

    def epoch(self) -> int:
        """As ``Store.epoch``."""
        self._client.catch_up(self._base)
        return self._now().epoch

    def read(self, prefix: str = "") -> dict[str, str]:
        """As ``Store.read``; a snapshot.

        StateUnavailableError also if writes follow each other too fast to read between
        them.
        """
        found = self._read_steadily(lambda: self._tree.walk(prefix))
        return {path: found[path] for path in sorted(found) if path.startswith(prefix)}

    def get(self, path: str) -> str | None:
        """As ``Store.get``, with the same errors as ``read``."""
        wanted = [records.check_path(path)]
        return self._read_steadily(lambda: (self._tree.texts(wanted), {})).get(path)

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """As ``Store.write``, in one request; StateError: it is too large for one."""

        def same(stored: int) -> int:
            if stored != epoch or not epoch:
                raise fenced(self, held=epoch, stored=stored)
            return epoch

        self._change(put, delete, expect, same)

    def sinks(self, numbering: str) -> dict[str, int]:  # noqa: ARG002
        """None: no sink is kept in it."""
        return {}

    def close(self) -> None:
        """End the session, unless it is shared. Calling it twice is harmless."""
        if self._owns_client:
            self._client.close()

    # --- one step -----------------------------------------------------------------

    def _change(
        self,
        put: Texts,
        delete: Paths,
        expect: Expected,
        next_epoch: Callable[[int], int],
    ) -> int:
        """Set and delete paths in one step, with the epoch of ``next_epoch``."""
        gone = [records.check_path(path) for path in delete]
        new = {records.check_path(p): records.check_value(p, put[p]) for p in put}
        expected = {records.check_path(path): v for path, v in (expect or {}).items()}
        write = secrets.token_hex(8)
        with self._writing:
            is_current = False
            for _ in range(_TRIES):
                now = self._now()
                if now.write == write:  # landed after all, when we had given it up
                    return now.epoch
                try:
                    wanted = Owner(next_epoch(now.epoch), write, now.version)
                    self._check_expected(expected)
                except (FencedError, StateConflictError, StateLostError):
                    if is_current:
                        raise
                    # a new session may read from a server that is behind our own write
                    self._client.catch_up(self._base)
                    is_current = True
                    continue
                operations = self._way() if now.version < 0 else []
                if new or gone:
                    layout = self._layout_at(now)
                    operations += self._tree.operations(new, gone, layout)
                if self._step(now, wanted, operations):
                    return wanted.epoch
            raise self._restless()

    def _step(self, now: Owner, wanted: Owner, operations: Sequence[Op]) -> bool:
        """Change the nodes if ``~owner`` is still ``now``; False if it is not."""
        request = [*operations, *self._set(now, wanted)]
        self._check_size(sum(map(size_of, request)))
        layout, self._layout = self._layout, Layout(-1)
        try:
            self._client.change(request)
        except MovedError:
            self._client.catch_up(self._base)
            return False
        except OutcomeUnknownError as error:
            self._client.catch_up(self._base)
            found = self._now()
            if found.write == wanted.write:
                return True
            if found.version == now.version:
                return False
            raise self._client.silent(error) from None
        layout.follow(operations, _after(now))
        self._layout = layout
        return True

    def _layout_at(self, now: Owner) -> Layout:
        if self._layout.version != now.version:
            self._layout = Layout(now.version)
        return self._layout

    def _set(self, now: Owner, wanted: Owner) -> list[Op]:
        node = f"{self._base}/{OWNER}"
        if now.version < 0:
            return [Create(node, wanted.record())]
        if now.version >= _BEGUN_ANEW_AT:
            anew = Create(node, wanted.record())
            return [Check(node, now.version), Delete(node), anew]
        return [Set(node, wanted.record(), now.version)]

    def _now(self) -> Owner:
        node = self._client.node(f"{self._base}/{OWNER}")
        return Owner.of(node, self) if node else Owner()

    def _way(self) -> list[Op]:
        """Make the nodes that lead to this id, where they are missing."""
        nodes = [*nodes_above(self._base), self._base]
        existing = self._client.stats(nodes)
        self._check_apart(nodes[:-1])
        return [Create(node) for node in nodes if node not in existing]

    def _check_apart(self, above: Sequence[str]) -> None:
        """Refuse the first write of an id whose nodes would mix with another one's."""
        owned = self._client.stats(f"{at}/{n}" for at in above for n in (OWNER, OWNERS))
        inner = self._client.children([self._base]).get(self._base, [])
        below = self._client.children(f"{self._base}/{name}" for name in inner)
        within = [at for at, names in below.items() if {OWNER, OWNERS} & set(names)]
        if owned or within:
            other = min(owned).rpartition("/")[0] if owned else min(within)
            raise ConfigError.illegal(
                "tx.store",
                self.url,
                "a root that is neither inside an id of another root nor around one",
                f"The nodes of id '{self.id}' would be at {self._base}, and {other} is"
                " the node of another id. Nothing was written. Choose a root beside,"
                " such as zookeeper://host:2181/jobs and /more-jobs.",
            )

    def _check_expected(self, expected: Mapping[str, str | None]) -> None:
        found = self._tree.texts(expected) if expected else {}
        for path, value in expected.items():
            if found.get(path) != value:
                raise conflict(self, path)

    def _check_size(self, size: int) -> None:
        if size > MAX_REQUEST_BYTES:
            raise StateError(
                f"a write of id '{self.id}' takes {size:,} bytes, and a request to"
                f" ZooKeeper holds {MAX_REQUEST_BYTES:,}: enough for about 15,000"
                " partitions. Nothing was written. Set tx.store to a SQL database; the"
                " error of the first start there says how to go on",
                store=self.url,
                id=self.id,
            )

    # --- reading ------------------------------------------------------------------

    def _read_steadily(self, read: Callable[[], _Found]) -> dict[str, str]:
        for _ in range(_TRIES):
            before = self._now()
            found, seen = read()
            if self._now().version == before.version:
                with self._writing:
                    if self._layout.version <= before.version:
                        self._layout_at(before).learn(seen)
                return found
        raise self._restless()

    def _corrupted(self, path: str, reason: str) -> StateCorruptedError:
        return records.corrupted(reason, records.Place(path, self.url, self.id))

    def _restless(self) -> StateUnavailableError:
        return StateUnavailableError(
            f"the state of id '{self.id}' in {self.url} changed {_TRIES} times while"
            " it was read or written: does something else write it?",
            store=self.url,
            id=self.id,
        )


def _after(owner: Owner) -> int:
    return 0 if owner.version >= _BEGUN_ANEW_AT else owner.version + 1
