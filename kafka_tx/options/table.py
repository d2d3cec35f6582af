"""Every option of sources, sinks and topologies, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

from kafka_tx.config import MARKER_TOPIC, Mode
from kafka_tx.options.values import boolean, choice, duration_ms, hosts, text, whole
from kafka_tx.store_place import DEFAULT, store_url


@dataclass(frozen=True, slots=True)
class Option:
    """One row.

    Attributes:
        name: As it is documented.
        sentence: What it does.
        field: Of the value that it becomes; empty: it is read together with others.
        read: Makes the field's value of what was given; takes the name, too.
        default: As the docs show it, where that of the field does not say it all.
    """

    name: str
    sentence: str
    field: str = ""
    read: Callable[[str, Any], Any] = text
    default: str = ""


def values_of(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of what was given; a later row of a field wins over an earlier one.

    Args:
        options: Rows of the table.
        given: Under lower-case names.

    Raises:
        ConfigError: A value is not legal.
    """
    return {
        option.field: option.read(option.name, given[option.name.lower()])
        for option in options
        if option.field and option.name.lower() in given
    }


def picked(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that are fields of the dataclass ``kind``."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


_BROKERS = Option(
    "kafka.bootstrap.servers", "Brokers, `host:port,host:port`.", default="required"
)

SOURCE = (
    _BROKERS,
    Option(
        "subscribe",
        "Topics, separated by commas. Set this, `subscribePattern` or `assign`.",
    ),
    Option(
        "subscribePattern",
        "Regular expression of Java. It may match any part of a topic's name.",
    ),
    Option("assign", 'Partitions, `{"topicA":[0,1]}`.'),
    Option(
        "startingOffsets",
        "`earliest`, `latest`, `committed[:earliest|latest|error]`, or JSON"
        ' `{"topicA":{"0":23,"1":-1}}` (-1 latest, -2 earliest). Applies to new queries'
        " only.",
        default="latest; batch: earliest",
    ),
    Option(
        "startingOffsetsByTimestamp", "Time for each partition, as JSON of epoch ms."
    ),
    Option(
        "startingTimestamp",
        "Time for all partitions, epoch ms. Overrides both options above.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "If no record is at or after the time: `error` or `latest`.",
        "start_without_match",
        choice("error", "latest"),
    ),
    Option(
        "endingOffsets", "Batch only: `latest` or offsets as JSON.", default="latest"
    ),
    Option("endingOffsetsByTimestamp", "Batch only: times as JSON of epoch ms."),
    Option("endingTimestamp", "Batch only: time for all partitions, epoch ms."),
    Option(
        "failOnDataLoss",
        "`true`: stop if Kafka has removed records that the query needs. `false`: skip"
        " and count them.",
        "fails_on_data_loss",
        boolean,
        "true; opaque: false",
    ),
    Option(
        "minPartitions",
        "Split the batch into about this many tasks or more.",
        "min_partitions",
        whole(),
    ),
    Option(
        "maxRecordsPerPartition",
        "Most offsets that one task reads.",
        "max_records_per_partition",
        whole(),
    ),
    Option(
        "maxOffsetsPerTrigger",
        "Most offsets of one batch. Partitions share them in proportion.",
        "max_records",
        whole(),
    ),
    Option(
        "minOffsetsPerTrigger",
        "Wait until this many offsets are available …",
        "min_records",
        whole(),
    ),
    Option(
        "maxTriggerDelay",
        "… but no longer than this time.",
        "max_delay_ms",
        duration_ms,
        "15m",
    ),
    Option("includeHeaders", "Add the column `headers`.", "include_headers", boolean),
    Option(
        "groupIdPrefix",
        "Prefix of generated group ids.",
        "group_id_prefix",
        lambda _name, value: str(value),
    ),
    Option(
        "kafka.group.id",
        "Group id that the clients send to brokers.",
        default="generated",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "Longest wait of a task without a record, ms.",
        "poll_timeout_ms",
        whole(),
    ),
    Option(
        "fetchOffset.numRetries",
        "How often an offset request is tried.",
        "num_retries",
        whole(),
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "Pause between these tries, ms.",
        "retry_interval_ms",
        whole(),
    ),
    Option(
        "tx.id",
        "Name of the query. Makes each batch a transaction.",
        "id",
        lambda _name, value: value.strip(),
    ),
    Option(
        "tx.store",
        "URL of the store for txids and offsets.",
        "store",
        lambda _name, value: store_url(value),
        DEFAULT,
    ),
    Option(
        "tx.mode",
        "`transactional`: a replay holds the same records. `opaque`: it may hold"
        " other records.",
        "mode",
        choice(*get_args(Mode)),
    ),
    Option(
        "tx.commitGroupId",
        "Kafka group to which committed offsets are copied.",
        "commit_group_id",
        lambda _name, value: value or None,
    ),
    Option(
        "tx.onDisagreement",
        "Which side decides if Spark's checkpoint and the store contradict each other:"
        " `checkpoint` or `store`. `error` stops the query. A query with several"
        " sources always stops.",
        "on_disagreement",
        choice("error", "checkpoint", "store"),
    ),
    Option(
        "tx.ifOwned",
        "If another run of the same `tx.id` is alive: `fence` takes over from it,"
        " `refuse` ends this start.",
        "if_owned",
        choice("fence", "refuse"),
        "fence; availableNow: refuse",
    ),
    Option(
        "tx.history",
        "Number of the last transactions that `kafka-tx history` can show. The store"
        " keeps at least 8. ZooKeeper always keeps 8.",
        "history",
        whole(0),
    ),
)

SINK = (
    _BROKERS,
    Option(
        "topic", "Topic of every row. Overrides the column.", default="column `topic`"
    ),
    Option(
        "timestampColumn",
        "Use the column `timestamp` as time of the records. Spark's sink does not.",
        "takes_timestamp",
        boolean,
    ),
    Option(
        "tx.id",
        "Name of the sink. Each part of a batch is then written once.",
        "id",
        lambda _name, value: value.strip(),
    ),
    Option(
        "tx.markerTopic",
        "Compacted topic for the markers of written parts. Created if it does not"
        " exist. Do not delete it. All writers of a sink need the same topic.",
        default=MARKER_TOPIC,
    ),
)

STORMS = (
    Option(
        "topology.max.spout.pending", "Most batches in flight.", "max_pending", whole()
    ),
    Option(
        "topology.message.timeout.secs",
        "Longest phase, in seconds.",
        "timeout_ms",
        whole(1, 1000),
    ),
    Option(
        "topology.enable.message.timeouts",
        "`false`: no time-out.",
        "times_out",
        boolean,
    ),
    Option(
        "topology.trident.batch.emit.interval.millis",
        "Least time between two batches, ms.",
        "emit_interval_ms",
        whole(0),
    ),
    Option(
        "transactional.zookeeper.servers",
        "Hosts of the store, a ZooKeeper.",
        "servers",
        hosts,
    ),
    Option(
        "transactional.zookeeper.port",
        "Port of hosts that are given without a port.",
        "port",
        whole(),
    ),
    Option("transactional.zookeeper.root", "Root path of the store.", "root"),
    Option(
        "storm.zookeeper.servers",
        "Hosts of the store, without `transactional.zookeeper.servers`.",
        "storm_servers",
        hosts,
    ),
    Option(
        "storm.zookeeper.port",
        "Port of hosts that are given without a port.",
        "storm_port",
        whole(),
    ),
    Option(
        "storm.zookeeper.session.timeout",
        "Time-out of the session with ZooKeeper, ms.",
        "session_timeout_ms",
        whole(),
    ),
    Option(
        "storm.zookeeper.connection.timeout",
        "Time-out of a connection to ZooKeeper, ms.",
        "connection_timeout_ms",
        whole(),
    ),
    Option(
        "storm.zookeeper.retry.times",
        "How often a request to the store is tried.",
        "retry_times",
        whole(0),
    ),
    Option(
        "storm.zookeeper.retry.interval",
        "First pause before a retry, ms.",
        "retry_interval_ms",
        whole(),
    ),
    Option(
        "storm.zookeeper.retry.intervalceiling.millis",
        "Longest pause before a retry, ms.",
        "retry_interval_ceiling_ms",
        whole(),
    ),
)
"""Storm's names. Ours win over them."""

TOPOLOGY = (
    Option(
        "tx.store", "URL of the store for txids and offsets.", "store", default=DEFAULT
    ),
    Option("tx.maxPending", "Most batches in flight.", "max_pending", whole()),
    Option(
        "tx.timeoutMs",
        "Longest processing or commit phase, ms. Doubles after each time-out of the"
        " batch, up to eight times this value.",
        "timeout_ms",
        whole(),
    ),
    Option(
        "tx.emitIntervalMs",
        "Least time between two batches, ms.",
        "emit_interval_ms",
        whole(0),
    ),
    Option(
        "tx.idlePauseMs",
        "Longest pause while there are no new records, ms. The first is 5 ms.",
        "idle_pause_ms",
        whole(),
    ),
    Option(
        "tx.retryMs",
        "Pause after a write or plan that failed, ms.",
        "retry_ms",
        whole(),
    ),
    Option(
        "tx.commitGroupId",
        "Kafka group to which committed offsets are copied.",
        "commit_group_id",
    ),
    Option(
        "tx.history",
        "Number of the last transactions that `kafka-tx history` can show. The store"
        " keeps at least 8. ZooKeeper always keeps 8.",
        "history",
        whole(0),
    ),
    Option(
        "tx.metricsPort",
        "Port of `/metrics` for this topology.",
        "metrics_port",
        lambda name, value: None if value is None else whole(0)(name, value),
    ),
    Option(
        "tx.metricsAddress",
        "Address of that port. `0.0.0.0` admits other machines.",
        "metrics_address",
    ),
    Option(
        "tx.statusPage",
        "`true` shows the status page to other machines that reach the port, too.",
        "shows_page",
        boolean,
    ),
    Option(
        "tx.progress",
        "`true` shows progress on the terminal.",
        "shows_progress",
        boolean,
    ),
)
"""Of all topologies."""

AT_LEAST_ONCE = (
    Option("tx.maxPending", "Most Spark jobs in flight.", "chunks", whole()),
    Option(
        "tx.chunkRecords",
        "Most records of one Spark job; 10000 if a bolt runs on the driver. Jobs begin"
        " with 10,000 records, and then get as many as a task does in 1 s. Slow bolts"
        " get fewer. The driver holds about 20 bytes for each record in flight.",
        "chunk_records",
        whole(),
        "1000000",
    ),
    Option(
        "topology.max.spout.pending", "Most records in flight.", "max_pending", whole()
    ),
    Option(
        "tx.deployment",
        "Name of this deployment in stored offsets, for `ignore_stored_offsets`.",
        "deployment",
        lambda _name, value: str(value),
    ),
)
"""Of at-least-once topologies, beside or instead of those of all."""
