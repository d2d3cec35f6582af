"""The store in ZooKeeper.

``<root>/<id>/<path>`` holds the value of a path, so that a root ``/transactional`` and
the paths of a topology give exactly Storm's layout. One node more, ``~owner``, holds
the epoch. Every write sets it too, at the version that was read: that fences, orders
the writers of one id, and tells a reader whether something changed while it read.

A write too large for one request is first kept whole in ``~journal-…`` nodes. The step
that names them in ``~owner`` makes it valid; after that whoever comes next, the writer
or another process, carries it out. Readers look through it until then.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import RLock

from kafka_tx.clock import SystemClock
from kafka_tx.config import check_id
from kafka_tx.errors import StateCorruptedError, StateUnavailableError
from kafka_tx.protocols import Expected, Paths, Texts
from kafka_tx.transactions import records
from kafka_tx.transactions.patience import Patience
from kafka_tx.transactions.refusals import conflict, fenced
from kafka_tx.transactions.state_of_id import StateOfId
from kafka_tx.zookeeper.client import (
    MovedError,
    OutcomeUnknownError,
    ZooKeeperClient,
)
from kafka_tx.zookeeper.journal import Journals
from kafka_tx.zookeeper.layout import Layout
from kafka_tx.zookeeper.operations import Check, Create, Delete, Op, Set, in_requests
from kafka_tx.zookeeper.owner import OWNER, Owner
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings
from kafka_tx.zookeeper.tree import Tree

_BEGUN_ANEW_AT = 2_000_000_000
"""The version at which ``~owner`` is made anew: ZooKeeper counts to 2**31 - 1 and goes
on below zero, where -1 would mean "whatever version"."""

_TRIES = 100
"""Each further try means that another writer got one step done meanwhile."""


_Found = tuple[dict[str, str], dict[str, list[str]]]


class ZooKeeperStore(StateOfId):
    """A Store in ZooKeeper: ``zookeeper://h1:2181,h2:2181/root``, or its settings.

    A value may be larger than a node; a write may be larger than a request. A lost
    connection is waited for, and whether the write arrived is then looked up. A session
    given as ``client`` is shared with others, and not closed here.
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
        self.patience = Patience(SystemClock(), self._settings.retry_for_ms)
        self._base = f"{self._settings.root}/{self.id}"
        self._client = client or ZooKeeperClient(self._settings)
        self._owns_client = client is None
        self._tree = Tree(self._client, self._base, self._corrupted)
        self._layout = Layout(-1)
        self._writing = RLock()
        self._journals = Journals(self._client, self._base, self._corrupted)

    def acquire(self) -> int:
        """Raise the stored epoch by one and return it.

        Raises:
            StateUnavailableError: ZooKeeper does not answer.
            StateCorruptedError: ``~owner`` cannot be read.
            StateError: ZooKeeper refuses: authentication, ACL.
        """
        write = secrets.token_hex(8)
        with self._writing:
            for _ in range(_TRIES):
                now = self._now()
                if now.journal:
                    self._carry_out(now)
                    continue
                wanted = Owner(now.epoch + 1, write, (), now.version)
                way = self._way() if now.version < 0 else []
                if self._step(now, wanted, way):
                    self._journals.sweep(self._check(_after(now)))
                    return wanted.epoch
            raise self._restless()

    def epoch(self) -> int:
        """The stored epoch; 0 when the id was never acquired.

        Raises: as ``acquire``.
        """
        self._client.catch_up(self._base)
        return self._now().epoch

    def read(self, prefix: str = "") -> dict[str, str]:
        """Every path that begins with ``prefix``, in path order: a snapshot.

        Raises: as ``acquire``; StateUnavailableError also when writes follow each other
            too fast to read between them.
        """
        found = self._look(lambda: self._tree.walk(prefix))
        return {path: found[path] for path in sorted(found) if path.startswith(prefix)}

    def get(self, path: str) -> str | None:
        """One value, or None.

        Raises: as ``read``, and ConfigError for an illegal path.
        """
        wanted = [records.check_path(path)]
        return self._look(lambda: (self._tree.texts(wanted), {})).get(path)

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """Set and delete all these paths in one step.

        Raises:
            ConfigError: A path or value that no store can hold.
            FencedError: The stored epoch is another than ``epoch``.
            StateConflictError: A path of ``expect`` has another value.
            StateUnavailableError: ZooKeeper does not answer; unknown whether the write
                arrived.
            StateCorruptedError: ``~owner`` cannot be read.
            StateError: ZooKeeper refuses: authentication, ACL.
        """
        gone = [records.check_path(path) for path in delete]
        new = {records.check_path(p): records.check_value(p, put[p]) for p in put}
        expected = {records.check_path(path): v for path, v in (expect or {}).items()}
        write = secrets.token_hex(8)
        with self._writing:
            for _ in range(_TRIES):
                now = self._now()
                if now.write == write:  # landed after all, when we had given it up
                    return
                if now.epoch != epoch or not epoch:
                    raise fenced(self, held=epoch, stored=now.epoch)
                if now.journal:
                    self._carry_out(now)
                    continue
                self._check_expected(expected)
                if self._try(now, write, new, gone):
                    return
            raise self._restless()

    def sinks(self, numbering: str) -> dict[str, int]:  # noqa: ARG002
        """None: no sink is kept in it."""
        return {}

    def close(self) -> None:
        """End the session, unless it is shared. Calling it twice is harmless."""
        if self._owns_client:
            self._client.close()

    # --- one step -----------------------------------------------------------------

    def _try(
        self, now: Owner, write: str, put: Mapping[str, str], gone: list[str]
    ) -> bool:
        wanted = replace(now, write=write)
        operations = self._tree.operations(put, gone, write, self._layout_at(now))
        if len(in_requests([*self._set(now, wanted), *operations])) == 1:
            return self._step(now, wanted, operations)
        wanted = replace(wanted, journal=self._journals.stage(write, put, gone))
        if not self._step(now, wanted, []):
            return False
        self._carry_out(replace(wanted, version=_after(now)))
        return True

    def _step(self, now: Owner, wanted: Owner, operations: Sequence[Op]) -> bool:
        """Change the nodes if ``~owner`` is still ``now``; False if it is not."""
        layout, self._layout = self._layout, Layout(-1)
        try:
            self._client.change([*operations, *self._set(now, wanted)])
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
            return [self._check(now.version), Delete(node), anew]
        return [Set(node, wanted.record(), now.version)]

    def _now(self) -> Owner:
        node = self._client.node(f"{self._base}/{OWNER}")
        return Owner.of(node, self) if node else Owner()

    def _check(self, version: int) -> Check:
        return Check(f"{self._base}/{OWNER}", version)

    def _way(self) -> list[Op]:
        """Make the nodes that lead to this id, where they are missing."""
        parts = self._base.split("/")
        nodes = ["/".join(parts[:length]) for length in range(2, len(parts) + 1)]
        existing = self._client.stats(nodes)
        return [Create(node) for node in nodes if node not in existing]

    def _check_expected(self, expected: Mapping[str, str | None]) -> None:
        try:
            found = self._tree.texts(expected) if expected else {}
        except MovedError:  # a text is being replaced, so it is not what was expected
            found = {}
        for path, value in expected.items():
            if found.get(path) != value:
                raise conflict(self, path)

    # --- reading ------------------------------------------------------------------

    def _look(self, read: Callable[[], _Found]) -> dict[str, str]:
        """Read with nothing changing in between; what is valid in a journal counts."""
        for _ in range(_TRIES):
            before = self._now()
            try:
                found, seen = read()
                put, gone = self._journals.load(before.journal)
            except MovedError as error:
                if self._now().version == before.version:
                    raise self._corrupted(str(error), "a part is missing") from None
                continue
            if self._now().version == before.version:
                self._remember(before, seen)
                kept = {path: v for path, v in found.items() if path not in gone}
                return {**kept, **put}
        raise self._restless()

    def _remember(self, now: Owner, seen: Mapping[str, list[str]]) -> None:
        with self._writing:
            if self._layout.version <= now.version:
                self._layout_at(now).learn(seen)

    # --- writes that are larger than a request ------------------------------------

    def _carry_out(self, owner: Owner) -> None:
        """Bring a valid write into the nodes. Any number of processes may do it."""
        check = self._check(owner.version)
        done = replace(owner, journal=())
        clean = [Delete(f"{self._base}/{name}") for name in owner.journal]
        for _ in range(_TRIES):
            layout, self._layout = self._layout_at(owner), Layout(-1)
            try:
                put, gone = self._journals.load(owner.journal)
                operations = self._tree.operations(put, gone, owner.write, layout)
                for some in in_requests(operations):
                    self._client.change([check, *some])
                self._client.change([*clean, *self._set(owner, done)])
            except (MovedError, OutcomeUnknownError):
                self._client.catch_up(self._base)
                if self._now().version != owner.version:
                    return
            else:
                layout.follow(operations, _after(owner))
                self._layout = layout
                return
        raise self._restless()

    def _corrupted(self, path: str, reason: str) -> StateCorruptedError:
        return records.corrupted(reason, path=path, store=self.url, id=self.id)

    def _restless(self) -> StateUnavailableError:
        return StateUnavailableError(
            f"the state of id '{self.id}' in {self.url} changed {_TRIES} times while"
            " it was read or written: does something else write it?",
            store=self.url,
            id=self.id,
        )


def _after(owner: Owner) -> int:
    """The version of ``~owner`` after the next write."""
    return 0 if owner.version >= _BEGUN_ANEW_AT else owner.version + 1
