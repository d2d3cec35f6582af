"""The HTTP endpoint that Prometheus scrapes, in the user's own process (the driver).

prometheus_client writes what stands above each metric (name, kind, help, unit) in the
format that was asked for; the lines below it are the same in both formats and are
written here. The 45,000 lines of 5,000 partitions take half a second there, and a
twentieth of that here.
"""

from __future__ import annotations

import errno
import gzip
import logging
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import accumulate
from math import inf
from socketserver import TCPServer
from threading import Lock, Thread
from urllib.parse import urlsplit
from weakref import ref

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kafka_tx.errors import ConfigError
from kafka_tx.metrics.connections import BoundedConnections
from kafka_tx.metrics.metric import Metric, MetricKind
from kafka_tx.metrics.registry import MetricsRegistry, merged
from kafka_tx.metrics.series import Key, Samples, family

_END = b"# EOF\n"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_KEPT_LABELS = 200_000

_Encode = Callable[[Collector], bytes]
_labels: defaultdict[tuple[str, ...], dict[Key, str]] = defaultdict(dict)
"""Label sets as text; they hardly ever change from one scrape to the next."""


def exposition(registries: Sequence[MetricsRegistry], accept: str) -> tuple[bytes, str]:
    """All metrics of these registries, and the content type of the text.

    Args:
        registries: Where two hold the same label set, the later one's value is shown.
        accept: The header ``Accept`` of the request; empty for none.
    """
    encode, content_type = choose_encoder(accept)
    if sum(map(len, _labels.values())) > _KEPT_LABELS:
        _labels.clear()
    parts = [_block(encode, *each) for each in merged(registries)]
    if encode(_Families(())) == _END:
        parts.append(_END)
    return b"".join(parts), content_type


def _block(encode: _Encode, metric: Metric, samples: Samples) -> bytes:
    head = encode(_Families((family(metric, {}),))).removesuffix(_END)
    return head + "".join(_LINES[metric.kind](metric, samples)).encode()


def _numbers(metric: Metric, samples: Samples) -> Iterable[str]:
    name, names = metric.name, metric.label_names
    known = _labels[names]
    for key in samples.keys() - known.keys():
        _labels_of(names, key)
    return [
        # repr is what Prometheus reads, but for numbers that are none
        f"{name}{known[key]}{value!r}\n"
        if -inf < value < inf
        else f"{name}{known[key]}{_in_go(value)}\n"
        for key, (value,) in samples.items()
    ]


def _histograms(metric: Metric, samples: Samples) -> Iterator[str]:
    name, names = metric.name, metric.label_names
    bounds = [*map(_in_go, metric.buckets), "+Inf"]
    for key, (*counts, total) in samples.items():
        passed = 0.0
        for bound, passed in zip(bounds, accumulate(counts), strict=True):
            labels = _labels_of((*names, "le"), (*key, bound))
            yield f"{name}_bucket{labels}{passed!r}\n"
        labels = _labels_of(names, key)
        yield f"{name}_count{labels}{passed!r}\n"
        yield f"{name}_sum{labels}{_in_go(total)}\n"


def _labels_of(names: tuple[str, ...], key: Key) -> str:
    known = _labels[names]
    text = known.get(key)
    if text is None:
        pairs = sorted(zip(names, key, strict=True))  # as prometheus_client does
        inside = ",".join(f'{name}="{v.translate(_ESCAPES)}"' for name, v in pairs)
        text = known[key] = f"{{{inside}}} " if inside else " "
    return text


def _in_go(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


_LINES: Mapping[MetricKind, Callable[[Metric, Samples], Iterable[str]]] = {
    MetricKind.COUNTER: _numbers,
    MetricKind.GAUGE: _numbers,
    MetricKind.INFO: _numbers,
    MetricKind.HISTOGRAM: _histograms,
}


@dataclass(frozen=True)
class _Families(Collector):
    """What an encoder asks."""

    families: tuple[Family, ...]

    def collect(self) -> Iterator[Family]:
        return iter(self.families)


DEFAULT_PORT = 9400
LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - where somebody asks for it

logger = logging.getLogger(__name__)

_listening: dict[tuple[str, int], _Server] = {}  # by address and real port
_listening_lock = Lock()  # also guards who is shown
_guests: list[ref[MetricsRegistry]] = []


class Endpoint:
    """One user's hold on an endpoint; several share one port of a process.

    Answers on a daemon thread of its own until the last holder closes it, also while
    no query runs: ``/metrics`` in the text format or, if the client accepts it, in
    OpenMetrics; ``/-/healthy`` with 200.
    """

    def __init__(self, server: _Server, registry: MetricsRegistry) -> None:
        self._server = server
        self._registry = registry
        self._is_open = True

    @property
    def port(self) -> int:
        """The port it listens on, also when 0 was asked for."""
        return self._server.server_port

    @property
    def url(self) -> str:
        """Where this machine finds the metrics."""
        return f"http://{self._server.reachable_host}:{self.port}/metrics"

    def close(self) -> None:
        """Let go; the last holder's close frees the port. Twice is harmless."""
        with _listening_lock:
            if not self._is_open:
                return
            self._is_open = False
            self._server.holders.remove(self._registry)
            if self._server.holders:
                return
            del _listening[self._server.address, self.port]
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Guest:
    """A registry that every endpoint of this process shows, until it is closed.

    For those who were not asked to serve one themselves: whoever serves metrics here,
    now or later, shows them too. A registry that nobody else holds is shown no more.
    """

    port = None

    def __init__(self, registry: MetricsRegistry) -> None:
        self._ref = ref(registry)
        with _listening_lock:
            _guests[:] = [each for each in _guests if each() is not None]
            _guests.append(self._ref)

    def close(self) -> None:
        """Be shown no more. Twice is harmless."""
        with _listening_lock:
            _guests[:] = [each for each in _guests if each is not self._ref]


def serve(
    registry: MetricsRegistry, port: int = DEFAULT_PORT, address: str = LOOPBACK
) -> Endpoint:
    """Serve a registry over HTTP from this process.

    A second call for a port that this process already serves shares it: the endpoint
    then shows both registries (the same one twice is shown once).

    Args:
        registry: What to show.
        port: 0 takes any free port.
        address: Address to listen on. By default only this machine itself can ask;
            ``0.0.0.0`` lets everybody in who reaches the port.

    Raises:
        ConfigError: The port is taken by another process, is not allowed for this
            user, or the address is not this machine's.
    """
    with _listening_lock:
        server = _listening.get((address, port)) or _listening.get(
            (EVERY_ADDRESS, port)
        )
        if server is None:
            server = _listen(port, address)
            _listening[address, server.server_port] = server
        server.holders.append(registry)
        return Endpoint(server, registry)


def _listen(port: int, address: str) -> _Server:
    if not 0 <= port <= 65535:
        raise ConfigError.illegal("metrics port", port, "0 (any free port) to 65535")
    try:
        server = _Server(port, address)
    except OSError as error:
        raise _refused(port, address, error) from error
    Thread(
        target=server.serve_forever,
        kwargs={"poll_interval": 0.1},
        name=f"kafka-tx-metrics-{server.server_port}",
        daemon=True,
    ).start()
    return server


def _refused(port: int, address: str, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError.illegal(
            "metrics port",
            port,
            f"a port that nothing else listens on at {address}, or 0 for any free one",
            "It is taken: give this job a port of its own and add it to the scrape"
            f" targets, or find out who has it with: ss -ltnp 'sport = :{port}'",
        )
    if error.errno == errno.EACCES:
        return ConfigError.illegal(
            "metrics port", port, "a port this user may open: 1024 and above, or 0"
        )
    return ConfigError.illegal(
        "metrics address",
        address,
        f"an address of this machine, or {EVERY_ADDRESS} for all of them",
        f"The system says: {error}",
    )


class _Server(BoundedConnections, HTTPServer):
    """The listening socket and whose metrics it shows.

    ``holders`` has one entry for every open Endpoint; guarded by ``_listening_lock``.
    """

    def __init__(self, port: int, address: str) -> None:
        self.address = address
        self.holders: list[MetricsRegistry] = []
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        self.address_family = found[0][0]
        super().__init__((address, port), _Handler)

    @property
    def reachable_host(self) -> str:
        """A host name under which this machine itself reaches the endpoint."""
        return "localhost" if self.address in (EVERY_ADDRESS, "::") else self.address

    def server_bind(self) -> None:
        """Bind without asking DNS for a name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name = self.address
        self.server_port = int(self.server_address[1])

    def shown(self) -> list[MetricsRegistry]:
        """Whose metrics a scrape sees now."""
        with _listening_lock:
            guests = [each for guest in _guests if (each := guest()) is not None]
            return list(dict.fromkeys([*guests, *self.holders]))


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    timeout = 10  # seconds for a client that connects and says nothing
    server_version = "kafka_tx"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a GET or HEAD request."""
        path = urlsplit(self.path).path
        if path == "/metrics":
            self._metrics()
        elif path == "/-/healthy":
            self._answer(200, b"kafka_tx is healthy\n")
        else:
            self._answer(404, b"not here; see /metrics and /-/healthy\n")

    do_HEAD = do_GET  # noqa: N815 - the name http.server calls

    def _metrics(self) -> None:
        accept = self.headers.get("Accept") or ""
        try:
            text, content_type = exposition(self.server.shown(), accept)
        except Exception:
            logger.exception("metrics could not be turned into text")
            self._answer(500, b"metrics could not be turned into text; see the log\n")
            return
        encoding = self.headers.get("Accept-Encoding") or ""
        if any(each.split(";")[0].strip() == "gzip" for each in encoding.split(",")):
            compressed = gzip.compress(text, compresslevel=1)
            self._answer(200, compressed, content_type, {"Content-Encoding": "gzip"})
        else:
            self._answer(200, text, content_type)

    def _answer(
        self,
        status: int,
        body: bytes,
        content_type: str = "text/plain; charset=utf-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes go to the debug log only."""
        logger.debug(format, *args)
