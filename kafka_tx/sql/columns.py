"""Column types that mean the same in every database."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql


def exact_text(length: int) -> sa.types.TypeEngine[str]:
    """Short ASCII text that is compared character by character, for keys."""
    of_mysql = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(of_mysql, "mysql", "mariadb")


LONG_TEXT = sa.Text().with_variant(
    mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb"
)
"""Text of any length."""
