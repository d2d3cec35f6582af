"""Every setting of an at-least-once Kafka spout, by Storm's names in Python form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, InitVar, dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from kafka_tx.config import check_id, check_topic, offset_ranges
from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.model import (
    AtTime,
    Earliest,
    Latest,
    Subscription,
    TopicPattern,
    Topics,
    with_port,
)
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.offsets.retry import BackOff
from kafka_tx.offsets.start import StartRules
from kafka_tx.offsets.unfinished import PartitionRules
from kafka_tx.option_rows import time_ms
from kafka_tx.topology.declare.spout_hosts import Hosts, StaticHosts, check_types
from kafka_tx.topology.rows.schemes import RawScheme, Scheme

logger = event_log(__name__)


class About(NamedTuple):
    """A setting's unit, its meaning, its least value, and Storm's name for it.

    Attributes:
        storm: Empty: Storm has none; None: the setting's name in Java's form.
    """

    unit: str
    meaning: str
    least: int | None = None
    storm: str | None = None


def _about(
    unit: str, meaning: str, least: int | None = None, storm: str | None = None
) -> dict[str, About]:
    return {"about": About(unit, meaning, least, storm)}


def _setting(
    default: _Value,
    unit: str,
    meaning: str,
    least: int | None = None,
    storm: str | None = None,
) -> _Value:
    return field(default=default, metadata=_about(unit, meaning, least, storm))


_Value = TypeVar("_Value")
_FOR_EVER = -1
_FARTHEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class SpoutConfig:
    """The settings of a ``KafkaSpout``. ``print(config)`` shows them as a table.

    The meaning, unit and Storm's name of each setting: ``SpoutConfig.table()``.

    Raises:
        ConfigError: A value is not legal, or contradicts another.

    Source: Storm, SpoutConfig and KafkaConfig (deviates: ``retry_limit`` 0 is no retry,
    not for ever; ``max_offset_behind`` None is no bound).
    """

    hosts: Hosts = field(
        metadata=_about(
            "", "BrokerHosts, ZkHosts or StaticHosts: the source of the partitions."
        )
    )
    topic: str = field(metadata=_about("name", "Topic to read."))
    id: str = _setting(
        "", "", "Name under which offsets are stored. Empty: the topology's id."
    )
    is_pattern: bool = _setting(
        False,
        "",
        "True: topic is a regular expression that matches whole names.",
        storm="kafka.topic.wildcard.match",
    )
    client_id: str = _setting("", "", "Name of the client in the brokers' logs.")
    fetch_size_bytes: int = _setting(
        1048576, "bytes", "Most bytes of one partition in one fetch.", least=1
    )
    socket_timeout_ms: int = _setting(
        10000, "ms", "Longest silence of a broker.", least=1
    )
    fetch_max_wait_ms: int | None = _setting(
        None,
        "ms",
        "Longest wait of a broker for min_fetch_bytes. None: 1.",
        least=0,
        storm="fetchMaxWait",
    )
    min_fetch_bytes: int | None = _setting(
        None,
        "bytes",
        "Bytes for which a broker waits. None: the client's default.",
        least=1,
        storm="minFetchByte",
    )
    buffer_size_bytes: int = _setting(
        1048576, "bytes", "Size of a socket's receive buffer.", least=1
    )
    scheme: Scheme = field(
        default_factory=RawScheme,
        metadata=_about(
            "", "Makes rows of records. A record without a row counts as completed."
        ),
    )
    ignore_stored_offsets: bool = _setting(
        False,
        "",
        "True: begin at start_offset_time if another deployment stored the offset.",
        storm="ignoreZkOffsets",
    )
    start_offset_time: Earliest | Latest | AtTime = field(
        default_factory=Earliest,
        metadata=_about(
            "",
            "Start without a stored offset: Earliest(), Latest(), AtTime(ms), -2,"
            " -1, ms.",
        ),
    )
    max_offset_behind: int | None = _setting(
        None,
        "offsets",
        "A record that failed is lost once one so far above it is completed. At most so"
        " many offsets of a partition are in flight. A stored offset so far below"
        " another start than Earliest() is not used. None: no limit.",
    )
    use_start_offset_time_if_offset_out_of_range: bool = _setting(
        True, "", "False: stop if the log was trimmed or cut; overrides out_of_range."
    )
    out_of_range: OutOfRange = _setting(
        OutOfRange.EARLIEST,
        "",
        "If the next offset is not in the log: earliest and nearest continue at"
        " the log start if the offset is below it, at the log end if it is"
        " above it; fail stops. Committed records are not read again, unless"
        " the topic is recreated. A partition that appears later starts at its"
        " earliest offset; if that is not 0, the offsets below it are lost, too.",
        storm="",
    )
    store: str | None = _setting(
        None,
        "URL",
        "URL of the offset store. kafka: stores in a group. None: tx.store.",
        storm="",
    )
    zk_servers: tuple[str, ...] | None = _setting(
        None, "", "Hosts of a ZooKeeper that stores the offsets, as with storm-kafka."
    )
    zk_port: int = _setting(
        2181, "port", "Port of zk_servers that are given without a port.", least=1
    )
    zk_root: str = _setting("/kafka_tx", "", "Root path of the offsets in ZooKeeper.")
    output_stream_id: str = _setting("default", "", "Only default is legal.")
    state_update_interval_ms: int = _setting(
        2000, "ms", "Time between two writes of offsets.", least=1
    )
    retry_initial_delay_ms: int = _setting(0, "ms", "Pause before the first retry.")
    retry_delay_multiplier: float = _setting(
        1.0, "factor", "Factor from one pause to the next."
    )
    retry_delay_max_ms: int = _setting(60000, "ms", "Longest pause before a retry.")
    retry_limit: int | None = _setting(
        None, "retries", "Most retries of a record. None or -1: no limit. 0: no retry."
    )
    max_uncommitted_offsets: int | None = _setting(
        10000000,
        "offsets",
        "Most uncommitted offsets of a partition; retries always run. None: no limit.",
    )
    dead_letter_topic: str | None = _setting(
        None,
        "",
        "Topic for records without retries left. None: they are skipped and counted.",
        storm="",
    )
    skip_offsets: str = _setting(
        "",
        "",
        "Offsets that are never read, such as 'orders-0:17-18,orders-3:40-50': records"
        " that brokers cannot give any more. The error about damaged records names"
        " them.",
        storm="",
    )
    kafka: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_about(
            "",
            "Settings of all Kafka clients, with names of Java or librdkafka.",
            storm="",
        ),
    )
    task_index: int = _setting(
        0,
        "",
        "Index of this job, if several jobs share the partitions.",
        least=0,
        storm="",
    )
    total_tasks: int = _setting(
        1, "", "Number of jobs that share the partitions.", least=1, storm=""
    )
    metrics_time_bucket_size_in_secs: InitVar[int | None] = None
    """Without effect: all metrics are updated as often as the topology decides."""

    def __post_init__(self, metrics_time_bucket_size_in_secs: int | None) -> None:
        if metrics_time_bucket_size_in_secs is not None:
            name = "metrics_time_bucket_size_in_secs"
            logger.warning("setting '%s' of Storm has no effect here", name)
        check_types(self)
        self._set("start_offset_time", _start(self.start_offset_time))
        self._set("out_of_range", OutOfRange.parse(self.out_of_range))
        if self.retry_limit == _FOR_EVER:
            self._set("retry_limit", None)
        if self.max_offset_behind == _FARTHEST:
            self._set("max_offset_behind", None)
        for name, about in ABOUT.items():
            least, value = about.least, getattr(self, name)
            if least is not None and value is not None and value < least:
                raise ConfigError.illegal(name, value, f"a whole number from {least}")
        if self.id:
            check_id(self.id, "id")
        offset_ranges("skip_offsets", self.skip_offsets)
        self._check_choices()
        self.partition_rules("")

    def _check_choices(self) -> None:
        if not self.topic:
            raise ConfigError.illegal("topic", self.topic, "a topic's name")
        if not self.is_pattern:
            check_topic("topic", self.topic)
        if self.dead_letter_topic is not None:
            check_topic("dead_letter_topic", self.dead_letter_topic)
        if self.is_pattern and isinstance(self.hosts, StaticHosts):
            legal = "false with StaticHosts, which name partitions of one topic"
            raise ConfigError.illegal("is_pattern", self.is_pattern, legal)
        if self.output_stream_id != "default":
            legal = "default: a spout emits one stream"
            raise ConfigError.illegal("output_stream_id", self.output_stream_id, legal)
        if self.store is not None and self.zk_servers is not None:
            legal = "not set together with zk_servers"
            raise ConfigError.illegal("store", self.store, legal)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    # --- settings for the parts -------------------------------------------------------

    @property
    def subscription(self) -> Subscription:
        """The topics of the coordinator."""
        return TopicPattern(self.topic) if self.is_pattern else Topics((self.topic,))

    @property
    def refresh_interval_ms(self) -> int:
        """Time between two polls for topics and leaders."""
        return self.hosts.refresh_freq_secs * 1_000

    @property
    def policy(self) -> OutOfRange:
        """The policy for an offset that is not in the log."""
        may_move = self.use_start_offset_time_if_offset_out_of_range
        return self.out_of_range if may_move else OutOfRange.FAIL

    def back_off(self) -> BackOff:
        """When failed records are tried again."""
        return BackOff(
            initial_delay_ms=self.retry_initial_delay_ms,
            multiplier=self.retry_delay_multiplier,
            max_delay_ms=self.retry_delay_max_ms,
            limit=self.retry_limit,
        )

    def partition_rules(
        self, topology_name: str, deployment: str = ""
    ) -> PartitionRules:
        """The rules of partition managers."""
        return PartitionRules(
            back_off=self.back_off(),
            max_uncommitted_offsets=self.max_uncommitted_offsets,
            max_offset_behind=self.max_offset_behind,
            out_of_range=self.policy,
            topology_id=deployment or topology_name,
            topology_name=topology_name,
        )

    def start_rules(self, deployment: str) -> StartRules:
        """Where partitions start."""
        return StartRules(
            position=self.start_offset_time,
            topology_id=deployment,
            ignore_stored_offsets=self.ignore_stored_offsets,
            max_offset_behind=self.max_offset_behind,
            out_of_range=self.policy,
        )

    def client_options(self) -> dict[str, str]:
        """Options of Kafka clients, without the addresses; ``kafka`` wins."""
        own = {
            "client.id": self.client_id or None,
            "max.partition.fetch.bytes": self.fetch_size_bytes,
            "fetch.max.wait.ms": self.fetch_max_wait_ms,
            "fetch.min.bytes": self.min_fetch_bytes,
            "receive.buffer.bytes": self.buffer_size_bytes,
        }
        given = {name: str(value) for name, value in own.items() if value is not None}
        return {**given, **self.kafka}

    @property
    def store_url(self) -> str | None:
        """URL of the offset store; None: the topology decides."""
        if self.zk_servers is None:
            return self.store
        hosts = ",".join(with_port(host, self.zk_port) for host in self.zk_servers)
        return f"zookeeper://{hosts}/{self.zk_root.strip('/')}"

    # --- output for people ------------------------------------------------------------

    @classmethod
    def table(cls) -> str:
        """Every setting with its default, unit, meaning and Storm's name; Markdown."""
        lines = [
            "| setting | default | unit | meaning | in Storm |",
            "|" + " --- |" * 5,
        ]
        for setting in fields(cls):
            about = ABOUT[setting.name]
            storm = _in_java(setting.name) if about.storm is None else about.storm
            lines.append(
                f"| `{setting.name}` | {_default(setting)} | {about.unit} |"
                f" {about.meaning} | {storm} |"
            )
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        """Every setting with its value and unit; of ``kafka`` only the names."""
        rows = [(n, self._shown(n), about.unit) for n, about in ABOUT.items()]
        widths = [max(len(row[n]) for row in rows) for n in range(2)]
        return "\n".join(
            f"{name:<{widths[0]}}  {value:<{widths[1]}}  {unit}".rstrip()
            for name, value, unit in rows
        )

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        if name == "kafka":
            return ", ".join(sorted(value)) or "none"
        return str(value.value) if isinstance(value, OutOfRange) else str(value)

    def __repr__(self) -> str:
        return f"SpoutConfig({self.hosts!r}, topic={self.topic!r}, id={self.id!r})"


ABOUT: dict[str, About] = {
    each.name: each.metadata["about"] for each in fields(SpoutConfig)
}
"""Each setting's row."""


def _in_java(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _start(given: object) -> Earliest | Latest | AtTime:
    match given:
        case Earliest() | Latest():
            return given
        case AtTime(at):
            return AtTime(time_ms("start_offset_time", at))
        case -2:
            return Earliest()
        case -1:
            return Latest()
        case int() if given >= 0 and not isinstance(given, bool):
            return AtTime(time_ms("start_offset_time", given))
        case _:
            legal = "Earliest(), Latest(), AtTime(ms), -2, -1, or epoch milliseconds"
            raise ConfigError.illegal("start_offset_time", given, legal)


def _default(setting: Field[Any]) -> str:
    if setting.default_factory is not MISSING:
        made = setting.default_factory()
        return "none" if made == {} else f"`{made!r}`"
    if setting.default is MISSING:
        return "required"
    value = setting.default
    return f"`{value.value if isinstance(value, OutOfRange) else value!r}`"
