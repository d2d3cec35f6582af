"""Logs of Kafka and stored positions, as several commands read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import typer

from kafka_tx import assembly
from kafka_tx.cli.positions import (
    committed_of,
    each_id,
    positions_in,
    refuse_copied,
)
from kafka_tx.cli.stores import (
    checked,
    file_text,
    opened,
    text_or_file,
    url_or_file,
)
from kafka_tx.config import SourceConfig
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import (
    CommittedOffset,
    Earliest,
    LogPosition,
    Position,
    TopicPartition,
    TopicPattern,
    Topics,
    Unavailable,
)
from kafka_tx.planning.log_bounds import Bounds, EpochEnds
from kafka_tx.planning.retention import RetentionEdges
from kafka_tx.planning.start_positions import matched_or_ends
from kafka_tx.store_place import StoreKind, kind_of

TIMEOUT_MS = 10_000
_COMMENT_OR_LINE = re.compile(r"[ \t\f]*[#!].*|(?:\\[\s\S]|[^\\\n])+")
_NAME_AND_VALUE = re.compile(
    r"((?:\\.|[^\\=: \t\f])*)([ \t\f]*[=:]?[ \t\f]*)((?:\\.|[^\\])*?)[ \t\f]*",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
Positions: TypeAlias = Mapping[TopicPartition, LogPosition]

KafkaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help="One more kafka.* option, without the prefix. Repeat it for several"
        " options. NAME=@FILE reads the value from a file.",
    ),
]
KafkaConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kafka-config",
        envvar="KAFKA_TX_KAFKA_CONFIG",
        help="A file with one kafka.* option a line, NAME=VALUE, as for"
        " --command-config of Kafka's tools. Escapes are undone: write each"
        " backslash twice. --kafka overrides it.",
    ),
]


def kafka_options(
    bootstrap_servers: str, more: list[str] | None, file: Path | None = None
) -> dict[str, str]:
    """The clients' options from the command line and from a file.

    Raises:
        ConfigError: One has no ``=``, or a file cannot be read.
    """
    options = dict(_properties(file)) if file is not None else {}
    options["bootstrap.servers"] = bootstrap_servers
    for text in more or []:
        pair = text.partition("=")
        name, value = _pair("--kafka", *pair, "an option --kafka")
        options[name] = text_or_file(value.strip())
    return options


def _properties(file: Path) -> Iterator[tuple[str, str]]:
    """Names and values, read as ``java.util.Properties`` does; the file is UTF-8.

    A line that ends with a backslash has the next one, too. Blanks around a value go,
    as Kafka's clients drop them; escaped ones stay. Then escapes are undone.
    """
    where = "a line of the file of --kafka-config"
    for found in _COMMENT_OR_LINE.findall(file_text(file)):
        line = re.sub(r"(\\\\)|\\\n[ \t\f]*", r"\1", found).lstrip(" \t\f")
        pair = _NAME_AND_VALUE.fullmatch(line)
        if line and not line.startswith(("#", "!")) and pair is not None:
            name, sign, value = pair.groups()
            name, value = _unescaped(name, where), _unescaped(value, where)
            sign = sign if value else sign.strip()  # blanks alone are none
            yield _pair("--kafka-config", name, sign, value, where)


def _unescaped(text: str, where: str) -> str:
    try:
        meant = _ESCAPE.sub(_meant, text)
        return meant.encode("utf-16", "surrogatepass").decode("utf-16")  # of two parts
    except ValueError:
        raise ConfigError(
            f"{where} has \\u without the four hexadecimal digits of a character. Write"
            " each backslash twice, as in Java's properties",
            option="--kafka-config",
        ) from None


def _meant(escape: re.Match[str]) -> str:
    character = escape[1]
    if character.startswith("u"):
        return chr(int(character[1:], 16))
    return _ESCAPED.get(character, character)


def _pair(option: str, name: str, sign: str, value: str, where: str) -> tuple[str, str]:
    """Name and value; the value may be a secret and is never shown."""
    if not sign or not name.strip():
        raise ConfigError(
            f"{where} has no name or no value; legal: NAME=VALUE, as"
            " security.protocol=SSL",
            option=option,
        )
    return name.strip().lower().removeprefix("kafka."), value


class Logs:
    """Polls the logs of some ids, each checked against its own positions.

    ``is_once``: as of ``RetentionEdges``.
    """

    def __init__(self, kafka: Mapping[str, str], *, is_once: bool = False) -> None:
        self._is_once = is_once
        self._config = config_of(kafka)
        self._view = assembly.cluster_view(self._config)
        self._ends: dict[str, tuple[EpochEnds, RetentionEdges]] = {}

    def poll(self, positions: Mapping[str, Positions]) -> dict[str, Bounds]:
        """The log bounds of each id's partitions now.

        Raises:
            BrokerUnavailableError: No broker answered within 10 s.
            AuthenticationError: Credentials, permission or TLS.
            ConfigError: An option cannot be used.
        """
        asked = {p for of_id in positions.values() for p in of_id}
        bounds = self._view.bounds(asked)
        return {name: self._of(name, bounds, at) for name, at in positions.items()}

    def _of(self, name: str, bounds: Bounds, positions: Positions) -> Bounds:
        if name not in self._ends:
            clock = assembly.SystemClock()
            edges = RetentionEdges(self._view, clock, is_once=self._is_once)
            self._ends[name] = EpochEnds(self._view), edges
        ends, edges = self._ends[name]
        found = {p: bounds[p] for p in positions if p in bounds}
        return edges.completed(ends.completed(found, positions), lambda: positions)

    def resolve(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int | Unavailable]:
        """Offsets at these positions; the end where no record is at a time or later.

        Raises: as ``poll``.
        """
        found = matched_or_ends(self._view, wanted)
        known = {p: at for p, at in found.items() if at is not None}
        unknown = Unavailable("the brokers do not know it")
        return {p: known.get(p, unknown) for p in wanted}

    def group(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        """The offsets of a consumer group, as at-least-once topologies store them.

        Raises:
            StateCorruptedError, FormatError: Metadata of ours cannot be read.
            StateUnavailableError, KafkaError: As of ``KafkaGroupOffsetStore.load``.
        """
        topics = self._view.topics(TopicPattern(".*"))
        partitions = [each for topic in topics.values() for each in topic.partitions]
        with closing(assembly.offset_store("kafka:", name, self._config)) as offsets:
            return dict(sorted(offsets.load(partitions).items()))

    def partitions(self, topics: Iterable[str]) -> dict[str, list[TopicPartition]]:
        """The partitions of those of these topics that exist. Raises: as ``poll``."""
        found = self._view.topics(Topics(tuple(topics)))
        return {name: topic.partitions for name, topic in found.items()}

    def close(self) -> None:
        """Release connections."""
        self._view.close()


def config_of(kafka: Mapping[str, str]) -> SourceConfig:
    """Settings for a view of a cluster, with short time-outs."""
    return SourceConfig(
        subscription=Topics(()),
        kafka=kafka,
        start=Earliest(),
        request_timeout_ms=TIMEOUT_MS,
        num_retries=1,
    )


class StoredPositions(NamedTuple):
    """Committed positions of ids, and the ids that cannot be read."""

    positions: dict[str, Positions]
    unreadable: dict[str, StateError]


def positions_of(url: str, wanted: str | None, logs: Logs) -> StoredPositions:
    """The committed positions of an id, or of all ids that have some here.

    Raises:
        StateError: The wanted id or group has none, or those of two topologies, or was
            moved.
        StateCorruptedError, FormatError: The wanted id cannot be read.
    """
    if kind_of(url_or_file(url)) is StoreKind.GROUP:
        if wanted is None:
            raise ConfigError(
                "the offsets of --store kafka: are those of a consumer group, and its"
                " name is the id of the topology: add --id",
                option="--id",
            )
        of_group = {p: at.position for p, at in logs.group(wanted).items()}
        if not of_group:
            raise StateError(
                f"the brokers have no committed offsets of a group '{wanted}': there is"
                " no such group, it has not committed yet, or its offsets have expired"
                " (offsets.retention.minutes). `kafka-consumer-groups.sh --list` shows"
                " the groups that they have",
                id=wanted,
            )
        return StoredPositions({wanted: of_group}, {})
    if wanted is not None:
        with opened(url, wanted) as state:
            known = committed_of(url, state).state
            refuse_copied(wanted, known, "lag")
        of_id = dict(sorted(known.position.positions().items()))
        return StoredPositions({wanted: of_id}, {})
    found = StoredPositions({}, {})
    for name, doors in each_id(checked(url)):
        if isinstance(doors, StateError):
            found.unreadable[name] = doors
            continue
        if at := positions_in(doors):
            found.positions[name] = at
    return found
