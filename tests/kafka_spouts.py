"""Kafka spouts in both modes, over a log in memory."""

from __future__ import annotations

from kafka_tx.config import BatchLimits, SourceConfig
from kafka_tx.model import Earliest, Topics
from kafka_tx.topology.kafka.spout import KafkaBatchSpout


class OpaqueKafkaBatchSpout(KafkaBatchSpout):
    """The opaque one."""

    mode = "opaque"


def reads(subscription=None, start=None, **limits):
    """The configuration of a spout; by default of the topic ``t``."""
    return SourceConfig(
        subscription=subscription or Topics(("t",)),
        kafka={},
        start=start or Earliest(),
        limits=BatchLimits(**limits),
    )
