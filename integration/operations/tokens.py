"""Unsigned tokens for a broker that takes them, as a user's own provider would give."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path


def _part(content: dict[str, object]) -> str:
    raw = json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def short_lived() -> tuple[str, float]:
    """A token for alice that is valid for a few seconds; notes who asked for it."""
    return _token(float(os.environ.get("KAFKA_TX_TEST_TOKEN_S", "10")))


def long_lived() -> tuple[str, float]:
    """The same, valid for longer than any test takes."""
    return _token(3_600)


def _token(life_s: float) -> tuple[str, float]:
    now = time.time()
    notes = os.environ.get("KAFKA_TX_TEST_TOKENS")
    if notes:
        (Path(notes) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    claims = {"sub": "alice", "iat": now - 1, "exp": now + life_s}
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", now + life_s
