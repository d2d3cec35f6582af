"""From options to parts."""

from typing import Any

import pytest

from kafka_tx import assembly
from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.kafka.reader import KafkaRangeReader
from kafka_tx.model import CommittedOffset
from kafka_tx.native import status
from kafka_tx.native.reader import NativeRangeReader
from kafka_tx.options.source import parse_source
from kafka_tx.transactions.ownership.memory import MemoryStore
from kafka_tx.transactions.ownership.retry_policy import RetryingOffsetStore


@pytest.fixture
def config():
    options = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t"}
    return parse_source(options, streaming=True)


def test_the_native_reader_is_taken_where_it_was_built(config, monkeypatch):
    monkeypatch.delenv("KAFKA_TX_READER", raising=False)

    expected = NativeRangeReader if status().is_native else KafkaRangeReader
    assert type(assembly.range_reader(config).reader) is expected


def test_the_python_reader_can_be_asked_for(config, monkeypatch):
    monkeypatch.setenv("KAFKA_TX_READER", "python")

    assert type(assembly.range_reader(config).reader) is KafkaRangeReader


def test_a_reader_that_there_is_not_is_refused(config, monkeypatch):
    monkeypatch.setenv("KAFKA_TX_READER", "rust")

    with pytest.raises(ConfigError, match="KAFKA_TX_READER.*python, native"):
        assembly.range_reader(config)


def test_settings_that_only_python_can_serve_are_refused_by_reason(monkeypatch):
    monkeypatch.setenv("KAFKA_TX_READER", "native")
    options = {
        "kafka.bootstrap.servers": "a:9092",
        "subscribe": "t",
        "kafka.debug": "broker",
    }

    with pytest.raises(ConfigError, match="cannot be used"):
        assembly.range_reader(parse_source(options, streaming=True))


def test_stores_are_opened_by_their_url(tmp_path):
    assert isinstance(assembly.open_store("memory:", "job"), MemoryStore)
    assert assembly.open_store(f"sqlite:///{tmp_path}/a.db", "job").read() == {}


@pytest.mark.parametrize("url", ["", "file.db", "nonsense://host", "kafka:"])
def test_a_url_that_names_no_store_is_refused(url):
    with pytest.raises(KafkaTxError, match="legal|no store|driver|dialect"):
        assembly.open_store(url, "job").acquire()


def test_offsets_in_a_kafka_group_are_tried_for_two_minutes_as_in_other_stores(
    config, tmp_path
):
    rows = assembly.offset_store(f"sqlite:///{tmp_path}/a.db", "job", config)
    group = assembly.offset_store("kafka:", "job", config)

    assert type(rows) is type(group) is RetryingOffsetStore
    assert rows.retry_ms == group.retry_ms == 120_000
    assert group.fitting(CommittedOffset(0, ((2, 3),))) == 1
    rows.close()
    group.close()


def test_the_wait_of_tasks_does_not_bound_the_requests_of_a_plan():
    options = {
        "kafka.bootstrap.servers": "a:9092",
        "subscribe": "t",
        "kafkaConsumer.pollTimeoutMs": "512",
    }
    short = parse_source(options, streaming=True)

    view: Any = assembly.cluster_view(short)
    assert view._timeout_ms == 30_000
