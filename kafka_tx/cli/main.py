"""The command ``kafka-tx``: its sub-commands, and how its errors are shown."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka_tx.cli.demo import demo
from kafka_tx.cli.doctor import doctor
from kafka_tx.cli.lag import lag
from kafka_tx.cli.offsets import offsets
from kafka_tx.cli.status import status
from kafka_tx.errors import KafkaTxError
from kafka_tx.metrics import catalogue
from kafka_tx.options.option_tables import Table


class Commands(TyperGroup):
    """Sub-commands. An error of ours ends as text and exit code 1, not a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer hides click
        """Run the chosen sub-command."""
        try:
            return super().invoke(ctx)
        except KafkaTxError as error:
            typer.echo(f"kafka-tx: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="kafka-tx",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else each line of a docstring stays a line
    help="Inspect and operate jobs that read Kafka with kafka_tx.",
)
app.command()(demo)
app.command()(status)
app.command()(lag)
app.add_typer(offsets, name="offsets")
app.command()(doctor)


@app.command()
def options(
    of: Annotated[Table, typer.Argument(help="The table to print.")] = Table.SOURCE,
) -> None:
    """Print a table of options, with defaults."""
    typer.echo(of.markdown())


@app.command()
def metrics() -> None:
    """Print the table of all metrics."""
    typer.echo(catalogue.markdown().rstrip())


@app.command("dashboard")
def print_dashboard() -> None:
    """Print the Grafana dashboard as JSON, for import."""
    _print_file("dashboard.json")


@app.command("rules")
def print_rules() -> None:
    """Print the Prometheus alert rules, for a file of `rule_files`."""
    _print_file("alerts.yml")


def _print_file(name: str) -> None:
    file = files("kafka_tx.metrics").joinpath(name)
    typer.echo(file.read_text(encoding="utf-8"), nl=False)
