"""Columns of Spark for keys and values with a schema."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from kafka_tx.config import RecordFormat
from kafka_tx.options.formats import fixed_option, read_fixed
from kafka_tx.record_schema import BYTES, ERROR
from kafka_tx.schemas.columns import spark_struct
from kafka_tx.schemas.readers import column, reader_schema


def fixed(formats: tuple[RecordFormat, ...]) -> dict[str, str]:
    """The readers' schemas of now, as options; raises as ``reader_schema``."""
    found: dict[str, str] = {}
    for each in formats:
        found |= fixed_option(each.side, reader_schema(each))
    return found


def columns(
    plain: Mapping[str, DataType],
    schemas: Mapping[str, str],
    formats: tuple[RecordFormat, ...],
) -> dict[str, DataType]:
    """The columns of a source, some of them with the type of a fixed schema."""
    found = dict(plain)
    for each in formats:
        slot = column(read_fixed(schemas[f"{each.side}.schema.fixed"]))
        made = StructType.fromJson(spark_struct([(each.side, slot)]))
        found[each.side] = made.fields[0].dataType
    for each in formats:
        if each.is_permissive:
            found |= {each.side + ERROR: StringType(), each.side + BYTES: BinaryType()}
    return found
