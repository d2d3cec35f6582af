"""The HTTP endpoint in the user's own process (the driver): metrics and status page."""

from __future__ import annotations

import errno
import gzip
import json
import re
from collections.abc import Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from ipaddress import ip_address
from socketserver import TCPServer
from threading import Event, Lock, Thread
from urllib.parse import SplitResult, parse_qs, urlsplit
from weakref import ref

from kafka_tx.clock import now_ms
from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.metrics.connections import BoundedConnections
from kafka_tx.metrics.exposition import exposition
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.metrics.status import STALLED_AFTER_MS, health, status
from kafka_tx.model import host_port

_SECONDS = re.compile("[0-9]{1,9}")

_PAGE_RULES = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    " script-src 'unsafe-inline'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
}
_NOT_FOR_ALL = (
    b"The status page is for the driver's own machine: it shows offsets, options and"
    b" error texts. Open a tunnel, for example ssh -L 9400:localhost:9400 DRIVER, and"
    b" http://localhost:9400/. To let everybody see it who reaches this port, set"
    b" attach(status_page=True), or tx.statusPage=true of a topology.\n"
)


@cache
def page() -> bytes:
    """The status page: one file without outside resources."""
    return files("kafka_tx.metrics").joinpath("status.html").read_bytes()


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


DEFAULT_PORT = 9400
LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - where somebody asks for it

logger = event_log(__name__)

_listening: dict[tuple[str, int], _Server] = {}
"""By address and real port, in the order in which they were opened."""
_listening_lock = Lock()  # also guards `_guests`
_guests: list[ref[MetricsRegistry]] = []


class Endpoint:
    """One user's hold on an endpoint; several share one port of a process.

    Answers on a daemon thread of its own until the last holder closes it, also while no
    query runs: ``/metrics`` in the text format or, if the client accepts it, in
    OpenMetrics; ``/`` with the status page and ``/api/status`` with its data;
    ``/health`` for supervisors; ``/-/healthy`` with 200. No request changes anything.
    """

    def __init__(self, server: _Server, registry: MetricsRegistry) -> None:
        self._server = server
        self.registry = registry
        """The registry that it shows."""
        self._run: tuple[str, Event] | None = None
        self._is_open = True

    def shows_run(self, id_: str, has_ended: Event) -> None:
        """Show a run of a topology; close the endpoints of its runs that have ended.

        So a run that failed is shown until the next one has started.
        """
        with _listening_lock:
            opened = [each for s in _listening.values() for each in s.holders]
            former = [each for each in opened if each._has_shown(id_)]
            self._run = id_, has_ended
        for each in former:
            each.close()

    def _has_shown(self, id_: str) -> bool:
        return self._run is not None and self._run[0] == id_ and self._run[1].is_set()

    @property
    def port(self) -> int:
        """The port of the endpoint, also if ``port`` was 0."""
        return self._server.server_port

    @property
    def url(self) -> str:
        """The URL of the metrics on this machine."""
        return f"http://{host_port(self._server.reachable_host, self.port)}/metrics"

    def close(self) -> None:
        """Close; the last holder's close frees the port. Twice is harmless."""
        with _listening_lock:
            if not self._is_open:
                return
            self._is_open = False
            self._server.holders.remove(self)
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
    """A registry that this process's oldest open port shows, until it is closed.

    For jobs without a port of their own. One port only: two of them would be scraped as
    two processes that run the job. A registry that nobody else holds is not shown.
    """

    port = None

    def __init__(self, registry: MetricsRegistry) -> None:
        self._ref = ref(registry)
        with _listening_lock:
            _guests[:] = [each for each in _guests if each() is not None]
            _guests.append(self._ref)

    def close(self) -> None:
        """Stop showing the registry. Twice is harmless."""
        with _listening_lock:
            _guests[:] = [each for each in _guests if each is not self._ref]


def serve(
    registry: MetricsRegistry,
    port: int = DEFAULT_PORT,
    address: str = LOOPBACK,
    *,
    shows_page: bool = False,
) -> Endpoint:
    """Serve a registry over HTTP from this process.

    A second call for a port that this process already serves shares it: the endpoint
    then shows both registries.

    Args:
        registry: The registry to show.
        port: 0 takes any free port.
        address: Address to listen on. By default only this machine itself can ask;
            ``0.0.0.0`` admits everybody who reaches the port.
        shows_page: Whether the status page is for everybody, too. Otherwise it is for
            this machine only, whatever the address.

    Raises:
        ConfigError: The port is taken by another process, is not allowed for this user,
            or the address is not this machine's.
    """
    with _listening_lock:
        server = _listening.get((address, port)) or _listening.get(
            (EVERY_ADDRESS, port)
        )
        if server is None:
            server = _listen(port, address)
            _listening[address, server.server_port] = server
        server.shows_page |= shows_page
        endpoint = Endpoint(server, registry)
        server.holders.append(endpoint)
        return endpoint


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
    """The listening socket and the registries that it shows.

    ``holders`` are the open Endpoints; guarded by ``_listening_lock``.
    """

    answers_within_s = 10.0

    def __init__(self, port: int, address: str) -> None:
        self.address = address
        self.holders: list[Endpoint] = []
        self.shows_page = False
        super().__init__((address, port), _Handler)

    @property
    def reachable_host(self) -> str:
        return "localhost" if self.address in (EVERY_ADDRESS, "::") else self.address

    def server_bind(self) -> None:
        """Bind without asking DNS for a name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name = self.address
        self.server_port = int(self.server_address[1])

    def shown(self) -> list[MetricsRegistry]:
        with _listening_lock:
            found = [endpoint.registry for endpoint in self.holders]
            if self is next(iter(_listening.values()), None):
                found += [each for guest in _guests if (each := guest()) is not None]
            return list(dict.fromkeys(found))


def _split(url: str) -> SplitResult:
    """Its parts; empty ones if it has half of the brackets of an address."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kafka_tx"
    sys_version = ""

    def do_GET(self) -> None:
        path = _split(self.path).path
        if path == "/metrics":
            self._metrics()
        elif path == "/-/healthy":
            self._answer(200, b"kafka_tx is healthy\n")
        elif path == "/health":
            self._health()
        elif path not in {"/", "/api/status"}:
            known = b"not here; see /, /api/status, /health, /metrics, /-/healthy\n"
            self._answer(404, known)
        elif not self._may_see_page():
            self._answer(403, _NOT_FOR_ALL)
        elif path == "/":
            self._answer(200, page(), "text/html; charset=utf-8", _PAGE_RULES)
        else:
            self._status()

    do_HEAD = do_GET  # noqa: N815 - the name http.server calls

    def _may_see_page(self) -> bool:
        """Only this machine may, under a host name of its own.

        A browser sends the host name of the address bar: a foreign name that resolves
        to this machine is refused.
        """
        if self.server.shows_page:
            return True
        host = _split(f"//{self.headers.get('Host') or ''}").hostname or ""
        return _is_loopback(self.client_address[0]) and (
            host == "localhost" or _is_loopback(host)
        )

    def _health(self) -> None:
        """One line of JSON for supervisors, without what only the page may show."""
        given = parse_qs(_split(self.path).query).get("hang", [])
        if given and not _SECONDS.fullmatch(given[-1]):
            self._answer(400, b"hang is a number of seconds, as in /health?hang=1800\n")
            return
        hang_ms = int(given[-1]) * 1000 if given else STALLED_AFTER_MS
        found = health(self.server.shown(), now_ms(), hang_ms)
        text = json.dumps(found).encode() + b"\n"
        code = 200 if found["healthy"] else 503
        self._answer(code, text, "application/json", {"Cache-Control": "no-store"})

    def _status(self) -> None:
        try:
            shown = status(self.server.shown(), now_ms())
            text = json.dumps(shown, separators=(",", ":")).encode()
        except Exception:
            logger.exception("the status could not be written as JSON")
            self._answer(500, b"the status could not be made; see the log\n")
            return
        if self._takes_gzip:
            text = gzip.compress(text, compresslevel=1)
        headers = {**self._encoding, "Cache-Control": "no-store"}
        self._answer(200, text, "application/json", headers)

    def _metrics(self) -> None:
        accept = self.headers.get("Accept") or ""
        try:
            text, content_type = exposition(
                self.server.shown(), accept, compressed=self._takes_gzip
            )
        except Exception:
            logger.exception("metrics could not be turned into text")
            self._answer(500, b"metrics could not be turned into text; see the log\n")
            return
        self._answer(200, text, content_type, self._encoding)

    @property
    def _takes_gzip(self) -> bool:
        encoding = self.headers.get("Accept-Encoding") or ""
        return any(each.split(";")[0].strip() == "gzip" for each in encoding.split(","))

    @property
    def _encoding(self) -> dict[str, str]:
        return {"Content-Encoding": "gzip"} if self._takes_gzip else {}

    def _answer(
        self,
        status: int,
        body: bytes,
        content_type: str = "text/plain; charset=utf-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes go to the debug log only."""
        logger.debug(format, *args)
