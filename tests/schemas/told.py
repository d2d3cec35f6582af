"""A registry that answers as it is told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Told:
    """A server with an answer for each path: status and JSON, or bytes.

    That for a path with its query, if there is one, comes first.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.queries: list[str] = []
        """Of each request, what stands behind the question mark."""
        self.frozen = threading.Event()
        """Set by a test: the next request has no answer until it is cleared."""
        self.thawed = threading.Event()
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                told.queries.append(query)
                told.asked.append((path, self.headers.get("Authorization")))
                if told.frozen.is_set():
                    told.frozen.clear()
                    told.thawed.wait(30)
                    return
                none = [(404, {"error_code": 40403, "message": "none"})]
                left = told.answers.get(self.path) or told.answers.get(path, none)
                status, body = left.pop(0) if len(left) > 1 else left[0]
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def schema(self, number: int, text: str, **more: Any) -> None:
        self.answers[f"/schemas/ids/{number}"] = [(200, {"schema": text, **more})]

    def version(
        self, subject: str, which: str, number: int, text: str, **more: Any
    ) -> None:
        body = {"subject": subject, "id": number, "version": 1, "schema": text, **more}
        self.answers[f"/subjects/{subject}/versions/{which}"] = [(200, body)]

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]
