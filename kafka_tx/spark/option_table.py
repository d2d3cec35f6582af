"""Every option and setting, in tables that also print themselves for the README."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kafka_tx.config import DEFAULT_STORE
from kafka_tx.spark.topologies.settings import SETTINGS, Setting, TopologySettings
from kafka_tx.topology.spout_config import SpoutConfig


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the options table."""

    name: str
    default: str
    sentence: str


OPTIONS = (
    Option("kafka.bootstrap.servers", "required", "Brokers, `host:port,host:port`."),
    Option("subscribe", "", "Topics, separated by commas. One of the three is given."),
    Option(
        "subscribePattern", "", "Regular expression, found anywhere in a topic's name."
    ),
    Option("assign", "", 'Partitions, `{"topicA":[0,1]}`.'),
    Option(
        "startingOffsets",
        "latest; batch: earliest",
        "`earliest`, `latest`, `committed[:earliest|latest|error]`, or JSON"
        ' `{"topicA":{"0":23,"1":-1}}` (-1 latest, -2 earliest). For new queries only.',
    ),
    Option("startingOffsetsByTimestamp", "", "JSON of epoch ms for each partition."),
    Option("startingTimestamp", "", "Epoch ms for all partitions; wins over the two."),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "`error` or `latest`, where no record is at or after the time.",
    ),
    Option("endingOffsets", "latest", "Batch only: `latest` or JSON."),
    Option("endingOffsetsByTimestamp", "", "Batch only: JSON of epoch ms."),
    Option("endingTimestamp", "", "Batch only: epoch ms for all partitions."),
    Option(
        "failOnDataLoss",
        "true; opaque: false",
        "Stop when needed records are gone from Kafka; else skip and count them.",
    ),
    Option("minPartitions", "", "Cut ranges into at least about so many tasks."),
    Option("maxRecordsPerPartition", "", "Most offsets one task reads."),
    Option("maxOffsetsPerTrigger", "", "Most offsets of one batch, split in share."),
    Option("minOffsetsPerTrigger", "", "Wait for so many offsets …"),
    Option("maxTriggerDelay", "15m", "… but no longer than this."),
    Option("includeHeaders", "false", "Add the column `headers`."),
    Option("groupIdPrefix", "spark-kafka-source", "Prefix of generated group ids."),
    Option("kafka.group.id", "generated", "Group id the clients present."),
    Option("kafkaConsumer.pollTimeoutMs", "120000", "Longest wait without progress."),
    Option("fetchOffset.numRetries", "3", "Tries of an offset request."),
    Option("fetchOffset.retryIntervalMs", "1000", "Pause between them."),
    Option("tx.id", "", "Name of the durable transactions; turns them on."),
    Option("tx.store", DEFAULT_STORE, "URL of the store that keeps them."),
    Option("tx.mode", "transactional", "`transactional` or `opaque`."),
    Option("tx.commitGroupId", "", "Kafka group that committed offsets go to."),
    Option(
        "tx.onDisagreement",
        "error",
        "`error`, `checkpoint` or `store`: which of the two decides when Spark's"
        " checkpoint and the store contradict each other.",
    ),
)

SINK_OPTIONS = (
    Option("kafka.bootstrap.servers", "required", "Brokers, `host:port,host:port`."),
    Option("topic", "column `topic`", "Topic of every row; wins over the column."),
    Option("tx.id", "", "Name of the sink's transactions: each part is written once."),
    Option("tx.txid", "", "The batch that is written; `write_transaction` gives it."),
    Option("tx.parts", "1", "Kafka transactions of each batch."),
)

RECORD_SETTINGS = (
    Option("tx.maxPending", "2", "Spark jobs in flight."),
    Option("tx.chunkRecords", "10000", "Records of one Spark job."),
    Option("topology.max.spout.pending", "", "Records in flight."),
    Option("tx.deployment", "", "Name in stored offsets, for `ignore_stored_offsets`."),
)
"""What an at-least-once topology is told beside, or instead of, the settings of all."""


def options_markdown(options: tuple[Option, ...] = OPTIONS) -> str:
    """A table of options for the README."""
    rows = ["| option | default | what it does |", "| --- | --- | --- |"]
    for option in options:
        sentence = option.sentence.replace("|", "\\|")
        rows.append(f"| `{option.name}` | {option.default or '—'} | {sentence} |")
    return "\n".join(rows)


def settings_markdown() -> str:
    """The settings of topologies, as a table for the README."""
    first = {setting.field: setting.name for setting in reversed(SETTINGS)}
    return options_markdown(
        tuple(
            Option(s.name, _default(s), s.sentence)
            if first[s.field] == s.name
            else Option(s.name, "", f"{s.sentence} `{first[s.field]}` wins.")
            for s in SETTINGS
        )
    )


def _default(setting: Setting) -> str:
    settings = TopologySettings()
    for holder in (settings, settings.pacing):
        if hasattr(holder, setting.field):
            value = getattr(holder, setting.field)
            return "" if value is None else str(value).lower()
    return ""


class Table(StrEnum):
    """What a table configures."""

    SOURCE = "source"
    SINK = "sink"
    TOPOLOGY = "topology"
    AT_LEAST_ONCE = "at-least-once"
    SPOUT = "spout"

    def markdown(self) -> str:
        """The table as the README has it."""
        return _TABLES[self]()


_TABLES: dict[Table, Callable[[], str]] = {
    Table.SOURCE: options_markdown,
    Table.SINK: lambda: options_markdown(SINK_OPTIONS),
    Table.TOPOLOGY: settings_markdown,
    Table.AT_LEAST_ONCE: lambda: options_markdown(RECORD_SETTINGS),
    Table.SPOUT: lambda: SpoutConfig.table().rstrip(),
}
