"""``kafka-tx dashboard`` and ``kafka-tx rules``: files for Grafana and Prometheus."""

from __future__ import annotations

from importlib.resources import files

import typer


def dashboard() -> None:
    """Print the Grafana dashboard as JSON, for import."""
    _print_file("dashboard.json")


def rules() -> None:
    """Print the Prometheus alert rules, for a file of `rule_files`."""
    _print_file("alerts.yml")


def _print_file(name: str) -> None:
    file = files("kafka_tx").joinpath("metrics", name)
    typer.echo(file.read_text(encoding="utf-8"), nl=False)
