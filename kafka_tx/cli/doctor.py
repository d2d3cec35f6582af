"""``kafka-tx doctor``: is everything here that a job needs?"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from kafka_tx import assembly, native
from kafka_tx.cli.java import find_java
from kafka_tx.cli.lag import (
    TIMEOUT_MS,
    KafkaConfigOption,
    KafkaOption,
    kafka_options,
)
from kafka_tx.cli.stores import JsonOption, text_or_file
from kafka_tx.config import SourceConfig
from kafka_tx.errors import KafkaTxError
from kafka_tx.model import Earliest, Topics
from kafka_tx.running.worker_python import look_at
from kafka_tx.sql.store import forgets

Verdict = Literal["good", "advice", "bad"]

SOCKETS = "spark.python.unix.domain.socket.enabled"
_PROBE = "kafka-tx-doctor"
_STYLES: dict[Verdict, tuple[str, str]] = {
    "good": ("✓", "green"),
    "advice": ("!", "yellow"),
    "bad": ("✗", "red"),
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at."""

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
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, Spark and the reader; on request, brokers and a store.

    The exit code is 1 if something is missing.
    """
    found = [
        _checked("Python", _python),
        _checked("Java", _java),
        _checked("Spark", _spark),
        _checked("source", _source),
        _checked("workers", _workers),
        _checked("reader", _reader),
        _checked("sockets", _sockets),
    ]
    if bootstrap_servers is not None:
        options = kafka_options(bootstrap_servers, kafka, kafka_config)
        found.append(_checked("brokers", lambda: _brokers(options)))
    if store is not None:
        found.append(_checked("store", lambda: _store(text_or_file(store))))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found]))
    else:
        _print(found)
    if any(finding.verdict == "bad" for finding in found):
        raise typer.Exit(1)


def _checked(what: str, check: Callable[[], tuple[Verdict, str]]) -> CheckResult:
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
    found = look_at()
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
    found = look_at()
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
    for line in _spark_defaults():
        name, _, value = line.partition(" ")
        if name == SOCKETS and value.strip().lower() == "true":
            return "good", f"{SOCKETS}=true in spark-defaults.conf"
    return (
        "advice",
        f"set {SOCKETS}=true in the session or in spark-defaults.conf: small batches"
        " take less than half the time",
    )


def _spark_defaults() -> Iterator[str]:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    file = Path(folder, "spark-defaults.conf") if folder else None
    if file is not None and file.is_file():
        for line in file.read_text().splitlines():
            yield line.strip().replace("=", " ", 1).replace("\t", " ")


def _brokers(kafka: dict[str, str]) -> tuple[Verdict, str]:
    config = SourceConfig(
        subscription=Topics(()),
        kafka=kafka,
        start=Earliest(),
        poll_timeout_ms=TIMEOUT_MS,
        num_retries=1,
    )
    view = assembly.cluster_view(config)
    probe = f"{_PROBE}-{uuid.uuid4().hex[:8]}"
    try:
        view.topics(Topics((probe,)))
    finally:
        view.close()
    return "good", f"{kafka['bootstrap.servers']} answers"


def _store(url: str) -> tuple[Verdict, str]:
    store = assembly.open_store(url, _PROBE)
    try:
        epoch = store.acquire()
        store.write(epoch, {"probe": "written by kafka-tx doctor"})
        store.write(epoch, {}, ["probe"])
    finally:
        store.close()
    weakness = forgets(url) if "://" in url and not store.url.startswith("zoo") else ""
    if weakness:
        return "advice", f"{store.url} can be written, but {weakness}"
    return "good", f"{store.url} can be written"


def _print(found: list[CheckResult]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    for finding in found:
        sign, style = _STYLES[finding.verdict]
        console.print(f"[{style}]{sign}[/] {finding.what:<9}", end="")
        console.print(finding.text, markup=False)
