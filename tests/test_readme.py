"""The README says what the code says."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import kafka_tx
from kafka_tx.metrics.catalogue import markdown
from kafka_tx.options.option_tables import Table

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize("table", Table)
def test_the_tables_of_options_are_the_codes(table):
    assert table.markdown() in README, f"paste what `kafka-tx options {table}` prints"


def test_the_table_of_metrics_is_the_codes():
    assert markdown() in README, "paste what `kafka-tx metrics` prints"


def test_every_public_name_can_be_had():
    for name in kafka_tx.__all__:
        assert getattr(kafka_tx, name) is not None
    assert kafka_tx.__all__ == sorted(kafka_tx.__all__)


def test_its_blocks_name_nothing_that_is_not_there():
    """One after the other; ``spark`` is the reader's session."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    whole = "\n".join(["import object as spark", *blocks])
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821,E9"]
    found = subprocess.run(
        [*command, "-"], input=whole, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


def test_what_there_is_can_be_listed():
    assert set(kafka_tx.__all__) <= set(dir(kafka_tx))
    assert kafka_tx.__version__ == version("kafka-tx")
