"""Each row of the README's guarantees names the tests that prove it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.readme_tables import table

ROOT = Path(__file__).parents[1]
MATRIX = "integration/test_guarantees.py::test_each_batch_is_counted_as_the_table_says"
PROOFS = {}
