"""An issuer of tokens that knows no such client: said at once, by every door."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kafka_tx import assembly, sink_assembly
from kafka_tx.config import SinkConfig, SourceConfig
from kafka_tx.errors import AuthenticationError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.model import (
    Earliest,
    LogPosition,
    OffsetRange,
    TopicPartition,
    Topics,
    TransactionAttempt,
)
from tests.prompt_errors import prompt_error

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
WITHIN_S = 5.0
"""A second at most, and what a busy machine adds; requests give up after 30 s."""


class Refusing(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.dumps({"error": "invalid_client"}).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def kafka():
    issuer = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=issuer.serve_forever)
    thread.start()
    yield {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (
            f"http://127.0.0.1:{issuer.server_port}/token"
        ),
        "sasl.jaas.config": f'{MODULE} clientId="me" clientSecret="s3cret";',
    }
    issuer.shutdown()
    thread.join()
    issuer.server_close()


def source(kafka):
    return SourceConfig(subscription=Topics(("in",)), kafka=kafka, start=Earliest())


def plan(kafka):
    assembly.cluster_view(source(kafka)).topics(Topics(("in",)))


def read(kafka):
    wanted = OffsetRange(TopicPartition("in", 0), 0, 3)
    list(assembly.range_reader(source(kafka)).read(wanted))


def read_in_python(kafka):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_TX_READER", "python")
        read(kafka)


def poll(kafka):
    view = assembly.log_view(source(kafka))
    try:
        view.bounds([TopicPartition("in", 0)])
    finally:
        view.close()


def start_from_the_group(kafka):
    assembly.offset_store("kafka:", "g", source(kafka)).load([TopicPartition("in", 0)])


def mirror(kafka):
    group = GroupMirror(client_settings(kafka, purpose="admin"), "g")
    group.store({TopicPartition("in", 0): LogPosition(2, None)})


def write(kafka):
    sender = sink_assembly.sender(SinkConfig(kafka=kafka, topic="out"))
    sender.send([OutRecord("out", b"k", b"v")])
    sender.flush()


def write_once(kafka):
    sink = SinkConfig(
        kafka=kafka, topic="out", id="sink", attempt=TransactionAttempt(1, 0)
    )
    sink_assembly.part_transaction(sink, 0).write([OutRecord("out", b"k", b"v")])


DOORS = [
    *(plan, read, read_in_python, poll, start_from_the_group, mirror),
    *(write, write_once),
]


@pytest.mark.parametrize("door", DOORS)
def test_a_client_that_the_issuer_does_not_know_is_named(kafka, door):
    error = prompt_error(
        lambda: door(kafka), WITHIN_S, AuthenticationError, "invalid_client"
    )

    assert "s3cret" not in str(error)
