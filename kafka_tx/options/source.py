"""Parses Spark's options into a SourceConfig.

Names are case-insensitive. Precedence, defaults and texts follow Spark's Kafka source.
Source: Spark, KafkaSourceProvider (deviates: unknown options are named in a warning;
refused options name their replacement).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from kafka_tx.config import (
    REGISTRY,
    BatchLimits,
    EndRule,
    FromCommitted,
    PerPartition,
    SourceConfig,
    StartRule,
    TransactionsConfig,
    check_topic,
)
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.logs import event_log
from kafka_tx.model import (
    Assigned,
    AtTime,
    Earliest,
    Latest,
    Position,
    Subscription,
    TopicPartition,
    TopicPattern,
    Topics,
)
from kafka_tx.option_rows import Option, picked, rows, time_ms, values_of
from kafka_tx.options.formats import FIXED, FORMATS, record_formats
from kafka_tx.options.names import KAFKA, check_names
from kafka_tx.planning.offset_json import (
    parse_assign,
    parse_positions,
    parse_timestamps,
)
from kafka_tx.store_place import store_url

logger = event_log(__name__)

BROKERS = Option(
    "kafka.bootstrap.servers", "Brokers, `host:port,host:port`.", default="required"
)
SOURCE = (
    BROKERS,
    Option(
        "subscribe",
        "Topics, separated by commas. Set this, `subscribePattern` or `assign`.",
    ),
    Option(
        "subscribePattern",
        "Regular expression of Java. It may match any part of a topic's name. It never"
        " matches the topics of markers.",
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
        "Time for all partitions, epoch ms; -1 is the end, -2 the beginning. Overrides"
        " both options above.",
    ),
    Option(
        "endingOffsets", "Batch only: `latest` or offsets as JSON.", default="latest"
    ),
    Option("endingOffsetsByTimestamp", "Batch only: times as JSON of epoch ms."),
    Option("endingTimestamp", "Batch only: time for all partitions, epoch ms."),
    Option(
        "kafka.group.id",
        "Group id that the clients send to brokers.",
        default="generated",
    ),
    Option(
        "kafka.isolation.level",
        "`read_uncommitted`, as Spark's source: also reads records of transactions that"
        " are open or were aborted. `read_committed`: reads committed records only."
        " Change it while no transaction is open and no batch is unfinished: otherwise"
        " the job may stop as if the log had lost its end.",
        default="read_uncommitted",
    ),
    *rows(SourceConfig, BatchLimits),
    *FORMATS,
    *rows(TransactionsConfig),
)
"""Options of the source: those parsed together with others, then one field each."""

_KNOWN = {option.name.lower(): option.name for option in SOURCE}
_STRATEGIES = ("subscribe", "subscribepattern", "assign")
_ENDS = ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp")
_TRIGGER = (
    "maxbytespertrigger",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
)
_SINK = ("topic",)
_ELSEWHERE = {"topics": "subscribe"}
_START_WORDS: dict[str, StartRule] = {
    "earliest": Earliest(),
    "latest": Latest(),
    "committed": FromCommitted(otherwise=Earliest()),
    "committed:earliest": FromCommitted(otherwise=Earliest()),
    "committed:latest": FromCommitted(otherwise=Latest()),
    "committed:error": FromCommitted(otherwise=None),
}
_END_WORDS: dict[str, EndRule] = {"earliest": Earliest(), "latest": Latest()}

_Rule = TypeVar("_Rule")


def parse_source(options: Mapping[str, str], *, streaming: bool) -> SourceConfig:
    """Read and check all options (driver) before any contact; raises ConfigError."""
    given = {name.lower(): value for name, value in options.items()}
    if streaming:
        _refuse_ends(given)
    config = _config(given, "latest" if streaming else "earliest")
    if not streaming:
        _check_batch(config.start, config.end)
        for name in _TRIGGER:
            if name in given:
                logger.warning("%s option ignored in batch queries", _KNOWN[name])
    return config


def reads(config: SourceConfig, topic: str) -> bool:
    """Whether a source with this configuration reads a topic, if the topic is there."""
    wanted = config.subscription
    if isinstance(wanted, TopicPattern):
        return re.fullmatch(wanted.pattern, topic) is not None
    if isinstance(wanted, Topics):
        return topic in wanted.names
    return any(partition.topic == topic for partition in wanted.partitions)


def check_source(options: Mapping[str, str]) -> SourceConfig:
    """Check options of any read, at Spark's ``load()``; raises as ``parse_source``."""
    given = {name.lower(): value for name, value in options.items()}
    config = _config(given, "earliest", inner=())
    client_settings(config.kafka, purpose="consumer")
    return config


def _config(
    given: Mapping[str, str], start: str, inner: Collection[str] = FIXED
) -> SourceConfig:
    of_registry = [name for name in given if name.startswith(REGISTRY)]
    legal = [*inner, *of_registry, *_SINK]
    known = [*_KNOWN.values(), "path"]
    check_names(given, known, "source", inner=legal, elsewhere=_ELSEWHERE)
    require_brokers(given, "consumer")
    values = values_of(SOURCE, given)
    transactions = _transactions(given, values)
    values.setdefault(
        "fails_on_data_loss",
        transactions is None or transactions.mode == "transactional",
    )
    subscription = _subscription(given)
    return SourceConfig(
        subscription=subscription,
        formats=record_formats(given, subscription),
        kafka=kafka_options(given),
        start=_rule(given, "starting", start, _START_WORDS),
        end=_rule(given, "ending", "latest", _END_WORDS),
        limits=BatchLimits(**picked(BatchLimits, values)),
        transactions=transactions,
        **picked(SourceConfig, values),
    )


def _refuse_ends(given: Mapping[str, str]) -> None:
    for name in _ENDS:
        if name in given:
            raise ConfigError(
                f"ending {'offset' if name == 'endingoffsets' else 'timestamp'} not"
                f" valid in streaming queries; remove option '{_KNOWN[name]}'",
                option=_KNOWN[name],
            )


def require_brokers(given: Mapping[str, str], client: str) -> None:
    """Refuse options without ``kafka.bootstrap.servers``; raises ConfigError."""
    if f"{KAFKA}bootstrap.servers" not in given:
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka"
            f" {client}, e.g. 'host1:9092,host2:9092'",
            option="kafka.bootstrap.servers",
        )


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        how_many = "Only one" if chosen else "One"
        raise ConfigError(
            f"{how_many} of the following options {'can' if chosen else 'must'} be"
            " specified for Kafka source: subscribe, subscribePattern, assign. See the"
            " docs for more details.",
            option="subscribe",
        )
    name, value = chosen[0], given[chosen[0]]
    if name == "assign":
        assigned = parse_assign(value)
        for partition in assigned:
            check_topic("assign", partition.topic, value)
        return Assigned(assigned)
    if name == "subscribe":
        topics = tuple(dict.fromkeys(t.strip() for t in value.split(",") if t.strip()))
        if not topics:
            raise ConfigError(
                "No topics to subscribe to as specified value for option 'subscribe' is"
                f" '{value}'",
                option="subscribe",
                value=value,
            )
        for topic in topics:
            check_topic("subscribe", topic, value)
        return Topics(topics)
    return _pattern(value)


def _pattern(value: str) -> TopicPattern:
    pattern = value.strip()
    if not pattern:
        raise ConfigError(
            "Pattern to subscribe is empty as specified value for option"
            f" 'subscribePattern' is '{value}'",
            option="subscribePattern",
            value=value,
        )
    try:
        return TopicPattern(from_java(pattern))
    except PatternError as error:
        raise ConfigError.illegal(
            "subscribePattern", value, f"a regular expression ({error})"
        ) from None


def _rule(
    given: Mapping[str, str], side: str, default: str, words: Mapping[str, _Rule]
) -> _Rule | AtTime | PerPartition:
    """Where reading starts or ends; ``side`` is what the options' names begin with."""
    timestamp, by_time = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    if timestamp.lower() in given:
        return AtTime(time_ms(timestamp, given[timestamp.lower()]))
    if by_time.lower() in given:
        times = parse_timestamps(by_time, given[by_time.lower()])
        positions = {p: AtTime(time_ms(by_time, ms)) for p, ms in times.items()}
        return PerPartition(positions=positions)
    offsets = f"{side}Offsets"
    text = given.get(offsets.lower(), default).strip()
    word = words.get(text.lower())
    if word is not None:
        return word
    return PerPartition(positions=parse_positions(offsets, text))


def _check_batch(start: StartRule, end: EndRule) -> None:
    if isinstance(start, Latest):
        raise ConfigError(
            "starting offset can't be latest for batch queries on Kafka",
            option="startingOffsets",
        )
    if isinstance(end, Earliest):
        raise ConfigError(
            "ending offset can't be earliest for batch queries on Kafka",
            option="endingOffsets",
        )
    for partition in _at(start, Latest):
        raise ConfigError(
            f"startingOffsets for {partition} can't be latest for batch queries on"
            " Kafka",
            option="startingOffsets",
        )
    for partition in _at(end, Earliest):
        raise ConfigError(
            f"ending offset for {partition} can't be earliest for batch queries on"
            " Kafka",
            option="endingOffsets",
        )


def _at(rule: StartRule, kind: type[Position]) -> list[TopicPartition]:
    positions = rule.positions if isinstance(rule, PerPartition) else {}
    return [p for p, position in positions.items() if isinstance(position, kind)]


def kafka_options(given: Mapping[str, str]) -> dict[str, str]:
    """The ``kafka.*`` options without their prefix."""
    return {
        name.removeprefix(KAFKA): value
        for name, value in given.items()
        if name.startswith(KAFKA)
    }


def _transactions(
    given: Mapping[str, str], values: Mapping[str, Any]
) -> TransactionsConfig | None:
    if "tx.id" not in given:
        alone = [name for name in given if name.startswith("tx.")]
        if alone:
            raise ConfigError(
                f"option '{_KNOWN[alone[0]]}' needs option 'tx.id', the name of this"
                " query's durable transactions",
                option="tx.id",
            )
        return None
    return TransactionsConfig(
        **{"store": store_url(None), **picked(TransactionsConfig, values)}
    )


_CLASSES = {
    **dict.fromkeys(("Lower", "Ll", "javaLowerCase", "IsLowercase"), "a-z"),
    **dict.fromkeys(("Upper", "Lu", "javaUpperCase", "IsUppercase"), "A-Z"),
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic"), "a-zA-Z"),
    **dict.fromkeys(("Digit", "N", "Nd", "IsDigit"), "0-9"),
    "Alnum": "a-zA-Z0-9",
    "Punct": "._\\-",
}
"""After ``\\p``, with what stands in a class of Python."""

_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)"
    r"|\\(?P<sign>[pP])(?:\{(?P<long>[^}]*)\}|(?P<short>[A-Z]))"
    r"|\\k<(?P<again>\w+)>"
    r"|\(\?<(?P<named>[a-zA-Z]\w*)>"
    r"|\\(?P<escaped>.)"
    r"|(?P<opened>\[\^?\]?)"
    r"|(?P<flags>\(\?[a-zA-Z]*x)"
    r"|.",
    re.DOTALL,
)


class PatternError(ValueError):
    """A pattern cannot be used; says why and what to write instead."""


def from_java(pattern: str) -> str:
    """The pattern for Python's ``re``, for any part of a name; raises PatternError."""
    flags = re.match(r"(?:\(\?[a-zA-Z]+\))*", pattern)
    start = flags.end() if flags else 0
    on = "".join(sorted(set(pattern[:start]) & set("imsx")))
    translated = f"{f'(?{on})' if on else ''}.*(?:{_translated(pattern[start:])}).*"
    if "x" in on:
        raise PatternError("the flag x is not supported: write the pattern without it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(translated)
    except (re.error, OverflowError, Warning) as error:
        raise PatternError(str(error)) from None
    return translated


def _translated(pattern: str) -> str:
    parts = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text.startswith("\\"):
            text = _behind_backslash(token, in_class=in_class)
        elif in_class:
            if token["opened"]:
                raise PatternError(
                    "a class has another class in it: write all its characters in one,"
                    r" as in [a-z0-9]; for the character itself write \["
                )
            in_class = text != "]"
        elif token["named"]:
            text = f"(?P<{token['named']}>"
        elif token["flags"]:
            raise PatternError(f"{text} has the flag x, which is not supported")
        else:
            in_class = bool(token["opened"])
        parts.append(text)
    return "".join(parts)


def _behind_backslash(token: re.Match[str], *, in_class: bool) -> str:
    if token["quoted"] is not None:
        return re.escape(token["quoted"])
    if token["sign"]:
        return _class(token, in_class=in_class)
    if token["again"]:
        return f"(?P={token['again']})"
    if token["escaped"] == "0":
        raise PatternError(r"\0 begins an octal number: write the character itself")
    return r"\Z" if token["escaped"] in ("z", "Z") else token[0]


def _class(token: re.Match[str], *, in_class: bool) -> str:
    found = _CLASSES.get(token["long"] or token["short"] or "")
    if found is None or (in_class and token["sign"] == "P"):
        raise PatternError(
            f"{token[0]} is not known here: write the characters it means, as in [a-z]"
        )
    if in_class:
        return found
    return f"[{'^' if token['sign'] == 'P' else ''}{found}]"
