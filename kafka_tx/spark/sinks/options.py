"""The sink's options become a SinkConfig here."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.config import SinkConfig
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.settings import client_settings
from kafka_tx.spark.source.options import kafka_options, require_brokers
from kafka_tx.spark.source.values import positive


def parse_sink(options: Mapping[str, str]) -> SinkConfig:
    """Read and check the options of a write (driver).

    Raises:
        ConfigError: An option is missing or illegal.
    """
    given = {name.lower(): value for name, value in options.items()}
    require_brokers(given, "producer")
    kafka = kafka_options(given)
    client_settings(kafka, purpose="producer")
    txid = positive(given, "tx.txid")
    if txid is not None and "tx.id" not in given:
        raise ConfigError("option 'tx.txid' needs option 'tx.id'", option="tx.id")
    return SinkConfig(
        kafka=kafka,
        topic=given.get("topic", "").strip() or None,
        id=given.get("tx.id"),
        txid=txid,
        parts=positive(given, "tx.parts") or 1,
        compares=given.get("tx.compares") != "false",
    )
