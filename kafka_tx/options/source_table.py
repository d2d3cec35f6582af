"""Every option of the source, with what it does."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_tx.store_place import DEFAULT


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
        "subscribePattern",
        "",
        "Regular expression (Java's), found anywhere in a topic's name.",
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
    Option("tx.store", DEFAULT, "URL of the store that keeps them."),
    Option("tx.mode", "transactional", "`transactional` or `opaque`."),
    Option("tx.commitGroupId", "", "Kafka group that committed offsets go to."),
    Option(
        "tx.onDisagreement",
        "error",
        "`error`, `checkpoint` or `store`: which of the two decides when Spark's"
        " checkpoint and the store contradict each other.",
    ),
)
