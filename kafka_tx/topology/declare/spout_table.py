"""What the settings of an at-least-once Kafka spout mean."""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """One setting: its unit, Storm's name for it, and what it means."""

    unit: str
    storm: str
    meaning: str


ABOUT: dict[str, About] = {
    "hosts": About(
        "", "hosts", "StaticHosts, ZkHosts or BrokerHosts: who knows the partitions."
    ),
    "topic": About("name", "topic", "What is read."),
    "id": About(
        "",
        "id",
        "Names the consumer: under it offsets are stored. Empty: the topology's id.",
    ),
    "is_pattern": About(
        "",
        "kafka.topic.wildcard.match",
        "topic is a regular expression for whole names.",
    ),
    "client_id": About("", "clientId", "Shown in the brokers' logs."),
    "fetch_size_bytes": About(
        "bytes", "fetchSizeBytes", "Of one partition in one fetch."
    ),
    "socket_timeout_ms": About(
        "ms", "socketTimeoutMs", "How long a broker may be silent."
    ),
    "fetch_max_wait_ms": About(
        "ms",
        "fetchMaxWait",
        "How long a broker may wait for min_fetch_bytes; None: 10.",
    ),
    "min_fetch_bytes": About(
        "bytes", "minFetchByte", "What a broker waits for; None: the client's own."
    ),
    "buffer_size_bytes": About(
        "bytes", "bufferSizeBytes", "Of a socket's receive buffer."
    ),
    "scheme": About(
        "", "scheme", "From records to rows; a record without a row is done."
    ),
    "ignore_stored_offsets": About(
        "",
        "ignoreZkOffsets",
        "Begin at start_offset_time if another deployment stored the offset.",
    ),
    "start_offset_time": About(
        "",
        "startOffsetTime",
        "Where to begin without a stored offset. -2, -1 and epoch ms are taken too.",
    ),
    "max_offset_behind": About(
        "offsets",
        "maxOffsetBehind",
        "What is further behind is given up; None: nothing is.",
    ),
    "use_start_offset_time_if_offset_out_of_range": About(
        "",
        "useStartOffsetTimeIfOffsetOutOfRange",
        "False: stop when the log was trimmed or cut, whatever out_of_range says.",
    ),
    "out_of_range": About(
        "",
        "",
        "earliest or nearest: go on at the log start where that has passed the next"
        " offset, at the log end where that lies below it; fail: stop. What was"
        " committed is not read again, unless the topic is made anew.",
    ),
    "metrics_time_bucket_size_in_secs": About(
        "s",
        "metricsTimeBucketSizeInSecs",
        "How often metrics of partitions are brought up to date, at least.",
    ),
    "store": About(
        "URL",
        "",
        "URL of the offset store; kafka: is a group of the cluster. None: tx.store.",
    ),
    "zk_servers": About(
        "", "zkServers", "Store offsets in this ZooKeeper, as storm-kafka does."
    ),
    "zk_port": About("port", "zkPort", "Of zk_servers."),
    "zk_root": About("", "zkRoot", "Path of the offsets."),
    "output_stream_id": About("", "outputStreamId", "The only legal one is default."),
    "state_update_interval_ms": About(
        "ms", "stateUpdateIntervalMs", "Between two commits."
    ),
    "retry_initial_delay_ms": About(
        "ms", "retryInitialDelayMs", "Before the first retry."
    ),
    "retry_delay_multiplier": About(
        "factor", "retryDelayMultiplier", "From one retry to the next."
    ),
    "retry_delay_max_ms": About("ms", "retryDelayMaxMs", "The longest pause."),
    "retry_limit": About(
        "retries", "retryLimit", "Retries of a record; None or -1: for ever, 0: none."
    ),
    "max_uncommitted_offsets": About(
        "offsets",
        "maxUncommittedOffsets",
        "Of one partition; retries always go through. None: no bound.",
    ),
    "dead_letter_topic": About(
        "",
        "",
        "Takes records that have no retry left; None: they are skipped and counted.",
    ),
    "kafka": About(
        "", "", "Settings of all Kafka clients, Java's or librdkafka's names."
    ),
    "task_index": About("", "", "Of this job, where several share the partitions."),
    "total_tasks": About("", "", "Jobs that share the partitions."),
}
