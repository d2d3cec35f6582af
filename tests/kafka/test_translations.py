"""The table of names is complete and prints itself."""

from __future__ import annotations

import pytest

from kafka_tx.kafka.librdkafka_names import COMMON, CONSUMER_ONLY, PRODUCER_ONLY
from kafka_tx.kafka.translations import TABLE, Translation, find

NATIVE = COMMON | CONSUMER_ONLY | PRODUCER_ONLY


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.java)
def test_every_row_leads_to_names_of_librdkafka(row: Translation) -> None:
    assert row.librdkafka
    assert set(row.librdkafka) <= NATIVE


def test_the_same_name_can_mean_something_else_to_a_producer() -> None:
    reading = find("request.timeout.ms", "consumer")
    writing = find("request.timeout.ms", "producer")

    assert reading is not None
    assert writing is not None
    assert reading.librdkafka == ("socket.timeout.ms",)
    assert "request.timeout.ms" in writing.librdkafka


def test_the_kinit_command_of_java_becomes_a_whole_command() -> None:
    row = find("sasl.kerberos.kinit.cmd", "consumer")

    assert row is not None
    (command,) = row.apply("/usr/bin/kinit").values()
    assert command.startswith('/usr/bin/kinit -R -t "%{sasl.kerberos.keytab}"')
    assert list(row.apply("kinit -k me").values()) == ["kinit -k me"]
