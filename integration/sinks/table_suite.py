"""What both doors to tables promise, whatever the format; a subclass gives ``lake``.

``TableSuite`` is what ``make test`` runs, beside it ``SinkSuite`` for all sinks.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.bounded import DeadError, read_out
from integration.cluster.child import Child
from integration.cluster.waiting import wait_until
from integration.reading import reader
from integration.sinks.table_driver import merge
from integration.stored.builds import LATER, more_members, numbers
from kafka_tx.errors import (
    ConfigError,
    FencedError,
    FormatError,
    ReplayDiffersError,
    StateLostError,
)
from kafka_tx.sinks import table_writes
from kafka_tx.spark.sinks import delta
from kafka_tx.stored import FIRST
from kafka_tx.testing import Crash
from kafka_tx.testing.process_tree import session_members
from tests.conformance.sink_suite import attempt

REPOSITORY = Path(__file__).parents[2]
_numbers = itertools.count()


def fresh() -> str:
    return f"t{next(_numbers)}"


def forget() -> None:
    """Go on as another program would."""
    for known in (table_writes._left, delta._seen):
        known.clear()


def nothing_to_do(df, target):
    df.sparkSession.sql(f"DELETE FROM {target} WHERE key = 'nobody'")


@contextmanager
def dying_at(step: int, kind: type, *inside: str) -> Iterator[None]:
    """End the program before a look, before a write, inside it, or after it."""
    left = itertools.count(step, -1)

    def dies(method, is_last, self, *given):
        if next(left) == 0:
            raise Crash
        found = method(self, *given)
        if is_last and next(left) == 0:
            raise Crash
        return found

    def patched(name):
        method = partial(dies, getattr(kind, name), name == "write")
        return lambda self, *given: method(self, *given)

    names = ("stored", "write", *inside)
    with mock.patch.multiple(kind, **{name: patched(name) for name in names}):
        yield


@dataclass
class Table:
    """One that a program writes to; a subclass knows its format."""

    spark: Any
    name: str

    format: ClassVar[str]
    appends: ClassVar[type]
    inside: ClassVar[tuple[str, ...]] = ()
    """Steps of an append, by the methods that they begin with."""

    @property
    def sql_name(self) -> str:
        return self.name

    def write(self, attempt, rows, **more):
        return self.append(self.batch(rows), attempt, **more)

    def batch(self, rows):
        df = self.spark.createDataFrame([(row,) for row in rows], "key string")
        return df.coalesce(1)

    def append(self, df, attempt, **more):
        return kafka_tx.append_to_table(df, attempt, self.name, **more)

    def dies(self, attempt, rows, step):
        try:
            with dying_at(step, self.appends, *self.inside):
                self.write(attempt, rows)
        except Crash:
            return True
        finally:
            forget()
        return False

    def rows(self):
        return sorted(row.key for row in self.read().collect()) if self.exists() else []

    def exists(self):
        return self.spark.catalog.tableExists(self.name)

    def read(self):
        return self.spark.sql(f"SELECT * FROM {self.sql_name}")

    def sql(self, statement):
        """Run a statement on what it calls ``TABLE t``."""
        given = statement.replace("TABLE t", f"TABLE {self.sql_name}")
        return self.spark.sql(given).collect()

    def others_write(self, *rows):
        raise NotImplementedError

    def versions(self):
        """How many commits it tells of."""
        raise NotImplementedError

    def make_counts(self):
        how = f"(key string, n bigint) USING {self.format}"
        self.spark.sql(f"CREATE TABLE {self.sql_name} {how}")

    def count(self, given, *keys, statement=merge, **more):
        one = [(key, 1) for key in keys]
        df = self.spark.createDataFrame(one, "key string, n bigint").coalesce(1)
        return kafka_tx.write_to_table(df, given, self.name, statement, **more)

    def counted(self):
        return {row.key: row.n for row in self.read().collect()}


def tried(write: Callable[[], bool]) -> str:
    """What became of a write: ``True``, ``False``, or the class of its error."""
    try:
        return str(write())
    except kafka_tx.KafkaTxError as error:
        return type(error).__name__


class Rival:
    """A driver that is a process of its own, and writes what it is told to.

    Args:
        work: A directory of its own.
        given: How it finds the table, for ``table_driver``.
    """

    def __init__(self, work: Path, **given: str) -> None:
        self._work, self._jobs = work, itertools.count()
        self._child = Child(
            [sys.executable, "-m", "integration.sinks.table_driver", str(work)],
            work / "log",
            directory=REPOSITORY,
            environment={"PYSPARK_PYTHON": sys.executable},
        )
        self._given = given

    def begins(self, attempt, rows: list[str], table: str, *, merges=False) -> Path:
        """Let it write; once this returns, it has looked and computes the rows."""
        job = self._work / f"job{next(self._jobs)}"
        named = {"source": attempt.source, "numbering": attempt.numbering}
        named["plan"] = attempt.plan
        told = {**self._given, "table": table, "rows": rows, "attempt": str(attempt)}
        told["merges"] = merges
        job.with_suffix(".new").write_text(json.dumps({**told, "named": named}))
        job.with_suffix(".new").rename(job.with_suffix(".json"))
        self._wait(job.with_suffix(".reached"))
        return job

    def result(self, job: Path) -> str:
        """Let it go on; what became of it."""
        job.with_suffix(".go").touch()
        self._wait(job.with_suffix(".result"))
        return job.with_suffix(".result").read_text()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        self._signal(signal.SIGKILL)
        self._child.kill()

    def _signal(self, number: signal.Signals) -> None:
        for pid in session_members(self._child.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _wait(self, file: Path) -> None:
        wait_until(
            f"the other driver has made {file.name}",
            file.exists,
            complain=lambda: None if self._child.is_running else self._child.tail(),
        )


class TableSuite:
    """Needs ``lake``, ``table``, ``counts`` (a table), ``shared`` and ``rival``.

    Other processes find the table ``shared``.
    """

    def test_a_query_writes_each_record_once_also_with_a_new_checkpoint(
        self, lake, kafka, topic, produce, table, tmp_path
    ):
        name, deaths = topic(2), ["before", "after"]

        def save(df, given):
            dies = deaths.pop(0) if deaths else ""
            if dies == "before":
                raise DeadError
            kafka_tx.append_to_table(rows(df), given, table.name)
            if dies == "after":
                raise DeadError

        def rows(df):
            return df.selectExpr("string(value) AS key")

        def run(checkpoint):
            query = reader(
                lake,
                kafka.bootstrap_servers,
                subscribe=name,
                tx__id=f"lake-{name}",
                tx__store=f"sqlite:///{tmp_path}/store.db",
            ).load()
            writer = query.writeStream.foreachBatch(kafka_tx.for_each_transaction(save))
            read_out(writer.option("checkpointLocation", str(tmp_path / checkpoint)))
            forget()

        produce(name, [f"{n}" for n in range(100)])
        for checkpoint in ("first", "second"):
            with pytest.raises(StreamingQueryException, match="DeadError"):
                run(checkpoint)
        produce(name, [f"{n}" for n in range(100, 120)])
        run("third")

        assert table.rows() == sorted(map(str, range(120)))

    @pytest.mark.all
    def test_two_driver_processes_with_one_txid_at_once_are_one(self, shared, rival):
        shared.write(attempt(1), ["a"])
        other = rival.begins(attempt(2, number=2), ["b"], shared.name)

        with ThreadPoolExecutor(1) as pool:
            theirs = pool.submit(rival.result, other)
            ours = tried(lambda: shared.write(attempt(2), ["b"]))

        assert [ours, theirs.result()].count("True") == 1
        assert {ours, theirs.result()} <= {"True", "False", "FencedError"}
        assert shared.rows() == ["a", "b"]

    @pytest.mark.all
    def test_a_driver_process_that_was_frozen_wakes_and_writes_nothing(
        self, shared, rival
    ):
        shared.write(attempt(1), ["a"])
        other = rival.begins(attempt(2), ["b"], shared.name)
        rival.freeze()
        try:
            assert shared.write(attempt(2, epoch=2), ["b"])
            shared.others_write("x")
            assert shared.write(attempt(3, epoch=2), ["c"])
        finally:
            rival.wake()

        assert rival.result(other) == "FencedError"
        assert shared.rows() == ["a", "b", "c", "x"]

    @pytest.mark.all
    def test_two_driver_processes_that_merge_one_txid_at_once_are_one(
        self, shared, rival
    ):
        shared.make_counts()
        shared.count(attempt(1), "a")
        given = attempt(2, number=2), ["a"], shared.name
        other = rival.begins(*given, merges=True)

        with ThreadPoolExecutor(1) as pool:
            theirs = pool.submit(rival.result, other)
            ours = tried(lambda: shared.count(attempt(2), "a"))

        assert [ours, theirs.result()].count("True") == 1
        assert {ours, theirs.result()} <= {"True", "False", "FencedError"}
        assert shared.counted() == {"a": 2}

    @pytest.mark.all
    def test_a_driver_process_that_was_frozen_in_a_merge_wakes_and_counts_nothing(
        self, shared, rival
    ):
        shared.make_counts()
        shared.count(attempt(1), "a")
        other = rival.begins(attempt(2), ["a"], shared.name, merges=True)
        rival.freeze()
        try:
            for txid in (2, 3):
                assert shared.count(attempt(txid, epoch=2), "a")
        finally:
            rival.wake()

        assert rival.result(other) == "FencedError"
        assert shared.counted() == {"a": 3}

    def test_a_replay_refuses_a_second_statement_after_one_without_rows(self, counts):
        assert counts.count(attempt(1))
        forget()

        for epoch in (2, 3):
            assert not counts.count(attempt(1, epoch=epoch))
            with pytest.raises(ConfigError, match="was written already"):
                counts.count(attempt(1, epoch=epoch), "a")

    def test_a_first_batch_without_rows_is_no_write(self, table):
        assert not table.write(attempt(1), [])
        assert table.write(attempt(1), ["a"])
        forget()

        assert not table.write(attempt(1, epoch=2), [])
        assert not table.write(attempt(1, epoch=2), ["a"])
        assert table.rows() == ["a"]

    def test_a_driver_that_was_frozen_before_its_commit_writes_nothing(self, table):
        table.write(attempt(1), ["a"])
        write = table.appends.write

        def overtaken(sink, given):
            with mock.patch.object(table.appends, "write", write):
                assert table.write(attempt(2, epoch=given.epoch + 1), ["b"])
            return write(sink, given)

        frozen = mock.patch.object(table.appends, "write", overtaken)
        with frozen, pytest.raises(FencedError):
            table.write(attempt(2), ["b"])

        assert table.rows() == ["a", "b"]

    def test_commits_of_one_txid_at_the_same_time_are_one(self, table):
        table.write(attempt(1), ["a"])

        def one(number):
            return tried(lambda: table.write(attempt(2, number=number), ["b"]))

        with ThreadPoolExecutor(2) as pool:
            wrote = set(pool.map(one, (1, 2)))

        assert wrote in ({"True", "False"}, {"True", "FencedError"})
        assert table.rows() == ["a", "b"]

    @pytest.mark.all
    def test_an_answer_that_is_lost_is_looked_up(self, table):
        write = table.appends.write

        def loses_the_answer(sink, given):
            write(sink, given)
            raise ConnectionError

        with mock.patch.object(table.appends, "write", loses_the_answer):
            assert table.write(attempt(1), ["a"])

        assert table.rows() == ["a"]

    def test_a_batch_without_rows_is_no_commit(self, table):
        table.write(attempt(1), ["a"])
        versions, none = table.versions(), table.batch([]).persist()

        for txid in (2, 3):
            assert not table.append(none, attempt(txid, epoch=txid))
        none.unpersist()

        assert table.versions() == versions
        assert table.write(attempt(4, epoch=3), ["d"])
        assert table.rows() == ["a", "d"]

    def test_each_sink_of_a_table_counts_for_itself(self, table):
        for sink in ("default", "a", "a.b"):
            assert table.write(attempt(1), [sink], sink=sink)
            assert not table.write(attempt(1, epoch=2), [sink], sink=sink)

        with pytest.raises(ConfigError, match=r"written already.*its own `sink`"):
            table.write(attempt(1), ["a"], sink="a")
        with pytest.raises(ReplayDiffersError, match="txid 1 .*ended elsewhere"):
            table.write(attempt(1, epoch=3, plan="other"), ["a"], sink="a")
        assert table.write(attempt(7, numbering="two", source="job"), ["j"], sink="job")
        assert table.rows() == ["a", "a.b", "default", "j"]

    @pytest.mark.all
    def test_a_later_version_is_read_if_it_stores_more_and_named_otherwise(self, table):
        with more_members():
            table.write(attempt(1), ["a"])
        forget()
        assert not table.write(attempt(1, epoch=2), ["a"])
        assert table.write(attempt(2, epoch=2), ["b"])
        with numbers(LATER, FIRST):
            assert table.write(attempt(3, epoch=2), ["c"])
        forget()
        versions = table.versions()

        with pytest.raises(FormatError, match="A later version of kafka_tx"):
            table.write(attempt(4, epoch=3), ["d"])

        assert table.versions() == versions
        assert table.rows() == ["a", "b", "c"]

    def test_a_table_that_was_made_anew_under_a_program_stops_it(self, table):
        table.write(attempt(1), ["a"])
        table.write(attempt(2), ["b"])
        table.sql("DROP TABLE t")

        with pytest.raises(StateLostError, match="txid 2 was left .* one is none"):
            table.write(attempt(3), ["c"])
        forget()  # started again

        assert table.write(attempt(3, epoch=2), ["c"])
        assert table.rows() == ["c"]

    def test_a_table_that_was_altered_between_two_tries_has_the_batch_once(self, table):
        table.write(attempt(1), ["a"])
        table.sql("ALTER TABLE t ADD COLUMNS (more int)")
        table.sql("ALTER TABLE t SET TBLPROPERTIES ('mine'='yes')")
        forget()

        assert not table.write(attempt(1, epoch=2), ["a"])
        wider = table.batch(["b"]).selectExpr("key", "2 AS more")
        assert table.append(wider, attempt(2, epoch=2))
        assert table.rows() == ["a", "b"]

    def test_a_table_that_was_altered_between_two_tries_counts_it_once(self, counts):
        def more(df, target):
            df.sparkSession.sql(f"UPDATE {target} SET n = n + 1, more = 7")

        counts.count(attempt(1), "a")
        counts.sql("ALTER TABLE t ADD COLUMNS (more int)")
        forget()

        assert not counts.count(attempt(1, epoch=2), "a", statement=pytest.fail)
        assert counts.count(attempt(2, epoch=2), "a", statement=more)
        assert counts.counted() == {"a": 2}

    def test_rows_that_others_delete_stay_out(self, table):
        table.write(attempt(1), ["a", "b"])
        table.sql("TRUNCATE TABLE t")
        forget()

        assert not table.write(attempt(1, epoch=2), ["a", "b"])
        assert table.rows() == []

    def test_counts_that_others_delete_stay_out(self, counts):
        counts.count(attempt(1), "a", "b")
        counts.sql("TRUNCATE TABLE t")
        forget()

        assert not counts.count(attempt(1, epoch=2), "a", "b", statement=pytest.fail)
        assert counts.count(attempt(2, epoch=2), "b")
        assert counts.counted() == {"b": 1}

    @pytest.mark.all
    def test_a_partitioned_table_has_each_batch_once(self, table):
        def rows(*keys):
            return table.batch(keys).selectExpr("key", "length(key) AS size")

        def overtaken(sink, given):
            with mock.patch.object(table.appends, "write", write):
                assert table.append(rows("d", "ddd"), attempt(2, epoch=2))
            return write(sink, given)

        write = table.appends.write
        table.append(rows("a", "bb", "cc"), attempt(1), partition_by=["size"])
        forget()
        assert not table.append(rows("a", "bb", "cc"), attempt(1, epoch=1, number=2))

        frozen = mock.patch.object(table.appends, "write", overtaken)
        with frozen, pytest.raises(FencedError):
            table.append(rows("d", "ddd"), attempt(2))

        assert table.rows() == ["a", "bb", "cc", "d", "ddd"]

    def test_an_opaque_source_is_refused_and_leaves_nothing(self, counts):
        opaque = attempt(1, mode="opaque")

        with pytest.raises(ConfigError, match="is opaque"):
            counts.write(opaque, ["a"], sink="other")
        with pytest.raises(ConfigError, match="is opaque"):
            counts.count(opaque, "a", statement=pytest.fail)

        assert counts.counted() == {}

    def test_a_catalog_that_is_misspelt_is_named(self, lake, table):
        elsewhere = type(table)(lake, "lakee.db.orders")
        lake.catalog.setCurrentCatalog("spark_catalog")

        with pytest.raises(ConfigError) as error:
            elsewhere.write(attempt(1), ["a"])

        for words in ("no catalog 'lakee'", "'spark_catalog'", "SparkCatalog"):
            assert words in str(error.value)

    def test_a_jar_for_another_spark_is_named(self, table):
        with (
            mock.patch("pyspark.__version__", "4.9.0"),
            pytest.raises(ConfigError, match=r"Spark 4.9.*jar \S+ is for Spark 4"),
        ):
            table.write(attempt(1), ["a"])

    def test_a_merge_counts_a_batch_once(self, lake, counts):
        assert counts.count(attempt(1), "a", "b")
        assert counts.count(attempt(2), "a")
        forget()

        assert not counts.count(attempt(2, epoch=2), "a", statement=pytest.fail)
        assert counts.count(attempt(3, epoch=2), "z", statement=nothing_to_do)
        assert not counts.count(attempt(3, epoch=3), "z", statement=pytest.fail)

        assert counts.counted() == {"a": 2, "b": 1}
        assert not [name for name in lake.conf.getAll if "txnVersion" in name]

    def test_a_statement_needs_a_table(self, table):
        missing = f"{table.name}_missing"

        with pytest.raises(ConfigError, match="a table that is there"):
            kafka_tx.write_to_table(table.batch("a"), attempt(1), missing, merge)
