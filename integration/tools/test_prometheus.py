"""The Prometheus server of the tests scrapes what its configuration names."""

from __future__ import annotations

import http.server
import threading

import pytest

from integration.cluster.prometheus import PrometheusServer
from integration.cluster.waiting import wait_until

PAGE = b"# TYPE answer gauge\nanswer 42\n"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        """Say nothing."""


@pytest.mark.all
def test_prometheus_scrapes_and_answers_queries(tmp_path):
    page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    configuration = tmp_path / "prometheus.yml"
    configuration.write_text(
        "global: {scrape_interval: 200ms}\n"
        "scrape_configs:\n"
        "- job_name: page\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{page.server_port}']}}]\n"
    )
    server = PrometheusServer(configuration)
    try:
        server.start()

        wait_until("it is 42", lambda: server.query("answer")[0]["value"][1] == "42")
        wait_until("it is up", lambda: server.targets()[0]["health"] == "up")
    finally:
        server.stop()
        page.shutdown()
        page.server_close()
