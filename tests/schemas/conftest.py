"""The decoders under test."""

from __future__ import annotations

import pytest

from kafka_tx.schemas.decoders import Decoder, native_decoder
from kafka_tx.schemas.decoding import decode as python_decoder

_NATIVE = native_decoder()
_DECODERS = {"python": python_decoder} | ({"native": _NATIVE} if _NATIVE else {})


@pytest.fixture(params=_DECODERS, scope="session")
def decode(request: pytest.FixtureRequest) -> Decoder:
    """Each decoder in turn."""
    return _DECODERS[request.param]
