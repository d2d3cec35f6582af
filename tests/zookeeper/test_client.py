import socket
from types import SimpleNamespace

import pytest
from kazoo.exceptions import ConnectionClosedError

from kafka_tx.errors import BrokerUnavailableError, StateUnavailableError
from kafka_tx.model import Topics
from kafka_tx.zookeeper.brokers import ZooKeeperTopics
from kafka_tx.zookeeper.client import (
    MAX_REQUEST_BYTES,
    Create,
    Delete,
    Op,
    Set,
    ZooKeeperClient,
    in_requests,
    size_of,
)
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings
from kafka_tx.zookeeper.store import ZooKeeperStore
from tests.prompt_errors import prompt_error

SHORT_TIMEOUTS = "connection_timeout_ms=500&session_timeout_ms=5000"


@pytest.fixture(params=["closed", "silent"])
def address(request):
    """A port that nobody listens at, or where nobody answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "silent":
            listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_zookeeper_that_is_not_there_is_named_in_bounded_time(address):
    url = f"zookeeper://{address}/a?auth=digest:me:s3cret&{SHORT_TIMEOUTS}"
    store = ZooKeeperStore(url, "orders")

    error = prompt_error(store.acquire, 4, StateUnavailableError, f"{address} does not")

    assert error.retryable
    assert "s3cret" not in str(error) + repr(store)
    store.close()


def test_a_registry_that_is_not_there_is_a_broker_that_is_not_there(address):
    settings = ZooKeeperSettings.parse(f"zookeeper://{address}/a?{SHORT_TIMEOUTS}")
    registry = ZooKeeperTopics(settings)

    with pytest.raises(BrokerUnavailableError, match=address):
        registry.topics(Topics(("orders",)))

    registry.close()


def test_operations_are_cut_in_order_into_requests_that_fit():
    operations: list[Op] = [Create(f"/a/{n}", b"x" * 50_000) for n in range(100)]
    operations += [Set("/b", b"y" * 899_000), Delete("/c")]

    requests = in_requests(operations)

    assert [operation for some in requests for operation in some] == operations
    assert all(sum(map(size_of, some)) <= MAX_REQUEST_BYTES for some in requests)
    assert len(requests) == 7


def test_no_operations_are_one_empty_request():
    assert in_requests([]) == [[]]


class Sessions:
    """Opened by a client; each answer calls ``answers``."""

    def __init__(self, monkeypatch, answers=lambda client: None, more=""):
        url = f"zookeeper://nowhere:2181/a?{SHORT_TIMEOUTS}{more}"
        self.client = ZooKeeperClient(ZooKeeperSettings.parse(url))
        self.opened = 0
        self._answers = answers
        monkeypatch.setattr(self.client, "_connect", self._connect)

    def _connect(self, _within_s):
        self.opened += 1
        answer = SimpleNamespace(get=self._get)
        return SimpleNamespace(
            get_async=lambda _path: answer, stop=int, close=int, connected=True
        )

    def _get(self, timeout):
        self._answers(self.client)
        return b"", SimpleNamespace(version=0, numChildren=0, mzxid=0)


CLOSED = "nowhere:2181 was closed while it read"


@pytest.mark.parametrize("more", ["", "&retry_times=0"])
def test_who_is_closed_in_the_middle_of_a_read_opens_no_other_session(
    monkeypatch, more
):
    def closed(client):
        client.close()
        raise ConnectionClosedError

    sessions = Sessions(monkeypatch, closed, more)

    with pytest.raises(StateUnavailableError, match=CLOSED):
        sessions.client.nodes(["/a"])

    assert sessions.opened == 1


def test_who_is_closed_between_two_parts_of_a_read_opens_no_other_session(monkeypatch):
    """Requests are sent by the thousand."""
    sessions = Sessions(monkeypatch, ZooKeeperClient.close)

    with pytest.raises(StateUnavailableError, match=CLOSED):
        sessions.client.nodes(f"/{n}" for n in range(1_001))

    assert sessions.opened == 1


def test_who_is_closed_just_before_a_read_opens_its_session_opens_none(monkeypatch):
    sessions = Sessions(monkeypatch)
    lock = sessions.client._lock

    class Overtaken:
        def __enter__(self):
            monkeypatch.setattr(sessions.client, "_lock", lock)
            sessions.client.close()
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    monkeypatch.setattr(sessions.client, "_lock", Overtaken())

    with pytest.raises(StateUnavailableError, match=CLOSED):
        sessions.client.nodes(["/a"])

    assert sessions.opened == 0
    assert sessions.client.nodes(["/a"])
