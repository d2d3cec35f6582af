"""Tables of ours that an earlier release has made: the columns that came since."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

OURS = "kafka_tx_"
"""Tables whose names begin like this belong to us; all others are the users'."""


class AddColumn(sa.schema.ExecutableDDLElement):
    """``ALTER TABLE … ADD COLUMN`` for one column that may be null."""

    def __init__(self, column: sa.Column[Any]) -> None:
        self.column = column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: Any, **_: Any) -> str:  # noqa: ANN401
    table = compiler.preparer.format_table(element.column.table)
    column = compiler.get_column_specification(element.column)
    return f"ALTER TABLE {table} ADD COLUMN {column}"


def missing_columns(
    connection: sa.Connection, tables: sa.MetaData
) -> list[sa.Column[Any]]:
    """The columns of ours that exist in ``tables`` and not in the database.

    Only what may be null: earlier releases that still run do not know it.
    """
    seen = sa.inspect(connection)
    missing = []
    for table in tables.sorted_tables:
        optional = [column for column in table.columns if column.nullable]
        if optional and table.name.startswith(OURS):
            there = {column["name"] for column in seen.get_columns(table.name)}
            missing += [column for column in optional if column.name not in there]
    return missing
