"""The columns of Kafka's records in Arrow, whoever reads them."""

from __future__ import annotations

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
"""A header: names are text, and one name may stand several times."""

ERROR, BYTES = "_error", "_bytes"
"""Endings of the columns that ``key.mode`` and ``value.mode`` add."""

_COLUMNS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
_PLAIN = pa.schema(_COLUMNS)
_WITH_HEADERS = pa.schema(
    [*_COLUMNS, pa.field("headers", pa.list_(pa.field("element", HEADER)))]
)


def arrow_schema(include_headers: bool) -> pa.Schema:
    """The columns of a batch: ``key … timestampType[, headers]``, all nullable."""
    return _WITH_HEADERS if include_headers else _PLAIN
