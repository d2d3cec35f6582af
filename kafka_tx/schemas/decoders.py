"""The decoder of this process: in C where the extension was built, else in Python.

All programs of a call fill the slots of one reader's schema. So writers that alternate
from record to record need neither groups nor small batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from kafka_tx.schemas.columns import Slot
from kafka_tx.schemas.decoding import Decoded, Words, decode
from kafka_tx.schemas.program import Program


class Decoder(Protocol):
    """Decodes records of several writers in one pass; see ``decoding.decode``."""

    def __call__(
        self,
        values: pa.Array,
        begins: Words,
        chosen: Words,
        programs: Sequence[Program],
        column: Slot,
    ) -> Decoded:
        """The typed column, and the records that have no value."""


def native_decoder() -> Decoder | None:
    """The one in C; None if there is none."""
    return None


def decoder() -> Decoder:
    """The fastest one that can be used here."""
    return native_decoder() or decode
