"""Iceberg's REST catalog as a process, and a way to it that loses answers."""

from __future__ import annotations

import json
import os
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit
from urllib.request import urlopen

from integration.cluster.child import ServerProcess
from integration.cluster.jars import class_path
from integration.cluster.java import java
from integration.cluster.processes.java_server import SMALL_HEAP
from integration.cluster.versions import ICEBERG_REST_JARS
from integration.cluster.waiting import HOST
from kafka_tx.testing import QUICK_JAVA, spark_directory

SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
HOP = ("connection", "transfer-encoding", "content-length", "host", "accept-encoding")
ERRORS = {
    "answer": (504, "GatewayTimeout"),
    "request": (504, "GatewayTimeout"),
    "rights": (403, "ForbiddenException"),
}


class IcebergRest(ServerProcess):
    """A REST catalog with its state in a SQLite file.

    Args:
        warehouse: The directory of its tables.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        super().__init__("iceberg-rest")

    @property
    def uri(self) -> str:
        """Its address, as a catalog of Spark takes it."""
        return f"http://{HOST}:{self._port}"

    def start(self) -> None:
        hadoop = spark_directory().joinpath("jars").glob("hadoop-client-*.jar")
        places = os.pathsep.join([class_path(ICEBERG_REST_JARS), *map(str, hadoop)])
        self._serve(
            [java(), *QUICK_JAVA, *SMALL_HEAP, "-cp", places, SERVER],
            lambda: urlopen(f"{self.uri}/v1/config", timeout=5).close() or True,
            environment={
                "CATALOG_WAREHOUSE": str(self._warehouse),
                "CATALOG_URI": f"jdbc:sqlite:{self._work.path}/catalog.db",
                "CATALOG_REST_PORT": str(self._port),
            },
        )


class LossyWay:
    """Hands requests on to a REST catalog; answers to commits may be lost.

    Args:
        uri: Of the catalog.
    """

    def __init__(self, uri: str) -> None:
        self.target = urlsplit(uri).netloc
        self.loses = ""
        """``answer``, ``request``, ``rights`` or nothing: of the next commit."""
        self.held: list[tuple[str, bytes, dict[str, str]]] = []
        """Commits that were not handed on, and may arrive late."""
        handler = type("Handler", (_Handler,), {"way": self})
        self._server = ThreadingHTTPServer((HOST, 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def uri(self) -> str:
        """Its own address."""
        return f"http://{HOST}:{self._server.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def deliver(self) -> list[int]:
        """Let what was held arrive now; the status of each answer."""
        return [self.hand_on("POST", *self.held.pop(0))[0] for _ in list(self.held)]

    def hand_on(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, str, bytes]:
        """What the catalog answers: status, type and body."""
        connection = HTTPConnection(self.target, timeout=60)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            kind = answer.getheader("Content-Type") or "application/json"
            return answer.status, kind, answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    way: ClassVar[LossyWay]
    protocol_version = "HTTP/1.1"

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        is_commit = self.command == "POST" and b'"requirements"' in body
        lost = self.way.loses if is_commit else ""
        if is_commit:
            self.way.loses = ""
        given = self.path, body, headers
        if lost == "request":
            self.way.held.append(given)
        found = (0, "", b"")
        if lost in {"", "answer"}:
            found = self.way.hand_on(self.command, *given)
        if lost:
            code, name = ERRORS[lost]
            error = {"message": f"of a {lost}", "type": name, "code": code}
            found = code, "application/json", json.dumps({"error": error}).encode()
        status, kind, answer = found
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815 - as its base wants

    def log_message(self, *_: object) -> None:
        pass
