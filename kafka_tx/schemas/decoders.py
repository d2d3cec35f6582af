"""The decoder of this process: in C where the extension was built, else in Python.

All programs of a call fill the slots of one reader's schema. So writers that alternate
from record to record need neither groups nor small batches.
"""

from __future__ import annotations

from array import array as array_of_words
from collections.abc import Sequence
from functools import partial
from types import ModuleType

import pyarrow as pa

from kafka_tx.native.library import load
from kafka_tx.schemas.columns import Slot, layout
from kafka_tx.schemas.decoding import Decoded, Decoder, Failure, Words, decode
from kafka_tx.schemas.program import Program

_REVISION = 2
"""Of the extension's part that decodes, as this package calls it."""


def native_decoder() -> Decoder | None:
    """The one in C; None where it was not built, or from other sources."""
    extension, _ = load()
    revision = getattr(extension, "DECODER_REVISION", 0)
    if extension is None or revision != _REVISION:
        return None
    return partial(_decode, extension)


def _decode(
    extension: ModuleType,
    values: pa.Array,
    begins: Words,
    chosen: Words,
    programs: Sequence[Program],
    column: Slot,
) -> Decoded:
    """As ``decoding.decode``; OverflowError for a slot of 2^31 bytes or items."""
    array, failures = extension.decode_avro(
        *values.__arrow_c_array__(),
        begins,
        chosen,
        tuple((program.code, program.constants) for program in programs),
        array_of_words("i", layout(column)),
    )
    made = pa.Array._import_from_c_capsule(column.arrow.__arrow_c_schema__(), array)
    return Decoded(made, [Failure(*each) for each in failures])


def decoder() -> Decoder:
    """The fastest one that can be used here."""
    return native_decoder() or decode
