"""The command ``kafka-tx``: its sub-commands, and how its errors are shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.resources import files
from io import TextIOWrapper
from textwrap import indent
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.logs import shown
from kafka_tx.stored import VERSION

RUNBOOK = "docs/runbook.md"

_PROMETHEUS_RULE = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {}
spec:
"""

_COMMANDS = {
    "demo": "Count words while the job is killed, and compare the counts.",
    "status": "Show epoch, committed txid, offsets and unfinished txids of each id.",
    "top": "Show all ids live, the longest silent first.",
    "history": "Show what the last transactions of an id held.",
    "lag": "Show how far each id is behind the log, and ahead of retention.",
    "offsets": "Show, set, delete or repair committed offsets.",
    "skip": "Take an unfinished batch for processed although it is not.",
    "rename": "Give an id another name, with its position and numbering.",
    "store": "Copy a store to another database, and verify what a store holds.",
    "dead-letters": "Show dead letters, or send them back to their topics.",
    "doctor": "Check Python, Java, Spark and the reader; also brokers and a store.",
    "options": "Print a table of options, with defaults.",
    "metrics": "Print the table of all metrics.",
    "dashboard": "Print the Grafana dashboard as JSON, for import.",
    "rules": "Print the Prometheus alert rules, for a file of rule_files.",
}
"""Names and help texts; each command is imported when called, as imports are slow.

``kafka_tx.cli.NAME`` has a function or a Typer called NAME, but for ``_TOGETHER``.
"""
_TOGETHER = {
    "options": "tables",
    "metrics": "tables",
    "dashboard": "main",
    "rules": "main",
    "top": "status",
    "rename": "moving",
}


class Commands(TyperGroup):
    """Sub-commands. Errors of kafka_tx end as text and an exit code, no traceback.

    The exit code is 1 for a problem that was found, 2 for wrong use.
    """

    _is_listing = False

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer hides click
        """Run the chosen sub-command."""
        if isinstance(sys.stdout, TextIOWrapper):  # it may know no ✓ and no dash
            sys.stdout.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except KafkaTxError as error:
            typer.echo(f"kafka-tx: {shown(str(error))}", err=True)
            is_wrong_use = isinstance(error, ConfigError)
            raise typer.Exit(2 if is_wrong_use else 1) from None

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - as above
        """All names, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        """The command, imported now; in the list of commands only its help text."""
        text = _COMMANDS.get(cmd_name)
        if text is None or not self._is_listing:
            return text and _loaded(cmd_name)
        return TyperCommand(cmd_name, help=text, rich_markup_mode="markdown")

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """The help of ``kafka-tx`` itself."""
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:  # noqa: ANN401
        """Names that begin like this."""
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        yield
        self._is_listing = False


def _loaded(name: str) -> Any:  # noqa: ANN401 - typer hides click
    word = name.replace("-", "_")
    module = import_module(f"kafka_tx.cli.{_TOGETHER.get(name, word)}")
    found = getattr(module, word)
    around = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
    else:
        around.command(name)(found)
    return get_group(around).commands[name]


def dashboard() -> None:
    """Print the Grafana dashboard as JSON, for import."""
    typer.echo(_text_of("dashboard.json"), nl=False)


def rules(
    runbook: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The address at which you publish the runbook: what alerts link to.",
        ),
    ] = RUNBOOK,
    kubernetes: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Print a PrometheusRule of this name for `kubectl`."
        ),
    ] = "",
) -> None:
    """Print the Prometheus alert rules, for a file of `rule_files`."""
    text = _text_of("alerts.yml").replace(f'"{RUNBOOK}#', f'"{runbook}#')
    if kubernetes:
        text = _PROMETHEUS_RULE.format(kubernetes) + indent(text, "  ")
    typer.echo(text, nl=False)


def _text_of(name: str) -> str:
    file = files("kafka_tx").joinpath("metrics", name)
    return file.read_text(encoding="utf-8")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"kafka-tx {VERSION}")
        raise typer.Exit


app = typer.Typer(
    name="kafka-tx",
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else each line of a docstring stays a line
)


@app.callback()
def kafka_tx(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version."
        ),
    ] = False,
) -> None:
    """Inspect and operate jobs that read Kafka with kafka_tx."""
