"""Parses the sink's options into a SinkConfig."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kafka_tx.config import (
    LEGAL_OPTIONS,
    REGISTRY,
    SinkConfig,
    check_kind,
    check_name,
    check_topic,
)
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.model import TransactionAttempt
from kafka_tx.option_rows import Option, boolean, picked, rows, values_of, whole
from kafka_tx.options.formats import SINK_FORMATS, written_formats
from kafka_tx.options.names import check_names
from kafka_tx.options.source import BROKERS, SOURCE, kafka_options, require_brokers
from kafka_tx.own_topics import MARKER_TOPIC, check_not_reserved

SINK = (
    BROKERS,
    Option(
        "topic", "Topic of every row. Overrides the column.", default="column `topic`"
    ),
    Option(
        "tx.markerTopic",
        "Compacted topic for the markers of written parts. Created if it does not"
        " exist. Do not delete it. All writers of a sink need the same topic.",
        default=MARKER_TOPIC,
    ),
    *rows(SinkConfig),
    *SINK_FORMATS,
)
GIVEN_BY_US = ("tx.attempt", "tx.parts", "tx.compares", "tx.memory")
"""Options that ``write_transaction`` passes to tasks; not for users."""
_SPARKS = ("path", "checkpointLocation", "queryName")


def parse_sink(
    options: Mapping[str, str], *, by_transaction: bool = False
) -> SinkConfig:
    """Read and check the options of a write (driver); raises ConfigError.

    ``by_transaction``: ``write_transaction`` may have added ``GIVEN_BY_US``.
    """
    check_kind("options", options, Mapping, LEGAL_OPTIONS)
    given = {name.lower(): value for name, value in options.items()}
    of_registry = [name for name in given if name.startswith(REGISTRY)]
    inner = [*of_registry, *(GIVEN_BY_US if by_transaction else ())]
    check_names(given, _known(), "sink", inner=inner)
    require_brokers(given, "producer")
    kafka = kafka_options(given)
    client_settings(kafka, purpose="producer")
    topic = given.get("topic", "").strip()
    for name in given:
        if name.startswith("tx.") and "tx.id" not in given:
            raise ConfigError(f"option '{name}' needs option 'tx.id'", option="tx.id")
    names = json.loads(given.get("tx.attempt", "null"))
    attempt = names and TransactionAttempt(*names)
    return SinkConfig(
        kafka=kafka,
        topic=check_topic("topic", topic) if topic else None,
        attempt=attempt,
        parts=whole()("tx.parts", given.get("tx.parts", "1")),
        compares=given.get("tx.compares") != "false",
        run=str(attempt.epoch) if attempt else "",
        memory=given.get("tx.memory", ""),
        marker_topic=_marker_topic(given),
        formats=written_formats(given, topic or None),
        registers=boolean(
            "auto.register.schemas", given.get("auto.register.schemas", "false")
        ),
        **picked(SinkConfig, values_of(SINK, given)),
    )


def _marker_topic(given: Mapping[str, str]) -> str:
    name = given.get("tx.markertopic", MARKER_TOPIC).strip()
    if not name or name == given.get("topic", "").strip():
        raise ConfigError.illegal(
            "tx.markerTopic", name, "the name of a topic of its own"
        )
    check_not_reserved("tx.markerTopic", name)
    return check_name("tx.markerTopic", name)


def _known() -> list[str]:
    ours = [option.name for option in SINK]
    of_the_source = [o.name for o in SOURCE if not o.name.startswith("tx.")]
    return [*ours, *of_the_source, *_SPARKS]
