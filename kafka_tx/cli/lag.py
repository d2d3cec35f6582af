"""``kafka-tx lag``: lag behind the log end, and headroom above the log start."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from kafka_tx import assembly
from kafka_tx.cli.positions import committed_of, each_id
from kafka_tx.cli.stores import (
    STORE,
    JsonOption,
    StoreOption,
    checked,
    opened,
    text_or_file,
)
from kafka_tx.config import SourceConfig
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import (
    Earliest,
    Latest,
    LogBounds,
    LogPosition,
    Position,
    TopicPartition,
    TopicPattern,
    Topics,
    Unavailable,
)
from kafka_tx.offsets.position_checks import Finding, PositionCheck, check_position
from kafka_tx.planning.log_bounds import Bounds, EpochEnds
from kafka_tx.store_place import StoreKind, kind_of

TIMEOUT_MS = 10_000
Positions: TypeAlias = Mapping[TopicPartition, LogPosition]
_FIGURES = ("committed", "log_start", "end", "lag", "headroom")

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
        " --command-config of Kafka's tools. --kafka overrides it.",
    ),
]


def kafka_options(
    bootstrap_servers: str, more: list[str] | None, file: Path | None = None
) -> dict[str, str]:
    """The clients' options from the command line and from a file.

    Raises:
        ConfigError: One has no ``=``, or a file cannot be read.
    """
    options = {}
    for text in _lines(file) if file is not None else ():
        name, value = _pair("--kafka-config", _with_sign(text))
        options[name] = value
    options["bootstrap.servers"] = bootstrap_servers
    for text in more or []:
        name, value = _pair("--kafka", text)
        options[name] = text_or_file(value)
    return options


def _lines(file: Path) -> list[str]:
    found = [line.strip() for line in text_or_file(f"@{file}").splitlines()]
    return [line for line in found if line and not line.startswith(("#", "!"))]


def _with_sign(line: str) -> str:
    """A line of Java's properties, which may have ``:`` or a blank instead of ``=``."""
    return re.sub(r"^([^=:\s]+)\s*(?:[=:]|\s)\s*", r"\1=", line)


def _pair(option: str, text: str) -> tuple[str, str]:
    """Name and value; the value may be a secret and is never shown."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ConfigError.illegal(
            option, "***", f"NAME=VALUE, as in {option} security.protocol=SSL"
        )
    return name.strip().lower().removeprefix("kafka."), value.strip()


class Logs:
    """Polls the logs of some ids, each checked against its own positions."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._config = config_of(kafka)
        self._view = assembly.cluster_view(self._config)
        self._ends: dict[str, EpochEnds] = {}

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
        ends = self._ends.setdefault(name, EpochEnds(self._view))
        found = {p: bounds[p] for p in positions if p in bounds}
        return ends.completed(found, positions)

    def resolve(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int | Unavailable]:
        """Offsets at these positions; the end where no record is at a time or later.

        Raises: as ``poll``.
        """
        found = self._view.offsets(wanted)
        late = [p for p, at in found.items() if at is None]
        ends = self._view.offsets(dict.fromkeys(late, Latest())) if late else {}
        unknown = Unavailable("the brokers do not know it")
        answers = {p: found.get(p, unknown) for p in wanted}
        return {
            p: at if at is not None else ends.get(p) or 0 for p, at in answers.items()
        }

    def group(self, name: str) -> Positions:
        """The offsets of a consumer group, as at-least-once topologies store them.

        Raises:
            StateCorruptedError, FormatError: Metadata of ours cannot be read.
            StateUnavailableError, KafkaError: As of ``KafkaGroupOffsetStore.load``.
        """
        topics = self._view.topics(TopicPattern(".*"))
        partitions = [each for topic in topics.values() for each in topic.partitions]
        with closing(assembly.offset_store("kafka:", name, self._config)) as offsets:
            found = offsets.load(partitions)
        return {p: at.position for p, at in sorted(found.items())}

    def close(self) -> None:
        """Release connections."""
        self._view.close()


def config_of(kafka: Mapping[str, str]) -> SourceConfig:
    """Settings for a view of a cluster, with short time-outs."""
    return SourceConfig(
        subscription=Topics(()),
        kafka=kafka,
        start=Earliest(),
        poll_timeout_ms=TIMEOUT_MS,
        num_retries=1,
    )


class StoredPositions(NamedTuple):
    """Committed positions of ids, and the ids that cannot be read."""

    positions: dict[str, Positions]
    unreadable: dict[str, StateError]


def positions_of(url: str, wanted: str | None, logs: Logs) -> StoredPositions:
    """The committed positions of an id, or of all ids that have some.

    Raises:
        StateError: The wanted id has none, or those of two topologies.
        StateCorruptedError, FormatError: The wanted id cannot be read.
    """
    if kind_of(text_or_file(url)) is StoreKind.GROUP:
        if wanted is None:
            raise ConfigError(
                "the offsets of --store kafka: are those of a consumer group, and its"
                " name is the id of the topology: add --id",
                option="--id",
            )
        return StoredPositions({wanted: logs.group(wanted)}, {})
    if wanted is not None:
        with opened(url, wanted) as state:
            _, committed = committed_of(url, state)
        of_id = dict(sorted(committed.positions().items()))
        return StoredPositions({wanted: of_id}, {})
    found = StoredPositions({}, {})
    for name, doors in each_id(checked(url)):
        if isinstance(doors, StateError):
            found.unreadable[name] = doors
            continue
        at: dict[TopicPartition, LogPosition] = {}
        for one in doors:
            at |= one.state.committed.positions() if one.state.committed else {}
        if at:
            found.positions[name] = dict(sorted(at.items()))
    return found


def lag(
    bootstrap_servers: Annotated[str, typer.Option(help="host:port,host:port")],
    id_: Annotated[
        str | None, typer.Option("--id", help="Show only this tx.id.")
    ] = None,
    store: StoreOption = STORE,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    serve: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Serve the figures for Prometheus at this port until you end the"
            " command: the same metrics as the endpoint of a driver.",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address for --serve; 0.0.0.0 admits other machines.")
    ] = "127.0.0.1",
    as_json: JsonOption = False,
) -> None:
    """Show committed offset, log start, end, lag and headroom of each partition.

    Lag is end minus committed; headroom is committed minus log start: negative if
    retention removed unread records. Offsets count, also where the log has holes. A
    topic that was deleted and created again was not read yet: all of it is lag. Where
    brokers lost the end of a log, lag counts from where other records follow.

    The exit code is 1 if a topic does not exist, if an offset is outside of its log, if
    brokers do not report them, or if a record of an id cannot be read. With --store
    kafka:, the id is the name of the group.
    """
    options = kafka_options(bootstrap_servers, kafka, kafka_config)
    if serve is not None:
        from kafka_tx.cli.exporter import export

        export(store, id_, options, serve, address)
        return
    with closing(Logs(options)) as logs:
        positions, unreadable = positions_of(store, id_, logs)
        bounds = logs.poll(positions)
    rows = [
        {"id": name} | row_of(p, at, bounds[name].get(p))
        for name, of_id in positions.items()
        for p, at in of_id.items()
    ]
    errors = [{"id": id_, "error": str(error)} for id_, error in unreadable.items()]
    if as_json:
        typer.echo(json.dumps([*rows, *errors]))
    else:
        if rows or not errors:
            _print(rows)
        for error in errors:
            typer.echo(f"id {error['id']}: {error['error']}")
    if errors or any(_is_trouble(row) for row in rows):
        raise typer.Exit(1)


def _is_trouble(row: Mapping[str, object]) -> bool:
    return "error" in row or bool(row.get("is_outside"))


def row_of(
    partition: TopicPartition,
    committed: LogPosition,
    found: LogBounds | Unavailable | None,
) -> dict[str, object]:
    """A partition's row: its figures, or why they are unknown."""
    row: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": committed.offset,
    }
    if not isinstance(found, LogBounds):
        return row | {"error": found.reason if found else "the brokers do not know it"}
    check = check_position(committed, found)
    if check.finding is Finding.UNANSWERED:
        reason = f"no broker tells whether its topic still has id {committed.topic_id}"
        if found.topic_id is not None:
            reason += f", and its log still goes on from epoch {committed.leader_epoch}"
        return row | {"error": reason}
    if note := _note(committed, found, check):
        row["note"] = note
    if check.finding in {Finding.CUT, Finding.TRIMMED}:
        row["is_outside"] = True
    return row | {
        "log_start": found.log_start,
        "end": found.end,
        "lag": max(0, found.end - check.reached),
        "headroom": check.reached - found.log_start,
    }


def _note(committed: LogPosition, found: LogBounds, check: PositionCheck) -> str:
    match check.finding:
        case Finding.ANEW:
            return (
                f"offset {committed.offset} is of a topic that was deleted; all there"
                " is now is lag"
            )
        case Finding.TRIMMED:
            return (
                f"{check.lost} offsets that were not read are gone: the log starts"
                f" at {found.log_start} (retention, or records were deleted)"
            )
        case Finding.CUT if check.is_certain:
            return (
                f"the log that was read to {committed.offset} ends at"
                f" {check.reached}: records were lost (unclean leader election), and"
                " all that follows there is lag"
            )
        case Finding.CUT:
            return (
                f"offset {committed.offset} is beyond the end of the log, {found.end}:"
                " brokers lost records, or this is another cluster than the job's"
            )
        case _:
            return ""


def _print(rows: list[dict[str, object]]) -> None:
    console = Console(highlight=False, markup=False)
    for name, of_id in groupby(rows, key=lambda row: str(row["id"])):
        if any(row["id"] != name for row in rows):
            console.print(f"id {name}", style="bold", soft_wrap=True)
        _print_id(console, list(of_id))
    if not rows:
        console.print("no id of the store has committed offsets")


def _print_id(console: Console, rows: list[dict[str, object]]) -> None:
    errors, notes = [], []
    for topic, of_topic in groupby(rows, key=lambda row: str(row["topic"])):
        console.print(topic, style="bold", soft_wrap=True)
        table = _table()
        for row in of_topic:
            names = ("partition", *_FIGURES)
            table.add_row(*[str(row.get(name, "?")) for name in names])
            partition = f"{topic}-{row['partition']}"
            if "error" in row:
                errors.append(f"{partition}: {row['error']}")
            if "note" in row:
                notes.append(f"{partition}: {row['note']}")
        console.print(table)
    total = sum(int(str(row.get("lag", 0))) for row in rows)
    console.print(f"lag in total: {total}{' at least' if errors else ''}")
    for line in errors + notes:
        console.print(line, soft_wrap=True)


def _table() -> Table:
    """Columns as wide for every topic; offsets of 11 digits fit 80 columns."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("partition", *_FIGURES):
        width = 0 if name == "partition" else 11
        label = name.replace("_", " ")
        table.add_column(label, justify="right", min_width=width, no_wrap=True)
    return table
