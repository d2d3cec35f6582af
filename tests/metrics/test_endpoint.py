"""The endpoint answers whoever asks, and says clearly why it cannot be had."""

import gc
import gzip
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
import requests
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kafka_tx.errors import ConfigError
from kafka_tx.metrics import LOOPBACK, Endpoint, Guest, MetricsRegistry, serve
from kafka_tx.metrics import endpoint as endpoint_module
from kafka_tx.metrics.connections import MOST_CONNECTIONS
from kafka_tx.metrics.endpoint import EVERY_ADDRESS


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
    answer = requests.get(endpoint.url, timeout=5)
    return {
        sample.labels["id"]: sample.value
        for family in parse_text(answer.text)
        for sample in family.samples
        if sample.name == "kafka_tx_replays_total"
    }


def test_metrics_are_served_as_text(endpoint: Endpoint) -> None:
    answer = requests.get(endpoint.url, timeout=5)

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert replays(endpoint) == {"job": 3}


def test_metrics_are_served_as_openmetrics_to_those_who_ask(endpoint: Endpoint) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0, */*;q=0.1"}

    answer = requests.get(endpoint.url, headers=accept, timeout=5)

    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(answer.text)}
    assert "kafka_tx_replays" in names


def test_metrics_are_compressed_for_those_who_accept_it(endpoint: Endpoint) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, endpoint.port, timeout=5)
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
    [("/-/healthy", 200), ("/metrics?x=1", 200), ("/", 404), ("/metricsx", 404)],
)
def test_other_paths(endpoint: Endpoint, path: str, status: int) -> None:
    url = f"http://{LOOPBACK}:{endpoint.port}{path}"

    assert requests.get(url, timeout=5).status_code == status
    head = requests.head(url, timeout=5)
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
        patch.setattr(registry, "samples", fail)
        assert requests.get(endpoint.url, timeout=5).status_code == 500

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
        requests.get(second.url, timeout=5)
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
        names = [thread.name for thread in threading.enumerate()]
        answering = [name for name in names if "process_request_thread" in name]
        assert len(answering) <= MOST_CONNECTIONS + 1


def test_a_guest_is_shown_by_every_endpoint(
    endpoint: Endpoint, registry: MetricsRegistry
) -> None:
    other = MetricsRegistry()
    other.add("kafka_tx_replays_total", 8, id="guest")

    guest = Guest(other)

    with serve(registry, 0, LOOPBACK) as later:
        assert replays(later) == replays(endpoint) == {"job": 3, "guest": 8}
    guest.close()
    guest.close()  # twice is harmless
    assert replays(endpoint) == {"job": 3}


def test_a_guest_that_nobody_holds_is_forgotten(endpoint: Endpoint) -> None:
    guest = Guest(MetricsRegistry())
    gc.collect()

    assert replays(endpoint) == {"job": 3}
    guest.close()


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
