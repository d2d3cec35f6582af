"""The decoders under test."""

from __future__ import annotations

import pytest

from kafka_tx.schemas.decoders import native_decoder
from kafka_tx.schemas.decoding import Decoder
from kafka_tx.schemas.decoding import decode as python_decoder
from tests.told_registry import told as told


@pytest.fixture(scope="session")
def native() -> Decoder:
    """The decoder in C."""
    found = native_decoder()
    if found is None:
        pytest.skip("the native extension was not built")
    return found


@pytest.fixture(params=["python", "native"], scope="session")
def decode(request: pytest.FixtureRequest) -> Decoder:
    """Each decoder in turn."""
    if request.param == "python":
        return python_decoder
    found: Decoder = request.getfixturevalue("native")
    return found
