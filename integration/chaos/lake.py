"""The tables of the jobs ``delta`` and ``iceberg``, and what people do to tables."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from integration.chaos.schedule import TABLES
from integration.cluster.processes.iceberg_rest import IcebergRest
from integration.cluster.spark_local import (
    delta_session,
    iceberg_session,
    local_session,
)
from integration.cluster.versions import DELTA, ICEBERG

HERE = {"delta": DELTA, "iceberg": ICEBERG}
"""The release of each format that this Spark has; None: there is none."""

_numbers = itertools.count(-1, -1)
"""What other writers append."""


def session_of(kind: str, spark: SparkSession, catalog: str) -> SparkSession:
    """A session that reads and writes the format."""
    if kind == "delta":
        return delta_session(spark)
    return iceberg_session(spark, "", kind="rest", uri=catalog)


def name_of(kind: str, place: str, table: str) -> str:
    """What a door is given."""
    return f"{place}/{table}" if kind == "delta" else f"lake.db.{table}"


class Table:
    """One, as readers and people see it; its first column is a number.

    Args:
        session: That has its format.
        kind: ``delta`` or ``iceberg``.
        name: As a door is given it.
    """

    def __init__(self, session: SparkSession, kind: str, name: str) -> None:
        self.session, self.kind, self.name = session, kind, name
        self.sql_name = f"delta.`{name}`" if kind == "delta" else name

    def exists(self) -> bool:
        """Whether there is one now."""
        if self.kind == "delta":
            return any(Path(self.name, "_delta_log").glob("*.json"))
        return bool(self.session.catalog.tableExists(self.name))

    def rows(self, columns: str = "number") -> list[Any]:
        """The rows of its newest version that the job has written."""
        if not self.exists():
            return []
        return self.run(f"SELECT {columns} FROM {self.sql_name} WHERE number >= 0")

    def append(self) -> str:
        """Write a row as another program does."""
        number = next(_numbers)
        self.run(f"INSERT INTO {self.sql_name} (number) VALUES ({number})")
        return f"row {number} appended by another writer"

    def compact(self) -> str:
        """Rewrite all its small files."""
        whole = (
            "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))"
        )
        return self._change("OPTIMIZE {}", whole)

    def expire(self) -> str:
        """Remove what readers of the newest version do not need."""
        now = self.run("SELECT string(now()) AS now")[0].now
        older = f"expire_snapshots(table => '{{}}', older_than => TIMESTAMP '{now}')"
        return self._change("VACUUM {}", older)

    def take_back(self) -> str:
        """Go to the version before the newest one."""
        before = self.versions()[-2]
        back = f"rollback_to_snapshot('{{}}', {before})"
        return self._change(f"RESTORE TABLE {{}} TO VERSION AS OF {before}", back)

    def clone(self, to: Table) -> None:
        """Let another Delta table have its rows, and none of its txids."""
        self.run(f"CREATE TABLE {to.sql_name} SHALLOW CLONE {self.sql_name}")

    def drop(self) -> None:
        """Remove it; no job may run."""
        if self.kind == "delta":
            shutil.rmtree(self.name)
        else:
            self.run(f"DROP TABLE {self.sql_name}")

    def versions(self) -> list[int]:
        """That it tells of, the newest last."""
        if self.kind == "delta":
            found = self.run(f"DESCRIBE HISTORY {self.sql_name}")
            return sorted(row.version for row in found)
        history = f"SELECT snapshot_id FROM {self.name}.snapshots ORDER BY committed_at"
        return [row.snapshot_id for row in self.run(history)]

    def run(self, statement: str) -> list[Any]:
        """Run a statement on what is there now: Spark keeps tables for 30 s."""
        if self.kind == "iceberg" and self.exists():
            self.session.sql(f"REFRESH TABLE {self.name}")
        rows: list[Any] = self.session.sql(statement).collect()
        return rows

    def _change(self, statement: str, procedure: str) -> str:
        before = len(self.versions())
        if self.kind == "delta":
            self.run(statement.format(self.sql_name))
        else:
            name = self.name.removeprefix("lake.")
            self.run(f"CALL lake.system.{procedure.format(name)}")
        return f"{before} versions before, {len(self.versions())} after"


class Lake:
    """The tables of a run: each job appends to one and merges into another.

    Args:
        kinds: Jobs; those without a table need nothing.
        place: A directory.
    """

    def __init__(self, kinds: tuple[str, ...], place: Path) -> None:
        self._kinds = [kind for kind in kinds if kind in TABLES]
        self._place = place
        self._catalog = IcebergRest(place / "iceberg")
        self._tables: dict[str, tuple[Table, Table]] = {}
        self._spark: SparkSession | None = None

    def start(self) -> None:
        """Make the catalog and the tables that MERGE needs."""
        if not self._kinds:
            return
        if "iceberg" in self._kinds:
            self._catalog.start()
        self._spark = local_session(self._place / "reader", cores=1)
        for kind in self._kinds:
            session = session_of(kind, self._spark, self._catalog.uri)
            if kind == "iceberg":
                session.sql("CREATE NAMESPACE lake.db")
            appended, merged = (
                Table(session, kind, name_of(kind, str(self._place), table))
                for table in ("numbers", "counts")
            )
            columns = "(number bigint, times bigint)"
            merged.session.sql(f"CREATE TABLE {merged.sql_name} {columns} USING {kind}")
            self._tables[kind] = appended, merged

    def stop(self) -> None:
        """End the session and the catalog."""
        if self._spark is not None:
            self._spark.stop()
        self._catalog.stop()

    def addresses(self) -> dict[str, str]:
        """Where jobs find the tables."""
        return {"lake": str(self._place), "catalog": self._catalog.uri}

    def of(self, kind: str) -> tuple[Table, Table]:
        """The table that a job appends to, and the one that it merges into."""
        return self._tables[kind]

    def count(self, kind: str) -> Counter[int]:
        """How often each number is there that is in both tables."""
        appended, merged = self._tables[kind]
        rows = Counter(row.number for row in appended.rows())
        counts = {row.number: row.times for row in merged.rows("number, times")}
        return Counter(
            {n: max(rows[n], counts[n]) for n in rows.keys() & counts.keys()}
        )
