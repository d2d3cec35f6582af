"""``kafka-tx doctor``: checks everything that a job needs."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console

from kafka_tx import assembly, native, sink_assembly
from kafka_tx.cli import lake_tables
from kafka_tx.cli.java import find_java
from kafka_tx.cli.kafka_logs import (
    KafkaConfigOption,
    KafkaOption,
    Logs,
    config_of,
    kafka_options,
    positions_of,
)
from kafka_tx.cli.lag import row_of
from kafka_tx.cli.lake_tables import Verdict
from kafka_tx.cli.positions import each_id
from kafka_tx.cli.stores import JsonOption, checked
from kafka_tx.config import SinkConfig
from kafka_tx.errors import (
    ConfigError,
    KafkaTxError,
    StateError,
    StateUnavailableError,
)
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster_checks import ClusterChecks, finalized_features
from kafka_tx.kafka.group_kinds import advice, foreign_kind
from kafka_tx.kafka.marker_topic import MarkerTopic
from kafka_tx.model import LogBounds, TopicDescription, Topics
from kafka_tx.own_topics import MARKER_TOPIC
from kafka_tx.planning.retention import is_near
from kafka_tx.running.worker_python import inspect_python
from kafka_tx.sql.store import clock_ahead_s, forgets
from kafka_tx.store_place import StoreKind, is_file, kind_of
from kafka_tx.transactions.layout.commit_stats import last_writes

SOCKETS = "spark.python.unix.domain.socket.enabled"
_PROBE = "kafka-tx-doctor"
MOST_APART_S = 2.0
_SINK = "kafka_tx.doctor"
_FEATURE = "transaction.version"
_PORT = 9092
"""Where clients look for a broker that is given without a port."""
_Check = Callable[[], tuple[Verdict, str]]
_STYLES: dict[Verdict, tuple[str, str]] = {
    "good": ("✓", "green"),
    "unknown": ("?", "cyan"),
    "advice": ("!", "yellow"),
    "bad": ("✗", "red"),
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check and its result."""

    what: str
    verdict: Verdict
    text: str


def doctor(
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(help="Also connect to these brokers: host:port,host:port"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="KAFKA_TX_STORE",
            help="Also test this store (tx.store) with a record.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Also check this topic. Repeat it for several."),
    ] = None,
    dead_letter_topic: Annotated[
        list[str] | None,
        typer.Option(help="Also check whether this topic takes dead letters."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Also check the rights on this group (tx.commitGroupId)."),
    ] = None,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, Spark and the reader; on request, brokers and a store.

    With brokers and a store, also whether the logs still hold the unread records of its
    ids. The exit code is 1 if something is missing, and 0 if a check has no result.
    """
    if bootstrap_servers is None and (topic or dead_letter_topic or group or kafka):
        why = "--topic, --dead-letter-topic, --group and --kafka need brokers to ask"
        raise ConfigError(why, option="--bootstrap-servers")
    options = None
    if bootstrap_servers is not None:
        options = kafka_options(bootstrap_servers, kafka, kafka_config)
    checks: list[tuple[str, _Check]] = [
        ("Python", _python),
        ("Java", _java),
        ("Spark", _spark),
        ("source", _source),
        ("workers", _workers),
        ("reader", _reader),
        ("sockets", _sockets),
        ("tasks", _speculation),
    ]
    if options is not None:
        checks += [
            ("brokers", lambda: _brokers(options)),
            ("isolation", lambda: isolation(options)),
        ]
        for name in topic or []:
            checks += [
                ("topic", partial(_topic, options, name)),
                ("rights", partial(topic_rights, options, name)),
                ("clock", partial(clock, options, name)),
            ]
        checks += [
            *(
                ("letters", partial(letters, options, name))
                for name in dead_letter_topic or []
            ),
            *(("group", partial(group_rights, options, name)) for name in group or []),
            ("markers", lambda: markers(options, topic or ())),
            ("promises", lambda: transactions(options)),
            ("versions", lambda: versions(options)),
        ]
    found = [_checked(*each) for each in checks]
    if store is not None:
        found += [_checked(*each) for each in _of_store(store, options)]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found]))
    else:
        _print(found)
    if any(finding.verdict == "bad" for finding in found):
        raise typer.Exit(1)


def _checked(what: str, check: _Check) -> CheckResult:
    try:
        verdict, text = check()
    except (KafkaTxError, ImportError, OSError) as error:
        return CheckResult(what, "bad", str(error))
    return CheckResult(what, verdict, text)


def _python() -> tuple[Verdict, str]:
    version = ".".join(map(str, sys.version_info[:3]))
    return "good", f"{version}, {sys.executable}"


def _java() -> tuple[Verdict, str]:
    java = find_java()
    return "good", f"{java.version}, {java.command}"


def _spark() -> tuple[Verdict, str]:
    version = importlib.metadata.version("pyspark")
    if tuple(map(int, version.split(".")[:2])) < (4, 0):
        return "bad", f"pyspark {version} is too old: pip install 'pyspark>=4.0,<5'"
    home = os.environ.get("SPARK_HOME")
    return "good", f"pyspark {version}" + (f", SPARK_HOME={home}" if home else "")


def _source() -> tuple[Verdict, str]:
    """Spark looks for formats in its workers' Python, not in this one."""
    version = importlib.metadata.version("kafka-tx")
    found = inspect_python()
    if found.finds_format:
        return "good", f'Spark finds format("kafka_tx") by name, version {version}'
    register = "spark.dataSource.register(kafka_tx.KafkaTxDataSource)"
    if found.has_package:
        return (
            "advice",
            f'Spark does not find format("kafka_tx") by name in {found.command} (an'
            f" editable installation is not seen): call {register}",
        )
    return "bad", f'Spark does not find format("kafka_tx"): {found.advice}'


def _workers() -> tuple[Verdict, str]:
    """Tasks run in this Python, which need not be the one of the driver."""
    found = inspect_python()
    if not found.exists:
        missing = f"Spark's tasks would run '{found.command}', which is missing"
        return "bad", f"{missing}; {found.advice}"
    if not found.has_package:
        missing = f"Spark's tasks would run {found.command}, which has no kafka_tx"
        return "bad", f"{missing}; {found.advice}"
    return "good", f"Spark's tasks run {found.command}"


def _reader() -> tuple[Verdict, str]:
    status = native.status()
    return ("good" if status.is_native else "advice"), str(status)


def _sockets() -> tuple[Verdict, str]:
    if _spark_defaults().get(SOCKETS) == "true":
        return "good", f"{SOCKETS}=true in spark-defaults.conf"
    return (
        "advice",
        f"set {SOCKETS}=true in the session or in spark-defaults.conf: small batches"
        " take less than half the time",
    )


def _speculation() -> tuple[Verdict, str]:
    if _spark_defaults().get("spark.speculation") == "true":
        return (
            "advice",
            "spark.speculation=true in spark-defaults.conf runs tasks twice: sinks"
            " of kafka_tx refuse that. Set it to false for these jobs",
        )
    return "good", "spark-defaults.conf does not run tasks twice (spark.speculation)"


def isolation(kafka: dict[str, str]) -> tuple[Verdict, str]:
    """Which records of transactions the source reads with these options."""
    level = client_settings(kafka, purpose="consumer")["isolation.level"]
    if level == "read_committed":
        return "good", "records of open and of aborted transactions are not read"
    return (
        "advice",
        f"isolation.level={level}, the default, also reads records of transactions that"
        " are open or were aborted, as Spark's own source. If producers of the topics"
        " use transactions, set kafka.isolation.level=read_committed, at a moment when"
        " none is open and the job has no unfinished batch",
    )


def _topic(kafka: dict[str, str], name: str) -> tuple[Verdict, str]:
    with closing(assembly.cluster_view(config_of(kafka))) as view:
        found = view.topics(Topics((name,))).get(name)
        bounds = view.bounds(found.partitions) if found else {}
    if found is None:
        return "bad", f"{name} does not exist, or this user may not describe it"
    silent = [f"{p}: {b.reason}" for p, b in bounds.items() if not hasattr(b, "end")]
    if silent:
        return "bad", f"{name}: {'; '.join(silent[:3])}"
    return "good", f"{name} has {len(bounds)} partitions, and their logs answer"


def _folder(given: str, url: str) -> tuple[Verdict, str]:
    if not is_file(url):
        return "good", "every machine finds the store under the same URL"
    if not given.startswith("@") and given != url:
        return (
            "advice",
            f"{given} begins in the folder that a process works in (now {url}), which"
            " may be another one at the next start. Give tx.store the absolute path of"
            " the file that the job has now",
        )
    return (
        "advice",
        f"{url} is a file of this machine: a driver that starts on another machine (a"
        " cluster, a container) does not find it. Use PostgreSQL or ZooKeeper there",
    )


def _of_store(given: str, kafka: dict[str, str] | None) -> Iterator[tuple[str, _Check]]:
    """Run each check before you take the next: the first makes a store that is new.

    A store that other commands cannot open has no further check.
    """
    try:
        url = checked(given)
        ids = _ids(url)
    except (ConfigError, StateUnavailableError) as error:
        yield "store", partial(_unreadable, error)
        return
    yield "store", lambda: _store(url, ids)
    yield "folder", lambda: _folder(given, url)
    yield from _tables(url)
    yield "clocks", lambda: _clock(url)
    if kafka is not None:
        yield "retention", lambda: _retention(kafka, given)


def _ids(url: str) -> list[str]:
    """The ids of a store; none if it is new, or if writing to it will say why not."""
    try:
        return assembly.stored_ids(url)
    except StateUnavailableError:
        raise
    except StateError:
        return []


def _tables(url: str) -> Iterator[tuple[str, _Check]]:
    """Tables of a lakehouse: whether they still know the batches of ids."""
    try:
        for _, found in each_id(url):
            if isinstance(found, StateError):
                yield "table", partial(_unreadable, found)
                continue
            for known in found:
                if known.current is None:  # a moved id's tables go on elsewhere
                    continue
                at = known.state.numbering, known.state.txid
                for write in last_writes(known.state.commit_stats):
                    yield "table", partial(lake_tables.inspect_table, write, *at)
    except KafkaTxError as error:
        yield "table", partial(_unreadable, error)


def _unreadable(error: KafkaTxError) -> tuple[Verdict, str]:
    return "bad", str(error)


def _retention(kafka: dict[str, str], url: str) -> tuple[Verdict, str]:
    """Whether retention has passed a position, or soon will."""
    with closing(Logs(kafka, is_once=True)) as logs:
        positions, unreadable = positions_of(url, None, logs)
        bounds = logs.poll(positions)
    outside, near = [f"{name} (unreadable)" for name in unreadable], []
    for name, of_id in positions.items():
        for partition, at in of_id.items():
            found = bounds[name].get(partition)
            row = row_of(partition, at, found)
            if row.get("is_outside") or "error" in row:
                outside.append(f"{name} in {partition}")
            elif isinstance(found, LogBounds) and is_near(at, found):
                near.append(f"{name} in {partition}")
    if outside:
        return "bad", f"see `kafka-tx lag`: {', '.join(outside[:3])} ({len(outside)})"
    if near:
        return (
            "advice",
            f"retention soon takes what is not read yet: {', '.join(near[:3])}"
            f" ({len(near)}). Read faster, or raise retention.ms",
        )
    return "good", f"the logs hold what {len(positions)} ids have not read yet"


def _spark_defaults() -> dict[str, str]:
    """Settings with lower-case values; the last line of a name counts."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    file = Path(folder, "spark-defaults.conf") if folder else None
    text = file.read_text("utf-8", "replace") if file and file.is_file() else ""
    lines = text.splitlines()
    pairs = (re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in lines)
    return {pair[0]: pair[-1].strip().lower() for pair in pairs}


def _brokers(kafka: dict[str, str]) -> tuple[Verdict, str]:
    _described(kafka, f"{_PROBE}-{uuid.uuid4().hex[:8]}")
    return "good", f"{kafka['bootstrap.servers']} answers"


def _store(url: str, ids: list[str]) -> tuple[Verdict, str]:
    with closing(assembly.open_store(url, _PROBE)) as store:
        epoch = store.acquire()
        store.write(epoch, {"probe": "written by kafka-tx doctor"})
        store.write(epoch, {}, ["probe"])
    weakness = forgets(url) if kind_of(url) is StoreKind.SQL else ""
    if not ids:
        weakness = weakness or (
            "holds no id: if a job has run, its tx.store is another one"
        )
    if weakness:
        return "advice", f"{store.url} can be written, but {weakness}"
    return "good", f"{store.url} can be written"


def _clock(url: str) -> tuple[Verdict, str]:
    ahead_s = clock_ahead_s(url) if kind_of(url) is StoreKind.SQL else None
    if ahead_s is None:
        return "good", "the store has no clock of its own, or nothing depends on it"
    if abs(ahead_s) > MOST_APART_S:
        return "advice", f"the database's clock is {ahead_s:+.0f} s off this one"
    return "good", "the database's clock is this machine's"


def _print(found: list[CheckResult]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for finding in found:
        sign, style = _STYLES[finding.verdict]
        console.print(f"[{style}]{sign}[/] {finding.what:<9}", end="")
        console.print(finding.text, markup=False)


def _described(kafka: dict[str, str], topic: str) -> TopicDescription | None:
    with closing(assembly.cluster_view(config_of(kafka))) as view:
        return view.topics(Topics((topic,))).get(topic)


def topic_rights(kafka: dict[str, str], topic: str) -> tuple[Verdict, str]:
    """READ is for sources, WRITE for sinks; exactly once needs both."""
    rights = ClusterChecks(kafka).topic_rights(topic)
    missing = [name for name in ("READ", "WRITE") if name not in rights]
    if not rights:
        return "unknown", f"the brokers do not tell what this user may do on {topic}"
    if not missing:
        return "good", f"this user may READ and WRITE {topic}"
    if len(missing) == 2:
        return "bad", f"this user may neither READ nor WRITE {topic}: grant one of them"
    needs = {"READ": "a source and an exactly-once sink need", "WRITE": "a sink needs"}
    return "advice", f"this user may not {missing[0]} {topic}: {needs[missing[0]]} it"


def group_rights(kafka: dict[str, str], group: str) -> tuple[Verdict, str]:
    """READ commits offsets of a group, which has to be one of consumers."""
    kind = foreign_kind(client_settings(kafka, purpose="admin"), group)
    if kind:
        return "bad", advice(group, kind)
    rights = ClusterChecks(kafka).group_rights(group)
    if rights is None:
        return "unknown", f"group {group} does not exist yet, so no broker tells rights"
    if "READ" in rights:
        return "good", f"this user may commit offsets of group {group}"
    return "bad", f"this user may not READ group {group}, which tx.commitGroupId needs"


def clock(kafka: dict[str, str], topic: str) -> tuple[Verdict, str]:
    """A record from the future: its producer's or broker's clock is ahead of ours."""
    found = _described(kafka, topic)
    newest_ms = ClusterChecks(kafka).newest_ms(found.partitions if found else ())
    if newest_ms is None:
        return "good", f"{topic} has no record whose time could be compared"
    ahead_s = newest_ms / 1_000 - time.time()
    if ahead_s > MOST_APART_S:
        return (
            "advice",
            f"the newest record of {topic} is {ahead_s:.0f} s in the future: the clock"
            " of this machine, of the broker or of the producer is wrong. Starts by"
            " time and lag in seconds are off by as much",
        )
    return "good", f"no record of {topic} is in the future"


def markers(kafka: dict[str, str], topics: Collection[str]) -> tuple[Verdict, str]:
    """The marker topic of exactly-once sinks stays, as safe as these topics."""
    if _described(kafka, MARKER_TOPIC) is None:
        return "good", f"{MARKER_TOPIC} is made by the first exactly-once sink"
    settings = client_settings(kafka, purpose="consumer")
    topic = MarkerTopic(MARKER_TOPIC, settings, MARKER_TOPIC)
    if topic.policy() is None:
        return "unknown", f"the brokers do not tell cleanup.policy of {MARKER_TOPIC}"
    topic.check_policy()
    checks = ClusterChecks(kafka)
    replicas = checks.replicas(MARKER_TOPIC)
    most = max((checks.replicas(name) for name in topics), default=0)
    if replicas < most:
        return (
            "advice",
            f"{MARKER_TOPIC} has fewer replicas ({replicas}) than a topic ({most}), and"
            " every exactly-once sink stops without it. Give it as many:"
            " kafka-reassign-partitions.sh",
        )
    return "good", f"{MARKER_TOPIC} is compacted: markers stay"


def letters(kafka: dict[str, str], topic: str) -> tuple[Verdict, str]:
    """What a job checks at its start, and how long dead letters stay."""
    config = SinkConfig(kafka=kafka, topic=topic)
    facts = sink_assembly.check_letter_topic("--dead-letter-topic", config)
    if not facts.is_known:
        return "unknown", f"the brokers do not tell what {topic} takes"
    if facts.retention_ms >= 0:
        days = facts.retention_ms / 86_400_000
        return (
            "advice",
            f"{topic} takes dead letters and removes them after {days:.3g} days at the"
            " latest (retention.ms). To keep them, set retention.ms=-1",
        )
    return "good", f"{topic} takes dead letters and keeps them"


def transactions(kafka: dict[str, str]) -> tuple[Verdict, str]:
    """Some cloud brokers refuse transactions; then no exactly-once sink works."""
    ClusterChecks(kafka).begin_transactions(_SINK)
    return (
        "good",
        f"the brokers took the transactional id '{_SINK}', and forget it in time",
    )


def versions(kafka: dict[str, str]) -> tuple[Verdict, str]:
    """KIP-890: a broker that lacks it may keep a late write of an old transaction."""
    if "SSL" in kafka.get("security.protocol", "").upper().split("_"):
        return (
            "unknown",
            f"{_FEATURE} (KIP-890) cannot be asked over TLS: ask the brokers' operator",
        )
    first = kafka["bootstrap.servers"].split(",")[0].strip()
    try:
        address = urlsplit("//" + first.rpartition("://")[2])
        host, port = address.hostname or "", address.port or _PORT
        level = finalized_features(host, port).get(_FEATURE, 0)
    except (OSError, ValueError) as error:  # also where the port is no number
        return "unknown", f"{first} did not tell {_FEATURE} (KIP-890): {error}"
    if level < 2:
        return (
            "advice",
            f"{_FEATURE} is {level}: the brokers cannot always tell a late write from"
            " one of the next transaction (KIP-890). Kafka 4.0 and later can, after"
            f" kafka-features.sh upgrade --feature {_FEATURE}=2",
        )
    return "good", f"{_FEATURE} is {level}: late writes are refused (KIP-890)"
