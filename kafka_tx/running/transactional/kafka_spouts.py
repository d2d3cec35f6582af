"""Kafka spouts that users make from the options of the drop-in source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from kafka_tx import assembly
from kafka_tx.config import (
    LEGAL_OPTIONS,
    Mode,
    SourceConfig,
    TransactionsConfig,
    check_kind,
)
from kafka_tx.errors import ConfigError
from kafka_tx.model import LogPosition, TopicPartition
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.options.names import folded
from kafka_tx.options.source import parse_source
from kafka_tx.running.task_reader import TaskReader
from kafka_tx.topology.declare.spout_hosts import SCHEMES, is_scheme
from kafka_tx.topology.kafka.spout import KafkaBatchSpout
from kafka_tx.topology.rows.schemes import Scheme, reads_headers

_NOT_FOR_SPOUTS = {
    "tx": "the topology's id is the builder's first argument, and 'tx.store' is one of"
    " the settings that the topology is started with",
    "transaction": "the topology's id is the builder's first argument",
    "minpartitions": "give parallelism to the builder",
    "value": "give the spout scheme=kafka_tx.AvroScheme(...)",
    "key": "give the spout a scheme",
    "schemaregistry": "give the spout scheme=kafka_tx.AvroScheme(...)",
}
"""By the prefix of a name in lower case."""


class KafkaSpoutFromOptions(KafkaBatchSpout):
    """Makes both kinds of spouts from options.

    Args:
        options: Options of the drop-in source, without ``tx.…``: at least
            ``kafka.bootstrap.servers`` and one of ``subscribe``, ``subscribePattern``
            and ``assign``. ``startingOffsets`` is ``earliest`` if not given; also
            ``latest``, JSON that names all partitions, or ``committed``: the offsets of
            the topology's ``tx.commitGroupId``, or of ``kafka.group.id``. It applies
            to the first plan of the very first batch only; later the topology's store
            decides.
            ``maxOffsetsPerTrigger`` and ``maxRecordsPerPartition`` bound a batch,
            ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` let it wait.
        scheme: Makes rows from records.
        max_bytes: The approximate size of a batch, at most; the option
            ``maxBytesPerTrigger`` in another place.
        out_of_range: ``fail`` or ``earliest``, if the next offset of a partition is not
            in the log any more. None: the option ``failOnDataLoss`` decides; without
            that option, a transactional spout fails and an opaque one goes on. It goes
            on at the log's start after retention; at the log's end, if the log lost
            records at its end that were read before; and at the start of a re-created
            topic. Skipped records are counted and logged.
        poll_ms: Pause between polls of the brokers while there is nothing to read; with
            many partitions, the pause grows over time.
        refresh_ms: Pause between polls for new partitions while nothing is to be read.

    Raises:
        ConfigError: An option is missing, unknown to spouts, or illegal.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        scheme: Scheme | None = None,
        max_bytes: int | None = None,
        out_of_range: str | None = None,
        poll_ms: int = 100,
        refresh_ms: int = 5_000,
    ) -> None:
        config = _source(options)
        if scheme is not None and not is_scheme(scheme):
            raise ConfigError.illegal("scheme", scheme, SCHEMES)
        if reads_headers(scheme):
            config = replace(config, include_headers=True)
        if max_bytes is not None:
            limits = replace(config.limits, max_bytes=max_bytes)
            config = replace(config, limits=limits)
        super().__init__(
            config,
            assembly.cluster_view(config),
            TaskReader(config),
            assembly.SystemClock(),
            scheme=scheme,
            out_of_range=_policy(out_of_range, options, config),
            poll_ms=poll_ms,
            refresh_ms=refresh_ms,
        )

    def commits_to(self, transactions: TransactionsConfig) -> None:
        """Set the id and group that the topology commits to. Called at each start."""
        self.config = replace(self.config, transactions=transactions)

    def committed_offsets(
        self, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, LogPosition]:
        """The positions of the topology's group, or of the group that the options name.

        Raises:
            BrokerUnavailableError: The group does not answer.
            AuthenticationError: Credentials, permission or TLS.
        """
        load = assembly.group_offsets(self.config)
        return {} if load is None else load(partitions)


class TransactionalKafkaSpout(KafkaSpoutFromOptions):
    """Numbered batches of Kafka records; a replay holds exactly the same ones.

    If these records are gone, the replay stops with ``ReplayImpossibleError``.
    Arguments: see ``KafkaSpoutFromOptions``, the base class.
    """


class OpaqueTransactionalKafkaSpout(KafkaSpoutFromOptions):
    """Numbered batches of Kafka records; a replay may hold other records.

    Each record is committed once. A partition that cannot be reached contributes an
    empty range, and catches up later.
    Arguments: see ``KafkaSpoutFromOptions``, the base class.
    """

    mode: Mode = "opaque"


def _source(options: Mapping[str, Any]) -> SourceConfig:
    check_kind("options", options, Mapping, LEGAL_OPTIONS)
    given = {name: str(value) for name, value in options.items()}
    for name, (beginning, instead) in product(given, _NOT_FOR_SPOUTS.items()):
        if folded(name).startswith(beginning):
            raise ConfigError(
                f"option '{name}' does not apply to spouts: {instead}", option=name
            )
    if not {name.lower() for name in given} & {
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
    }:
        given["startingOffsets"] = "earliest"
    return parse_source(given, streaming=True)


def _policy(
    given: str | None, options: Mapping[str, Any], config: SourceConfig
) -> OutOfRange | None:
    is_given = any(name.lower() == "failondataloss" for name in options)
    by_option = OutOfRange.of(config.fails_on_data_loss)
    if given is None:
        return by_option if is_given else None
    policy = OutOfRange.parse(given)
    if is_given and (policy is OutOfRange.FAIL) is not config.fails_on_data_loss:
        raise ConfigError.illegal(
            "out_of_range",
            given,
            f"'{by_option.value}' with failOnDataLoss={config.fails_on_data_loss}",
            "Give one of the two.",
        )
    return policy
