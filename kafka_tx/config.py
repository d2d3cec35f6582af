"""Option groups, as frozen values; ``options/`` makes them from text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Literal, get_args

from kafka_tx.errors import ConfigError, harmless
from kafka_tx.model import (
    AtTime,
    Earliest,
    Latest,
    OffsetRange,
    Position,
    SchemaText,
    Subscription,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.model import Mode as Mode
from kafka_tx.option_rows import (
    boolean,
    choice,
    duration_ms,
    option,
    row,
    size_bytes,
    whole,
)
from kafka_tx.own_topics import MARKER_TOPIC, check_not_own
from kafka_tx.store_place import DEFAULT, store_url

LONGEST_ID = 200
LEGAL_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_ID}}}")


def check_id(value: str, option: str = "tx.id") -> str:
    """Return ``value`` if every store can hold it as an id; raises ConfigError."""
    is_text = isinstance(value, str)
    if not is_text or not LEGAL_ID.fullmatch(value) or value in {".", ".."}:
        raise ConfigError.illegal(
            option,
            harmless(value),
            "1 to 200 of the characters A-Z a-z 0-9 . _ -",
            "Choose an id that stays the same over restarts of this job.",
        )
    return value


def derived_id(value: str, suffix: str) -> str:
    """An id of ours beside a user's, with a legal length: a digest replaces the end."""
    if len(value) + len(suffix) <= LONGEST_ID:
        return f"{value}{suffix}"
    digest = sha256(value.encode()).hexdigest()[:16]
    kept = value[: LONGEST_ID - len(suffix) - len(digest) - 1]
    return f"{kept}-{digest}{suffix}"


_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic(option: str, name: str, value: object = None) -> str:
    """Return ``name`` if it can be the name of a user's topic; raises ConfigError.

    ``value`` is all that was given, for the text of the error; None: the name.
    """
    check_not_own(option, name)
    return check_name(option, name, value)


def check_name(option: str, name: str, value: object = None) -> str:
    """As ``check_topic``, for topics of kafka_tx's own, too."""
    if not _LEGAL_TOPIC.fullmatch(name) or name in {".", ".."}:
        raise ConfigError.illegal(
            option,
            name if value is None else value,
            "names of topics, which have 1 to 249 of the characters A-Z a-z 0-9 . _ -",
            f"{name!r} is none.",
        )
    return name


LEGAL_OPTIONS = 'a dictionary such as {"kafka.bootstrap.servers": "host:9092"}'


def check_kind(
    option: str, value: object, kinds: type | tuple[type, ...], legal: str
) -> None:
    """Refuse a value of a wrong type: ConfigError. True and False are no numbers."""
    is_odd = isinstance(value, bool) and kinds is not bool
    if is_odd or not isinstance(value, kinds):
        raise ConfigError.illegal(option, value, legal)


def never_runs(function: object) -> bool:
    """Whether a call only makes a generator or a coroutine, which nobody runs."""
    kinds = isgeneratorfunction, iscoroutinefunction, isasyncgenfunction
    called = function, getattr(type(function), "__call__", None)  # noqa: B004
    return any(is_kind(each) for is_kind in kinds for each in called)


def check_function(option: str, value: object, legal: str) -> None:
    """Refuse what is no function, and a function that never runs: ConfigError."""
    if not callable(value) or never_runs(value):
        raise ConfigError.illegal(option, value, f"{legal}, without async or yield")


def check_attempt(value: object) -> None:
    """Refuse what is no attempt of a batch: ConfigError."""
    legal = "the TransactionAttempt that a function of for_each_transaction is given"
    check_kind("attempt", value, TransactionAttempt, legal)


@dataclass(frozen=True, kw_only=True, slots=True)
class PerPartition:
    """A position for each partition, all of them named."""

    positions: Mapping[TopicPartition, Position]


@dataclass(frozen=True, kw_only=True, slots=True)
class FromCommitted:
    """The position in the store, else in the Kafka group, else ``otherwise``.

    None: having no committed offset is an error.
    """

    otherwise: Earliest | Latest | None = field(default_factory=Earliest)


StartRule = Earliest | Latest | AtTime | PerPartition | FromCommitted
EndRule = Earliest | Latest | AtTime | PerPartition


COMMIT_GROUP = (
    "tx.commitGroupId",
    "Kafka group to which committed offsets are copied.",
)
HISTORY = (
    "tx.history",
    "Number of the last transactions that `kafka-tx history` can show. The store"
    " keeps at least 8. ZooKeeper always keeps 8.",
    whole(0),
)
"""Rows that the source and topologies share."""


_SINK_BATCH_IDS = re.compile(r"unknown|ignored|forgotten@(0|[1-9][0-9]{0,17})")


def sink_batch_ids(name: str, value: object) -> str:
    """A word about the batch ids in a sink; raises ConfigError."""
    word = str(value).strip().lower()
    if not _SINK_BATCH_IDS.fullmatch(word):
        legal = "unknown, ignored, or forgotten@ and the number in the error"
        raise ConfigError.illegal(name, value, legal)
    return word


def offset_ranges(name: str, value: object) -> tuple[OffsetRange, ...]:
    """Ranges of offsets, separated by commas; raises ConfigError."""
    if not isinstance(value, str):
        raise ConfigError.illegal(name, value, "text such as 'orders-0:17-18'")
    parts = filter(None, map(str.strip, value.split(",")))
    return tuple(OffsetRange.of_option(name, part) for part in parts)


POLL_TIMEOUT_MS = 120_000
"""Longest wait of a task without a record; Spark's default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionsConfig:
    """Durable transactions of one query (options ``tx.*``).

    An empty ``store`` stores nothing. An empty ``if_owned`` refuses a living owner if
    Spark says that the run is bounded, and takes over from it if not.
    """

    id: str = field(
        metadata=row(
            "tx.id",
            "Name of the query. Makes each batch a transaction.",
            lambda _name, value: value.strip(),
        )
    )
    store: str = option(
        "",
        "tx.store",
        "URL of the store for txids and offsets.",
        lambda _name, value: store_url(value),
        shown=DEFAULT,
    )
    mode: Mode = option(
        "transactional",
        "tx.mode",
        "`transactional`: a replay holds the same records. `opaque`: it may hold"
        " other records.",
        choice(*get_args(Mode)),
    )
    commit_group_id: str | None = option(
        None, *COMMIT_GROUP, lambda _name, value: value or None
    )
    on_disagreement: Literal["error", "checkpoint", "store"] = option(
        "error",
        "tx.onDisagreement",
        "Which side decides if Spark's checkpoint and the store contradict each other:"
        " `checkpoint` or `store`. `error` stops the query. A query with several"
        " sources always stops.",
        choice("error", "checkpoint", "store"),
    )
    if_owned: Literal["", "fence", "refuse"] = option(
        "",
        "tx.ifOwned",
        "If another run of the same `tx.id` is alive: `fence` takes over from it,"
        " `refuse` ends this start.",
        choice("fence", "refuse"),
        shown="fence; availableNow: refuse",
    )
    sink_batch_ids: str = option(
        "unknown",
        "tx.sinkBatchIds",
        "If Spark's batch ids start again: `unknown` stops unless the sink asks for"
        " txids. `ignored` says that the sink remembers no batch ids. `forgotten@`"
        " and a number, as the error says, that it was emptied since.",
        sink_batch_ids,
    )
    history: int = option(100, *HISTORY)

    def __post_init__(self) -> None:
        check_id(self.id)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLimits:
    """How much one batch takes, and into how many tasks it is cut. None: no limit.

    Attributes:
        max_records: Offsets in a batch, shared among partitions in proportion to the
            offsets that they hold. A partition that has any gets at least one.
        max_records_per_partition: Offsets of one partition in a batch of a spout;
            offsets of one task in a batch of a source.
        max_bytes: Of keys and values in a batch. The number of records is estimated,
            from samples (source) or from the batches before (spouts), so a batch may
            hold more.
        max_delay_ms: Longest time since the last batch that ``min_records`` may wait.

    Raises:
        ConfigError: A limit is below 1, or the least is more than the most.
    """

    max_records: int | None = option(
        None,
        "maxOffsetsPerTrigger",
        "Most offsets of one batch. Partitions share them in proportion.",
        whole(),
    )
    max_records_per_partition: int | None = option(
        None, "maxRecordsPerPartition", "Most offsets that one task reads.", whole()
    )
    max_bytes: int | None = option(
        None,
        "maxBytesPerTrigger",
        "About the most bytes of keys and values of one batch, such as `64m`; estimated"
        " from samples.",
        size_bytes,
    )
    min_records: int | None = option(
        None,
        "minOffsetsPerTrigger",
        "Wait until this many offsets are available …",
        lambda name, value: whole(0)(name, value) or None,
    )
    max_delay_ms: int = option(
        15 * 60 * 1000,
        "maxTriggerDelay",
        "… but no longer than this time.",
        duration_ms,
        shown="15m",
    )
    min_partitions: int | None = option(
        None,
        "minPartitions",
        "Split the batch into about this many tasks or more.",
        whole(),
    )

    def __post_init__(self) -> None:
        for name in set(self.__slots__) - {"max_delay_ms"}:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError.illegal(name, value, "a whole number from 1, or None")
        low, high = self.min_records, self.max_records
        if low is not None and high is not None and low > high:
            raise ConfigError(
                f"The value of minOffsetPerTrigger({low}) is higher than the"
                f" maxOffsetsPerTrigger({high}).",
                option="minOffsetsPerTrigger",
                value=low,
            )

    @property
    def waits_ms(self) -> int:
        """Longest time that records wait until there are enough; 0: they do not."""
        return 0 if self.min_records is None else self.max_delay_ms


REGISTRY = "schema.registry."
"""Beginning of the options of the schema registry's client."""


def registry_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The ``schema.registry.*`` options without their prefix; raises ConfigError."""
    found = {
        name.removeprefix(REGISTRY): value
        for name, value in given.items()
        if name.startswith(REGISTRY)
    }
    if "url" in found and not found["url"].strip():
        raise ConfigError.illegal(
            "schema.registry.url", found["url"], "an address as http://registry:8081"
        )
    if found and "url" not in found:
        raise ConfigError(
            f"option '{REGISTRY}{min(found)}' needs option 'schema.registry.url', the"
            " address of the registry",
            option="schema.registry.url",
        )
    return found


Side = Literal["key", "value"]


_SCHEMAS = "latest, a version, id:N, @ and a file, or the text of a schema"


def legal_schema(option: str, value: str, *, has_registry: bool) -> str:
    """The value of ``value.schema`` without blanks; raises ConfigError."""
    word = value.strip()
    is_text = word.startswith(("@", "{", "[", '"'))
    number = word.removeprefix("id:")
    is_known = word == "latest" or (number.isdecimal() and 0 < int(number) < 1 << 32)
    if not is_text and not is_known:
        raise ConfigError.illegal(option, word[:200], _SCHEMAS)
    if not is_text and not has_registry:
        raise ConfigError(
            f"the schema of option '{option}' is {word}, and there is no"
            " 'schema.registry.url'. Set the address of the registry; or for records"
            f" without a schema id {option}=@ and a file, or the text of the schema",
            option="schema.registry.url",
        )
    return word


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFormat:
    """How the keys or the values of records become a typed column.

    Attributes:
        schema: ``latest``, a version, ``id:N``, or the text of a schema.
        subject: Of ``latest`` and of a version; empty: they are not asked for.
        is_permissive: A broken record is null, with its reason and bytes beside it.
        registry: Settings of the registry's client; empty: records have no schema id,
            and are written with the reader's schema.
        reader: The reader's schema, fixed at ``load()``; None before.
    """

    side: Side
    schema: str = "latest"
    subject: str = ""
    is_permissive: bool = False
    registry: Mapping[str, str] = field(default_factory=dict)
    reader: SchemaText | None = None

    @property
    def is_text(self) -> bool:
        """Whether the schema was given as a file or a text."""
        return self.schema.startswith(("@", "{", "[", '"'))

    def __repr__(self) -> str:
        """Name the schema; never the registry's settings, which may hold secrets."""
        known = self.reader.name if self.reader else self.schema
        return f"RecordFormat({self.side}, {known[:80]})"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceConfig:
    """All settings of the drop-in source.

    Attributes:
        formats: Of the columns ``key`` and ``value``, where they are not bytes.
        kafka: The ``kafka.*`` options without their prefix, Java or librdkafka names.
        start: Where a query without progress begins.
        end: Where a batch read ends.
        request_timeout_ms: Of the driver's requests to the brokers.
    """

    subscription: Subscription
    kafka: Mapping[str, str]
    start: StartRule
    end: EndRule = field(default_factory=Latest)
    start_without_match: Literal["error", "latest"] = option(
        "error",
        "startingOffsetsByTimestampStrategy",
        "If no record is at or after the time: `error` or `latest`.",
        choice("error", "latest"),
    )
    fails_on_data_loss: bool = option(
        True,
        "failOnDataLoss",
        "`true`: stop if Kafka has removed records that the query needs. `false`: skip"
        " and count them.",
        boolean,
        shown="true; opaque: false",
    )
    include_headers: bool = option(
        False, "includeHeaders", "Add the column `headers`.", boolean
    )
    limits: BatchLimits = field(default_factory=BatchLimits)
    group_id_prefix: str = option(
        "spark-kafka-source",
        "groupIdPrefix",
        "Prefix of generated group ids.",
        lambda _name, value: str(value),
    )
    poll_timeout_ms: int = option(
        POLL_TIMEOUT_MS,
        "kafkaConsumer.pollTimeoutMs",
        "Longest wait of a task without a record, ms.",
        whole(),
    )
    num_retries: int = option(
        3,
        "fetchOffset.numRetries",
        "How often a failed request for offsets is repeated. Each attempt has 7.5 s or"
        " more.",
        whole(),
    )
    retry_interval_ms: int = option(
        1000,
        "fetchOffset.retryIntervalMs",
        "Pause before each repetition, ms.",
        whole(0),
    )
    request_timeout_ms: int = 30_000
    formats: tuple[RecordFormat, ...] = ()
    skip_offsets: tuple[OffsetRange, ...] = option(
        (),
        "skipOffsets",
        "Offsets that are never read, such as `orders-0:17-18,orders-3:40-50`: records"
        " that brokers cannot give any more. The error about damaged records names"
        " them.",
        offset_ranges,
        shown="none",
    )
    transactions: TransactionsConfig | None = None

    @property
    def schemas(self) -> dict[str, str]:
        """By side the names of the readers' schemas, once they are fixed."""
        return {each.side: each.reader.name for each in self.formats if each.reader}

    def __repr__(self) -> str:
        """Name what is read; never the Kafka settings, which may hold secrets."""
        tx = f", tx.id={self.transactions.id}" if self.transactions else ""
        return f"SourceConfig({self.subscription}{tx})"


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkConfig:
    """All settings of the Kafka sink.

    Attributes:
        topic: Wins over the column of the same name.
        id: Names the sink for exactly once; None is at-least-once.
        attempt: The batch that is written; given with ``id``.
        parts, life, compares, run, reads_all_markers: As of ``sink_parts.Part``.
        memory: The markers that the driver has read; empty: none.
        formats: Of the columns ``key`` and ``value``, where they are not bytes.
        registers: Whether a schema that is given as a text is registered.
        marker_topic: The topic with the markers of exactly-once sinks.
    """

    kafka: Mapping[str, str]
    topic: str | None = None
    id: str | None = option(
        None,
        "tx.id",
        "Name of the sink. Each part of a batch is then written once.",
        lambda _name, value: value.strip(),
    )
    attempt: TransactionAttempt | None = None
    parts: int = 1
    life: str = ""
    compares: bool = True
    run: str = ""
    reads_all_markers: bool = False
    memory: str = ""
    marker_topic: str = MARKER_TOPIC
    formats: tuple[RecordFormat, ...] = ()
    registers: bool = False
    takes_timestamp: bool = option(
        False,
        "timestampColumn",
        "Use the column `timestamp` as time of the records. Spark's sink does not.",
        boolean,
    )

    def __post_init__(self) -> None:
        if self.id is not None:
            check_id(self.id)

    def __repr__(self) -> str:
        """Name what is written; never the Kafka settings, which may hold secrets."""
        return f"SinkConfig(topic={self.topic}, id={self.id}, attempt={self.attempt})"
