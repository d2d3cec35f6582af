"""The endpoint answers whoever asks, and says clearly why it cannot be had."""

import gc
import gzip
import http.client
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
import requests
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kafka_tx.errors import ConfigError
from kafka_tx.metrics import (
    LOOPBACK,
    Endpoint,
    Guest,
    MetricsRegistry,
    connections,
    serve,
)
from kafka_tx.metrics import endpoint as endpoint_module
from kafka_tx.metrics.connections import MOST_CONNECTIONS
from kafka_tx.metrics.endpoint import EVERY_ADDRESS
from kafka_tx.model import LogBounds, TopicPartition
from tests.metrics.facts import batch


@pytest.fixture(autouse=True)
def _no_guests_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_guests", [])


@pytest.fixture
def registry() -> MetricsRegistry:
    found = MetricsRegistry()
    found.add("kafka_tx_replays_total", 3, id="job")
    return found


@pytest.fixture
def endpoint(registry: MetricsRegistry) -> Iterator[Endpoint]:
    with serve(registry, port=0, address=LOOPBACK) as found:
        yield found


def replays(endpoint: Endpoint) -> dict[str, float]:
    answer = requests.get(endpoint.url, timeout=60)
    return {
        sample.labels["id"]: sample.value
        for family in parse_text(answer.text)
        for sample in family.samples
        if sample.name == "kafka_tx_replays_total"
    }


def test_metrics_are_served_as_text(endpoint: Endpoint) -> None:
    answer = requests.get(endpoint.url, timeout=60)

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert replays(endpoint) == {"job": 3}


def test_metrics_are_served_as_openmetrics_to_those_who_ask(endpoint: Endpoint) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0, */*;q=0.1"}

    answer = requests.get(endpoint.url, headers=accept, timeout=60)

    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(answer.text)}
    assert "kafka_tx_replays" in names


def test_metrics_are_compressed_for_those_who_accept_it(endpoint: Endpoint) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, endpoint.port, timeout=60)
    with closing(connection):
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()

        assert answer.headers["Content-Encoding"] == "gzip"
        assert b"kafka_tx_replays_total" in gzip.decompress(answer.read())


def test_each_scrape_shows_the_present(
    endpoint: Endpoint, registry: MetricsRegistry
) -> None:
    before = replays(endpoint)

    registry.add("kafka_tx_replays_total", id="job")

    assert (before, replays(endpoint)) == ({"job": 3}, {"job": 4})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/-/healthy", 200),
        ("/health", 200),
        ("/health?hang=60", 200),
        ("/health?hang=-1", 400),
        ("/health?hang=1m", 400),
        (f"/health?hang={'9' * 5_000}", 400),
        ("/metrics?x=1", 200),
        ("/", 200),
        ("/api/status", 200),
        ("/x", 404),
        ("/metricsx", 404),
    ],
)
def test_other_paths(endpoint: Endpoint, path: str, status: int) -> None:
    url = f"http://{LOOPBACK}:{endpoint.port}{path}"

    assert requests.get(url, timeout=60).status_code == status
    head = requests.head(url, timeout=60)
    assert (head.status_code, head.content) == (status, b"")


def test_a_client_that_says_nothing_blocks_nobody(endpoint: Endpoint) -> None:
    with socket.create_connection((LOOPBACK, endpoint.port)):
        assert replays(endpoint) == {"job": 3}


def test_a_scrape_that_fails_is_an_error_answer_and_the_next_one_works(
    endpoint: Endpoint, registry: MetricsRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(registry, "changes", fail)
        assert requests.get(endpoint.url, timeout=60).status_code == 500

    assert replays(endpoint) == {"job": 3}


def test_a_second_call_for_the_port_shares_it(
    endpoint: Endpoint, registry: MetricsRegistry
) -> None:
    other = MetricsRegistry()
    other.add("kafka_tx_replays_total", 8, id="other")

    with serve(other, endpoint.port, LOOPBACK) as second:
        assert second.port == endpoint.port
        assert replays(endpoint) == {"job": 3, "other": 8}

    assert replays(endpoint) == {"job": 3}


def test_the_port_is_free_again_when_the_last_holder_closed(
    registry: MetricsRegistry,
) -> None:
    first = serve(registry, 0, LOOPBACK)
    second = serve(registry, first.port, LOOPBACK)

    first.close()
    first.close()  # twice is harmless
    assert replays(second) == {"job": 3}
    second.close()

    with pytest.raises(requests.ConnectionError):
        requests.get(second.url, timeout=60)
    with serve(registry, second.port, LOOPBACK) as third:
        assert replays(third) == {"job": 3}


def test_whoever_listens_on_all_addresses_is_shared_by_a_single_one(
    registry: MetricsRegistry,
) -> None:
    with serve(registry, 0, EVERY_ADDRESS) as everywhere:
        assert everywhere.url == f"http://localhost:{everywhere.port}/metrics"
        with serve(registry, everywhere.port, LOOPBACK) as here:
            assert replays(here) == {"job": 3}


def test_only_this_machine_is_let_in_unless_asked_otherwise(
    registry: MetricsRegistry,
) -> None:
    with serve(registry, 0) as endpoint:
        assert endpoint.url == f"http://{LOOPBACK}:{endpoint.port}/metrics"
        with socket.socket() as elsewhere, pytest.raises(ConnectionRefusedError):
            elsewhere.connect(("127.0.0.2", endpoint.port))


def test_those_who_say_nothing_keep_nobody_out(endpoint: Endpoint) -> None:
    where = (LOOPBACK, endpoint.port)
    with ExitStack() as silent:
        for _ in range(3 * MOST_CONNECTIONS):
            silent.enter_context(closing(socket.create_connection(where)))

        assert replays(endpoint) == {"job": 3}
        until = time.monotonic() + 60  # a thread ends a moment after its connection
        while answering() > MOST_CONNECTIONS + 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert answering() <= MOST_CONNECTIONS + 1


def answering() -> int:
    """The threads that hold a connection."""
    names = [thread.name for thread in threading.enumerate()]
    return sum("process_request_thread" in name for name in names)


def test_those_who_ask_and_read_nothing_hold_nobody_up(
    endpoint: Endpoint, registry: MetricsRegistry
) -> None:
    many = dict.fromkeys((TopicPartition("orders", n) for n in range(5_000)), 10)
    bounds = dict.fromkeys(many, LogBounds(0, 20))
    registry.record_commit(batch(starts=many, committed=many, bounds=bounds))
    asking = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def answered_s() -> float:
        began = time.monotonic()
        assert requests.get(endpoint.url, timeout=50).status_code == 200
        return time.monotonic() - began

    with ExitStack() as slow:
        for _ in range(12 * MOST_CONNECTIONS):
            client = socket.create_connection((LOOPBACK, endpoint.port))
            slow.enter_context(closing(client)).sendall(asking)

        assert min(answered_s() for _ in range(3)) < 5


def test_a_guest_is_shown_once_by_the_port_that_was_opened_first(
    endpoint: Endpoint, registry: MetricsRegistry
) -> None:
    """Two ports would look like two processes that run it."""
    other = MetricsRegistry()
    other.add("kafka_tx_replays_total", 8, id="guest")

    guest = Guest(other)

    with serve(registry, 0) as later:
        assert replays(endpoint) == {"job": 3, "guest": 8}
        assert replays(later) == {"job": 3}
        endpoint.close()
        assert replays(later) == {"job": 3, "guest": 8}
        guest.close()
        guest.close()  # twice is harmless
        assert replays(later) == {"job": 3}


def test_a_guest_that_nobody_holds_is_forgotten(endpoint: Endpoint) -> None:
    guest = Guest(MetricsRegistry())
    gc.collect()

    assert replays(endpoint) == {"job": 3}
    guest.close()


def test_an_ipv6_address_has_a_url(
    registry: MetricsRegistry, ipv6_loopback: str
) -> None:
    with serve(registry, 0, ipv6_loopback) as endpoint:
        assert endpoint.url == f"http://[::1]:{endpoint.port}/metrics"
        assert replays(endpoint) == {"job": 3}


def test_a_name_with_addresses_of_both_kinds_is_listened_on_where_the_jvm_does(
    registry: MetricsRegistry, replace_in: Callable[..., None]
) -> None:
    kinds = [(socket.AF_INET6, ("::1", 0)), (socket.AF_INET, (LOOPBACK, 0))]
    replace_in(connections, "socket", getaddrinfo=lambda *_, **__: kinds)

    with serve(registry, 0, "localhost") as endpoint:
        assert endpoint._server.server_address == (LOOPBACK, endpoint.port)


def test_zero_takes_a_free_port_each_time(registry: MetricsRegistry) -> None:
    with serve(registry, 0, LOOPBACK) as one, serve(registry, 0, LOOPBACK) as two:
        assert len({0, one.port, two.port}) == 3


def test_a_taken_port_is_named_with_what_to_do(registry: MetricsRegistry) -> None:
    with socket.create_server((LOOPBACK, 0)) as stranger:
        port = stranger.getsockname()[1]

        with pytest.raises(ConfigError) as refusal:
            serve(registry, port, LOOPBACK)

    text = str(refusal.value)
    assert text.startswith(f"[KAFKA_TX_CONFIG] option 'metrics port' is {port};")
    assert "It is taken: give this job a port of its own" in text
    assert f"ss -ltnp 'sport = :{port}'" in text


def test_a_port_that_cannot_exist_is_refused(registry: MetricsRegistry) -> None:
    with pytest.raises(ConfigError, match=r"is 65536; legal: 0 \(any free port\)"):
        serve(registry, 65536, LOOPBACK)


@pytest.mark.parametrize("address", ["192.0.2.1", "no such host"])
def test_an_address_of_another_machine_is_refused(
    registry: MetricsRegistry, address: str
) -> None:
    with pytest.raises(ConfigError, match=r"'metrics address' is .*; legal: an"):
        serve(registry, 0, address)


def test_a_refused_call_leaves_nothing_behind(registry: MetricsRegistry) -> None:
    with socket.create_server((LOOPBACK, 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(ConfigError):
            serve(registry, port, LOOPBACK)

    with serve(registry, port, LOOPBACK) as endpoint:
        assert replays(endpoint) == {"job": 3}


def asked(
    endpoint: Endpoint, path: str, host: str, method: str = "GET"
) -> tuple[int, bytes]:
    """The answer to a browser whose address bar has this host."""
    connection = http.client.HTTPConnection(LOOPBACK, endpoint.port, timeout=60)
    with closing(connection):
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("host", ["localhost:9400", "127.0.0.1", "[::1]:8080"])
@pytest.mark.parametrize("path", ["/", "/api/status"])
def test_this_machine_sees_the_page(endpoint: Endpoint, path: str, host: str) -> None:
    assert asked(endpoint, path, host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "::", "["]
)
@pytest.mark.parametrize("path", ["/", "/api/status"])
def test_a_strangers_name_that_leads_here_sees_no_page(
    endpoint: Endpoint, path: str, host: str
) -> None:
    status, text = asked(endpoint, path, host)

    assert status == 403
    assert b"ssh -L" in text
    assert b"status_page=True" in text


def test_a_request_for_half_an_address_is_answered(endpoint: Endpoint) -> None:
    assert asked(endpoint, "http://[::1/metrics", "localhost")[0] == 404


def test_other_machines_see_metrics_and_see_the_page_only_if_asked(
    registry: MetricsRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = lambda host: host == "127.0.0.2"  # noqa: E731 - this machine is elsewhere
    monkeypatch.setattr(endpoint_module, "_is_loopback", away)
    with serve(registry, 0) as closed:
        assert asked(closed, "/metrics", "driver:9400")[0] == 200
        assert asked(closed, "/", "localhost")[0] == 403
    with serve(registry, 0, shows_page=True) as opened:
        assert asked(opened, "/", "driver:9400")[0] == 200
        assert asked(opened, "/api/status", "driver:9400")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/status", "/metrics"])
def test_no_request_changes_anything(
    endpoint: Endpoint, path: str, method: str
) -> None:
    assert asked(endpoint, path, "localhost", method)[0] == 501


def test_the_page_needs_nothing_from_elsewhere(endpoint: Endpoint) -> None:
    answer = requests.get(f"http://{LOOPBACK}:{endpoint.port}/", timeout=60)

    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert not re.findall(r"https?://(?!www.w3.org)", answer.text)
    assert "innerHTML" not in answer.text
