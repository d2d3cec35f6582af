"""Checks of brokers for ``kafka-tx doctor``: rights, clocks, transactions, versions."""

from __future__ import annotations

import time

from kafka_tx import assembly
from kafka_tx.cli.lag import config_of
from kafka_tx.cli.lake_tables import Verdict
from kafka_tx.config import MARKER_TOPIC
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster_checks import ClusterChecks, finalized_features
from kafka_tx.kafka.marker_topic import MarkerTopic
from kafka_tx.model import TopicPartition, Topics

MOST_APART_S = 2.0
_SINK = "kafka_tx.doctor"
_FEATURE = "transaction.version"


def topic_rights(kafka: dict[str, str], topic: str) -> tuple[Verdict, str]:
    """READ is for sources, WRITE for sinks; exactly once needs both."""
    rights = ClusterChecks(kafka).topic_rights(topic)
    missing = [name for name in ("READ", "WRITE") if name not in rights]
    if not rights:
        return "unknown", f"the brokers do not tell what this user may do on {topic}"
    if not missing:
        return "good", f"this user may READ and WRITE {topic}"
    if len(missing) == 2:
        return "bad", f"this user may neither READ nor WRITE {topic}: grant one of them"
    needs = {"READ": "a source and an exactly-once sink need", "WRITE": "a sink needs"}
    return "advice", f"this user may not {missing[0]} {topic}: {needs[missing[0]]} it"


def group_rights(kafka: dict[str, str], group: str) -> tuple[Verdict, str]:
    """READ commits offsets of a group."""
    rights = ClusterChecks(kafka).group_rights(group)
    if rights is None:
        return "unknown", f"group {group} does not exist yet, so no broker tells rights"
    if "READ" in rights:
        return "good", f"this user may commit offsets of group {group}"
    return "bad", f"this user may not READ group {group}, which tx.commitGroupId needs"


def clock(kafka: dict[str, str], topic: str) -> tuple[Verdict, str]:
    """A record from the future: its producer's or broker's clock is ahead of ours."""
    view = assembly.cluster_view(config_of(kafka))
    try:
        found = view.topics(Topics((topic,))).get(topic)
    finally:
        view.close()
    partitions: list[TopicPartition] = list(found.partitions) if found else []
    newest_ms = ClusterChecks(kafka).newest_ms(partitions)
    if newest_ms is None:
        return "good", f"{topic} has no record whose time could be compared"
    ahead_s = newest_ms / 1_000 - time.time()
    if ahead_s > MOST_APART_S:
        return (
            "advice",
            f"the newest record of {topic} is {ahead_s:.0f} s in the future: the clock"
            " of this machine, of the broker or of the producer is wrong. Starts by"
            " time and lag in seconds are off by as much",
        )
    return "good", f"no record of {topic} is in the future"


def markers(kafka: dict[str, str]) -> tuple[Verdict, str]:
    """The cleanup policy of the marker topic of exactly-once sinks."""
    view = assembly.cluster_view(config_of(kafka))
    try:
        is_there = MARKER_TOPIC in view.topics(Topics((MARKER_TOPIC,)))
    finally:
        view.close()
    if not is_there:
        return "good", f"{MARKER_TOPIC} is made by the first exactly-once sink"
    settings = client_settings(kafka, purpose="consumer")
    topic = MarkerTopic(MARKER_TOPIC, settings)
    if topic.policy() is None:
        return "unknown", f"the brokers do not tell cleanup.policy of {MARKER_TOPIC}"
    topic.check_policy()
    return "good", f"{MARKER_TOPIC} is compacted: markers stay"


def transactions(kafka: dict[str, str]) -> tuple[Verdict, str]:
    """Some cloud brokers refuse transactions; then no exactly-once sink works."""
    ClusterChecks(kafka).begin_transactions(_SINK)
    return (
        "good",
        f"the brokers took the transactional id '{_SINK}', and forget it in time",
    )


def versions(kafka: dict[str, str]) -> tuple[Verdict, str]:
    """KIP-890: a broker that lacks it may keep a late write of an old transaction."""
    if "SSL" in kafka.get("security.protocol", "").upper().split("_"):
        return (
            "unknown",
            f"{_FEATURE} (KIP-890) cannot be asked over TLS: ask the brokers' operator",
        )
    host, _, port = kafka["bootstrap.servers"].split(",")[0].strip().rpartition(":")
    try:
        level = finalized_features(host.strip("[]"), int(port)).get(_FEATURE, 0)
    except OSError as error:
        return "unknown", f"{host}:{port} did not tell {_FEATURE} (KIP-890): {error}"
    if level < 2:
        return (
            "advice",
            f"{_FEATURE} is {level}: the brokers cannot always tell a late write from"
            " one of the next transaction (KIP-890). Kafka 4.0 and later can, after"
            f" kafka-features.sh upgrade --feature {_FEATURE}=2",
        )
    return "good", f"{_FEATURE} is {level}: late writes are refused (KIP-890)"
