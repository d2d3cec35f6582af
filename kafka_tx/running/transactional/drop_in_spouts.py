"""Kafka spouts that users make from the options of the drop-in source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from kafka_tx import assembly
from kafka_tx.config import (
    LEGAL_OPTIONS,
    FromCommitted,
    SourceConfig,
    TransactionsConfig,
    check_kind,
)
from kafka_tx.errors import ConfigError
from kafka_tx.model import (
    Earliest,
    LogBounds,
    TopicPartition,
    Unavailable,
)
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.options.option_names import folded
from kafka_tx.options.source_options import parse_source
from kafka_tx.planning.start_positions import committed_or, resolve
from kafka_tx.running.task_reader import TaskReader
from kafka_tx.topology.declare.spout_hosts import SCHEMES, is_scheme
from kafka_tx.topology.kafka import kafka_batch_spout as kafka_spouts
from kafka_tx.topology.kafka.kafka_progress import KafkaBatches
from kafka_tx.topology.rows.schemes import Scheme, StringScheme

_NOT_FOR_SPOUTS = {
    "tx": "the topology's id is the builder's first argument, and 'tx.store' is one of"
    " the settings that the topology is started with",
    "transaction": "the topology's id is the builder's first argument",
    "minpartitions": "give parallelism to the builder",
}
"""By the prefix of a name in lower case."""

_UNPLANNED = Unavailable("no batch has read it yet")


class KafkaSpoutFromOptions(kafka_spouts.KafkaBatchSpout):
    """Makes both kinds of spouts from options.

    Args:
        options: Options of the drop-in source, without ``tx.…``: at least
            ``kafka.bootstrap.servers`` and one of ``subscribe``, ``subscribePattern``
            and ``assign``. ``startingOffsets`` is ``earliest`` if not given; also
            ``latest``, JSON that names all partitions, or ``committed``: the offsets of
            the topology's ``tx.commitGroupId``, or of ``kafka.group.id``. It applies
            to the very first batch only; later the topology's store decides.
            ``maxOffsetsPerTrigger`` and ``maxRecordsPerPartition`` bound a batch,
            ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` let it wait.
        scheme: Makes rows from records.
        max_bytes: The approximate size of a batch, at most.
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
        batches = KafkaBatches(
            subscription=config.subscription,
            start=config.start if isinstance(config.start, Earliest) else None,
            limits=replace(config.limits, max_bytes=max_bytes),
            scheme=scheme or StringScheme(),
            out_of_range=_policy(out_of_range, options, config),
            poll_ms=poll_ms,
            refresh_ms=refresh_ms,
        )
        super().__init__(
            batches,
            assembly.cluster_view(config),
            TaskReader(config),
            assembly.SystemClock(),
        )
        self.config = config
        """The parsed options, with the settings of Kafka clients."""

    def commits_to(self, transactions: TransactionsConfig) -> None:
        """Set the id and group that the topology commits to. Called before ``open``."""
        self.config = replace(self.config, transactions=transactions)

    def first_offsets(
        self, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, int | Unavailable | None]:
        """The same first offsets and error texts as those of the drop-in source.

        Raises:
            OffsetsError: The rule names other partitions than exist, no record
                matches a start time, or there is no committed offset.
            BrokerUnavailableError: A partition or the group does not answer.
        """
        config, rule = self.config, self.config.start
        if not isinstance(rule, FromCommitted):
            return resolve(config, self._cluster, partitions, rule, starting=True)
        load = assembly.group_offsets(config)
        known = {} if load is None else load(partitions)
        return committed_or(config, self._cluster, partitions, rule, known)

    def bounds(self) -> Mapping[TopicPartition, LogBounds | Unavailable]:
        """The log bounds of the last poll.

        A partition is missing while no batch has read it, or while it has no leader.
        While there is nothing to read, the spout polls more and more rarely.
        Called on the driver, by the thread that plans.

        Raises:
            BrokerUnavailableError: No broker answers.
            AuthenticationError: Credentials, permission or TLS.
        """
        planned, seen = self._progress.to, self._looks.last_bounds()
        if any(partition not in seen for partition in planned):
            seen = self._looks.bounds(planned)
        unplanned = dict.fromkeys(self._looks.last_found().partitions, _UNPLANNED)
        reported = self._looks.logs.completed(
            {partition: seen[partition] for partition in planned}, planned
        )
        return {**unplanned, **reported}


class TransactionalKafkaSpout(KafkaSpoutFromOptions):
    """Numbered batches of Kafka records; a replay holds exactly the same ones.

    If these records are gone, the replay stops with ``ReplayImpossibleError``.
    Arguments: see ``KafkaSpoutFromOptions``, the base class.
    """


class OpaqueTransactionalKafkaSpout(
    KafkaSpoutFromOptions, kafka_spouts.OpaqueKafkaBatchSpout
):
    """Numbered batches of Kafka records; a replay may hold other records.

    Each record is committed once. A partition that cannot be reached contributes an
    empty range, and catches up later.
    Arguments: see ``KafkaSpoutFromOptions``, the base class.
    """


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
    word: str | None, options: Mapping[str, Any], config: SourceConfig
) -> OutOfRange | None:
    is_given = any(name.lower() == "failondataloss" for name in options)
    asked = OutOfRange.of(config.fails_on_data_loss)
    if word is None:
        return asked if is_given else None
    policy = OutOfRange.parse(word)
    if is_given and (policy is OutOfRange.FAIL) is not config.fails_on_data_loss:
        raise ConfigError.illegal(
            "out_of_range",
            word,
            f"'{asked.value}' with failOnDataLoss={config.fails_on_data_loss}",
            "Give one of the two.",
        )
    return policy
