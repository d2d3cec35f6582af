"""The kinds of groups: only groups of consumers take offsets.

Asks each broker for its groups. The requests of an admin client to a group's own broker
end the process where that is not ready (see ``group_commits``).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.clients import addresses, new_admin
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.logs import event_log

WITHIN_S = 5.0
_OF_CONSUMERS = {"", "consumer"}
_NOT_CLASSIC = "Dead"
"""The state of a group of a newer kind, if brokers are asked as about a classic one."""

logger = event_log(__name__)


def foreign_kind(
    settings: Mapping[str, str], group: str, within_s: float = WITHIN_S
) -> str:
    """The kind of a group that is not one of consumers, in words; otherwise empty.

    Also empty for a group that does not exist, and if brokers do not report the kind:
    then its first commit shows it.
    """
    watch = ErrorWatch(addresses(settings))
    admin = new_admin(settings, watch)
    try:
        with warnings.catch_warnings():  # the newer request hides other kinds
            warnings.simplefilter("ignore", DeprecationWarning)
            groups: list[Any] = admin.list_groups(group, within_s)
        found = [each for each in groups if each.id == group]
        if not found:
            return ""
        if found[0].protocol_type not in _OF_CONSUMERS:
            return f"a group of the protocol '{found[0].protocol_type}'"
        if found[0].state != _NOT_CLASSIC:
            return ""
        asked: Any = admin.list_consumer_groups(request_timeout=within_s)
        listed = asked.result(within_s)
    except (KafkaException, TimeoutError) as error:
        logger.info("the brokers do not tell the kind of group '%s': %r", group, error)
        return ""
    if listed.errors or any(g.group_id == group for g in listed.valid):
        return ""
    return "a share group, or a group of Kafka Streams"


def check_kind(settings: Mapping[str, str], group: str, option: str) -> None:
    """Raise ConfigError for a group that is none of consumers; as ``foreign_kind``."""
    kind = foreign_kind(settings, group)
    if kind:
        raise ConfigError.illegal(
            option,
            group,
            "a group of consumers, or a name that no group has",
            advice(group, kind),
        )


def advice(group: str, kind: str) -> str:
    """What to do about a group of another kind."""
    return (
        f"Group '{group}' is {kind}: it takes no offsets of consumers, and none was"
        " written. Name a group that only this job uses. `kafka-groups.sh --list` shows"
        " the type and protocol of each group"
    )
