"""Operations of ZooKeeper requests, and a client with bounded waits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

from kafka_tx.errors import KafkaTxError, StateError, StateUnavailableError
from kafka_tx.logs import event_log
from kafka_tx.offsets.retry import BackOff
from kafka_tx.transactions.ownership.refusals import unpicklable
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings

MAX_REQUEST_BYTES = 900_000
"""Our limit for one request; servers take 1,048,575 bytes by default."""

_IN_FLIGHT = 1_000
"""Requests sent before the first answer is awaited; servers throttle beyond that."""

_LOST = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,  # and ConnectionClosedError
    kazoo.OperationTimeoutError,
    kazoo.SessionMovedError,
)
_MOVED = (
    kazoo.BadVersionError,
    kazoo.NoNodeError,
    kazoo.NodeExistsError,
    kazoo.NotEmptyError,
)
_SAME_FATE = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)

_BEGIN_ANEW_AFTER_S = 2.0
"""How long a session may be without a connection until another one is opened; also how
long that one may take."""

logger = event_log(__name__)


class MovedError(Exception):
    """A node differs from what the request expected; nothing was changed."""


class OutcomeUnknownError(Exception):
    """The connection was lost or silent; the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    Attributes:
        changed: The number of the change that wrote its data; later ones have higher
            numbers, in all nodes.
    """

    data: bytes
    version: int
    children: int
    changed: int


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node. Its parent exists."""

    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Set:
    """Set a node's data, if it has this version (-1: whatever version)."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children."""

    path: str


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail if the node has another version."""

    path: str
    version: int


Op = Create | Set | Delete | Check


def _add(transaction: Any, operation: Op) -> None:  # noqa: ANN401 - kazoo's request
    match operation:
        case Create(path, data):
            transaction.create(path, data)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path):
            transaction.delete(path)
        case Check(path, version):
            transaction.check(path, version)


def size_of(operation: Op) -> int:
    """Upper bound of the bytes that an operation takes in a request."""
    data = getattr(operation, "data", b"")
    return len(operation.path.encode()) + len(data) + 150


def in_requests(operations: Iterable[Op]) -> list[list[Op]]:
    """Cut operations into lists that fit one request each, in order."""
    requests: list[list[Op]] = [[]]
    size = 0
    for operation in operations:
        size += size_of(operation)
        if size > MAX_REQUEST_BYTES and requests[-1]:
            requests.append([])
            size = size_of(operation)
        requests[-1].append(operation)
    return requests


def nodes_above(path: str) -> list[str]:
    """``a/b/c`` gives ``a``, ``a/b``; with or without a slash before it."""
    parts = path.split("/")
    ways = ("/".join(parts[:length]) for length in range(1, len(parts)))
    return list(filter(None, ways))


class ZooKeeperClient:
    """One session, opened when first used; threads may share it.

    A read whose answer is lost with the connection is repeated; a change is reported as
    unknown. A session that expired is replaced. So is one without a connection, by one
    that has caught up: servers that were restored refuse each client that has seen
    later transactions than they have, and never say why. Every wait is bounded. Reads
    raise StateUnavailableError (no answer) and StateError (authentication, ACL).
    """

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._settings = settings
        self._kazoo: KazooClient | None = None
        self._closed = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ZooKeeperClient({self._settings.url!r})"

    def __reduce__(self) -> NoReturn:
        unpicklable(self)

    def nodes(self, paths: Iterable[str]) -> dict[str, Node]:
        """The nodes that exist, with their data."""
        found = self._read(paths, lambda client, path: client.get_async(path))
        return {
            path: Node(data or b"", stat.version, stat.numChildren, stat.mzxid)
            for path, (data, stat) in found.items()
        }

    def node(self, path: str) -> Node | None:
        """One node, or None."""
        return self.nodes([path]).get(path)

    def stats(self, paths: Iterable[str]) -> dict[str, int]:
        """Number of children of each node that exists."""
        found = self._read(paths, lambda client, path: client.exists_async(path))
        return {path: stat.numChildren for path, stat in found.items() if stat}

    def children(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Names of the children of each node that exists, ascending."""
        found = self._read(paths, lambda client, path: client.get_children_async(path))
        return {path: sorted(names) for path, names in found.items()}

    def catch_up(self, path: str) -> None:
        """Let later reads see all changes before this call."""
        self._read([path], lambda client, path: client.sync_async(path))

    def change(self, operations: Sequence[Op]) -> None:
        """Carry out all operations in one step, or none.

        Raises:
            MovedError: A node has another version, exists, or does not exist.
            OutcomeUnknownError: The connection was lost before the answer came.
            StateError: ZooKeeper refuses: ACL, quota, size.
        """
        client = self._client()
        transaction = client.transaction()
        for operation in operations:
            _add(transaction, operation)
        try:
            results = self._awaited(client, transaction.commit_async())
        except (*_LOST, KazooTimeoutError) as error:
            raise OutcomeUnknownError(repr(error)) from error
        except kazoo.KazooException as error:
            raise self._refused(error) from None
        failures = [r for r in results if isinstance(r, Exception)]
        for failure in failures:
            if isinstance(failure, _MOVED):
                raise MovedError(repr(failure)) from failure
            if not isinstance(failure, _SAME_FATE):
                raise self._refused(failure) from failure

    def close(self) -> None:
        """End the session. Calling it twice is harmless; a later call opens another.

        A read that is under way on another thread does not, and raises.
        """
        with self._lock:
            self._closed += 1
            client, self._kazoo = self._kazoo, None
            is_ours = self._pid == os.getpid()
        if client is not None and is_ours:
            _end(client)

    def silent(self, error: BaseException) -> StateUnavailableError:
        """The error for a ZooKeeper that does not answer."""
        reason = str(error) or type(error).__name__
        return StateUnavailableError(
            f"ZooKeeper {self._settings.hosts} does not answer within"
            f" {self._settings.connection_timeout_ms} ms ({reason}). Is it running, and"
            " reachable from this machine?",
            store=self._settings.url,
            hosts=self._settings.hosts,
        )

    @property
    def _retry_s(self) -> float:
        return self._settings.connection_timeout_ms / 1000

    def _read(
        self, paths: Iterable[str], start: Callable[[KazooClient, str], Any]
    ) -> dict[str, Any]:
        """Send many requests, then collect the answers; missing nodes are left out."""
        wanted = list(paths)
        found: dict[str, Any] = {}
        closed = self._closed
        for first in range(0, len(wanted), _IN_FLIGHT):
            some = wanted[first : first + _IN_FLIGHT]
            found.update(self._ask_again_if_lost(some, start, closed))
        return found

    def _ask(
        self,
        paths: Sequence[str],
        start: Callable[[KazooClient, str], Any],
        closed: int,
    ) -> dict[str, Any]:
        client = self._client(closed)
        waiting = [(path, start(client, path)) for path in paths]
        found = {}
        for path, answer in waiting:
            try:
                found[path] = self._awaited(client, answer)
            except kazoo.NoNodeError:
                continue
        return found

    def _awaited(self, client: KazooClient, answer: Any) -> Any:  # noqa: ANN401
        first_s = min(_BEGIN_ANEW_AFTER_S, self._retry_s)
        try:
            return answer.get(timeout=first_s)
        except KazooTimeoutError:
            if client.connected or not self._begin_anew(client):
                return answer.get(timeout=self._retry_s - first_s)
        raise kazoo.ConnectionLoss("another session is open now")

    def _begin_anew(self, old: KazooClient) -> bool:
        """Replace a session without a connection; whether another one is in use.

        The new one has seen nothing, so every server takes it. Once it has caught up
        with the leader, it reads nothing older than the old one did, unless ZooKeeper
        itself went back. Whoever reads compares, and stops if it did.
        """
        seen = old.last_zxid
        with self._lock:
            if self._kazoo is not old:
                return True
            try:
                new = self._connect(min(_BEGIN_ANEW_AFTER_S, self._retry_s))
            except StateError:
                return False
            try:
                new.sync_async("/").get(timeout=_BEGIN_ANEW_AFTER_S)
            except (kazoo.KazooException, KazooTimeoutError):
                _end_soon(new)
                return False
            if new.last_zxid < seen:
                logger.warning(
                    "ZooKeeper %s went back: its last transaction is %#x, and this"
                    " process has seen %#x. It was restored, emptied or replaced",
                    *(self._settings.hosts, new.last_zxid, seen),
                )
            self._kazoo = new
        _end_soon(old)
        return True

    def _ask_again_if_lost(
        self,
        paths: Sequence[str],
        start: Callable[[KazooClient, str], Any],
        closed: int,
    ) -> dict[str, Any]:
        settings = self._settings
        pauses = BackOff(
            initial_delay_ms=settings.retry_interval_ms,
            multiplier=2,
            max_delay_ms=settings.retry_interval_ceiling_ms,
            limit=settings.retry_times,
        )
        failures = 0
        while True:
            try:
                return self._ask(paths, start, closed)
            except KazooTimeoutError as error:
                raise self.silent(error) from None
            except _LOST as error:
                failures += 1
                self._check_open(closed)
                if not pauses.allows(failures):
                    raise self.silent(error) from None
            except kazoo.KazooException as error:
                raise self._refused(error) from None
            time.sleep(pauses.delay_ms(failures) / 1000)

    def _refused(self, error: Exception) -> KafkaTxError:
        if isinstance(error, kazoo.QuotaExceededError):
            text = (
                f"ZooKeeper {self._settings.hosts} refuses a write below"
                f" {self._settings.root}: a quota is used up. Nothing of it was"
                " written. Raise the quota (`setquota`, in ZooKeeper's own command"
                " line), then start again"
            )
        elif isinstance(error, kazoo.NoAuthError | kazoo.AuthFailedError):
            text = (
                f"ZooKeeper {self._settings.hosts} refuses access below"
                f" {self._settings.root}: another user made these nodes. Give the right"
                " auth=digest:user:password, or use another root"
            )
        else:
            text = f"ZooKeeper {self._settings.hosts} refuses: {error!r}"
        return StateError(text, store=self._settings.url, hosts=self._settings.hosts)

    def _check_open(self, closed: int | None) -> None:
        if closed not in (None, self._closed):
            raise StateUnavailableError(
                f"the client of ZooKeeper {self._settings.hosts} was closed while it"
                " read, so the read has no answer. Read again: that opens another"
                " session",
                store=self._settings.url,
                hosts=self._settings.hosts,
            )

    def _client(self, closed: int | None = None) -> KazooClient:
        """The session; for a read, how often it was ``closed`` when the read began."""
        with self._lock:
            self._check_open(closed)
            if self._kazoo is not None and self._pid != os.getpid():
                self._kazoo = None  # the parent's: its socket is not ours to use
            if self._kazoo is None:
                self._pid = os.getpid()
                self._kazoo = self._connect(self._retry_s)
            return self._kazoo

    def _connect(self, within_s: float) -> KazooClient:
        settings = self._settings
        self._check_tls()
        client = KazooClient(
            hosts=settings.hosts,
            timeout=settings.session_timeout_ms / 1000,
            auth_data=[("digest", settings.auth)] if settings.auth else None,
            default_acl=_rights(settings),
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=min(0.1, settings.retry_interval_ms / 1000),
                max_delay=settings.retry_interval_ceiling_ms / 1000,
            ),
            **(settings.tls.of_kazoo() if settings.tls else {}),
        )
        client.start_async().wait(within_s)
        if client.connected:
            return client
        _end_soon(client)
        self._check_tls(listen_s=1.0)
        over = " over TLS (is that its secure port?)" if settings.tls else ""
        raise self.silent(ConnectionError(f"no connection{over}"))

    def _check_tls(self, *, listen_s: float = 0.0) -> None:
        """Raise for settings with which the client would only retry for ever."""
        settings = self._settings
        if settings.tls is None:
            return
        refusal = settings.tls.refusal(settings.hosts, self._retry_s, listen_s=listen_s)
        if refusal:
            raise StateError(
                f"ZooKeeper {settings.hosts} refuses the TLS connection ({refusal})."
                " Is that its secure port, tls_ca the authority of its certificate, and"
                " tls_certificate one that it trusts?",
                store=settings.url,
                hosts=settings.hosts,
            )


def _rights(settings: ZooKeeperSettings) -> list[ACL]:
    """The ACL of new nodes: of the digest user, not of a client certificate, too."""
    if settings.acl == "open":
        return list(OPEN_ACL_UNSAFE)
    return [make_digest_acl(*settings.auth.split(":", 1), all=True)]


def _end_soon(client: KazooClient) -> None:
    """Wait for nothing: a silent server's time can be a whole session."""
    threading.Thread(target=_end, args=[client], daemon=True).start()


def _end(client: KazooClient) -> None:
    try:
        client.stop()
    except Exception as error:  # noqa: BLE001 - of a server that does not answer
        logger.info("a session of ZooKeeper did not end in time: %r", error)
    with suppress(Exception):
        client.close()
