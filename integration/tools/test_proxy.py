"""The proxy does to connections what a network would."""

from __future__ import annotations

import gc
import select
import socket
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from integration.cluster.proxied import ProxiedKafka, proxies_to
from integration.cluster.proxy import Proxy
from integration.cluster.records import Produce
from integration.cluster.running import running
from integration.cluster.waiting import HOST, wait_until
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.model import Topics

pytestmark = pytest.mark.all


@pytest.fixture
def echo() -> Iterator[Proxy]:
    """A proxy to a server that sends back what it reads."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=back, args=[connection], daemon=True).start()

        def back(connection: socket.socket) -> None:
            with connection:
                try:
                    while piece := connection.recv(1000):
                        connection.sendall(piece)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with proxies_to(server.getsockname()[1]) as (proxy,):
            yield proxy
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def connected(proxy):
    return socket.create_connection((HOST, proxy.port), timeout=10)


def echoed(connection, text=b"word"):
    connection.sendall(text)
    return connection.recv(1000)


def echoed_anew(proxy):
    with connected(proxy) as connection:
        return echoed(connection) or echoed(connection)


def test_a_healthy_proxy_forwards_both_ways(echo):
    with connected(echo) as connection:
        assert echoed(connection) == b"word"
        assert echo.connections == 1
    wait_until("the connection is over", lambda: echo.connections == 0)


def test_a_cut_resets_what_is_open_and_what_comes(echo):
    with connected(echo) as connection:
        echoed(connection)
        echo.cut()
        with pytest.raises(ConnectionError):
            echoed(connection)
    with pytest.raises(ConnectionError):
        echoed_anew(echo)
    assert echo.resets == 2

    echo.heal()
    with connected(echo) as connection:
        assert echoed(connection) == b"word"


def test_half_open_swallows_and_what_lost_a_byte_stays_silent(echo):
    with connected(echo) as old, connected(echo) as idle:
        echoed(old)
        echoed(idle)
        echo.half_open()
        old.settimeout(0.5)
        with pytest.raises(TimeoutError):
            echoed(old)
        wait_until("the word is swallowed", lambda: echo.swallowed == 4)

        echo.heal()
        with pytest.raises(TimeoutError):
            echoed(old)
        assert echoed(idle) == b"word"
        with connected(echo) as new:
            assert echoed(new) == b"word"


def test_a_connection_that_was_reset_while_it_was_silent_is_over(echo):
    """Both sides had ended already, and neither was told."""
    echo.half_open()
    with connected(echo) as connection:
        connection.sendall(b"word")
        connection.shutdown(socket.SHUT_WR)
        wait_until("the word is swallowed", lambda: echo.swallowed == 4)
        echo.cut()
        wait_until("the connection is over", lambda: echo.connections == 0)
    echo.cut()


def test_postgresql_through_a_proxy(postgresql_server):
    with proxies_to(postgresql_server.port) as (proxy,):
        engine = create_engine(postgresql_server.url(proxy=proxy))
        try:
            with engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1
                proxy.cut()
                with pytest.raises(OperationalError):
                    connection.scalar(text("SELECT 1"))
            proxy.heal()
            with engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1
        finally:
            engine.dispose()


def test_a_paused_postgresql_is_silent_and_goes_on(postgresql_server):
    engine = create_engine(postgresql_server.url())
    try:
        with engine.connect() as connection:
            connection.scalar(text("SELECT 1"))
            socket_of_server = connection.connection.fileno()
            postgresql_server.pause()
            try:
                connection.connection.pgconn.send_query(b"SELECT 1")
                assert not select.select([socket_of_server], [], [], 0.5)[0]
            finally:
                postgresql_server.unpause()
            assert select.select([socket_of_server], [], [], 30)[0]
            connection.invalidate()
    finally:
        engine.dispose()


def test_clients_of_brokers_stay_on_their_proxies():
    with running(ProxiedKafka(brokers=2)) as kafka:
        kafka.cluster.create_topic("orders", 2)
        Produce(kafka.bootstrap_servers)("orders", ["a", "b"])
        view = KafkaClusterView({"bootstrap.servers": kafka.bootstrap_servers})
        try:
            assert set(view.topics(Topics(("orders",)))) == {"orders"}
            assert any(proxy.connections for proxy in kafka.proxies.values())
        finally:
            view.close()


def close_with_more_than_is_read() -> None:
    """One side has ended, and what is left for the other one is never read."""
    with socket.create_server((HOST, 0)) as server:
        with proxies_to(server.getsockname()[1]) as (proxy,):
            reader = connected(proxy)
            writer, _ = server.accept()
            writer.settimeout(2)
            with writer, pytest.raises(TimeoutError):
                writer.sendall(b"x" * 20_000_000)
            reader.shutdown(socket.SHUT_WR)
            wait_until("the pair is closed", lambda: proxy.connections == 0)
        reader.close()


def test_who_reads_nothing_leaves_no_socket_behind(recwarn):
    close_with_more_than_is_read()
    gc.collect()

    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning)]
