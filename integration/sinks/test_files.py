"""Batches as files: each once, whatever comes between two tries.

Drivers that are killed: ``test_crashes``. The simulator dies at every step.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import types

import kafka_tx
from integration.bounded import DeadError, read_out
from integration.reading import reader
from integration.sinks.table_suite import forget, tried
from integration.sizes import in_all
from integration.stored.builds import LATER, more_members, numbers
from kafka_tx.errors import (
    AnotherNumberingError,
    ConfigError,
    FencedError,
    FormatError,
    StateCorruptedError,
    StateLostError,
)
from kafka_tx.running.file_sink import name_of
from kafka_tx.sinks import publications
from kafka_tx.sinks.publications import ATTEMPTS, PUBLISHED
from kafka_tx.spark.sinks import files as files_of_spark
from kafka_tx.spark.sinks.files import _HadoopFolder
from kafka_tx.stored import FIRST
from kafka_tx.testing import Crash
from tests.conformance.sink_suite import SinkSuite, attempt

STEPS = "names", "write", "put"


@contextmanager
def dying_at(step: int):
    """End the program before an operation on the folder, or after it."""
    left = itertools.count(step, -1)

    def dies(method, self, *given):
        if next(left) == 0:
            raise Crash
        found = method(self, *given)
        if next(left) == 0:
            raise Crash
        return found

    def patched(name):
        method = partial(dies, getattr(_HadoopFolder, name))
        return lambda self, *given: method(self, *given)

    with mock.patch.multiple(_HadoopFolder, **{name: patched(name) for name in STEPS}):
        yield


@dataclass
class Files:
    """A folder that a program writes to."""

    spark: Any
    path: str
    is_opaque: bool = False

    def write(self, given, rows, **more):
        return self.append(self.batch(rows), given, **more)

    def batch(self, rows):
        df = self.spark.createDataFrame([(row,) for row in rows], "key string")
        return df.coalesce(1)

    def append(self, df, given, **more):
        more.setdefault("opaque", self.is_opaque)
        return kafka_tx.append_files(df, given, self.path, **more)

    def dies(self, given, rows, step):
        try:
            with dying_at(step):
                self.write(given, rows)
        except Crash:
            return True
        finally:
            forget()
        return False

    def read(self, **more):
        return kafka_tx.read_files(self.spark, self.path, **more)

    def rows(self, **more):
        if not list(Path(self.path, PUBLISHED).glob("0*")):
            return []
        return sorted(row.key for row in self.read(**more).collect())

    def published(self):
        return sorted(each.name for each in Path(self.path, PUBLISHED).glob("0*"))

    def attempts(self):
        return sorted(each.name for each in Path(self.path, ATTEMPTS).glob("_*"))


@pytest.fixture
def files(spark, tmp_path):
    forget()
    return Files(spark, str(tmp_path / "orders"))


@pytest.mark.all
class TestFilesAsSink(SinkSuite):
    @pytest.fixture
    def open_sink(self, spark, tmp_path):
        forget()
        return partial(Files, spark, str(tmp_path / "orders"), self.takes_back)


class TestOpaqueFilesAsSink(TestFilesAsSink):
    takes_back = True


def rows_of(df):
    return df.selectExpr("string(value) AS key")


class Query:
    """A query over a topic, into files."""

    def __init__(self, spark, kafka, topic, work: Path, files: Files, **more) -> None:
        self._source = {
            "subscribe": topic,
            "tx__id": f"files-{topic}",
            "tx__store": f"sqlite:///{work}/store.db",
            "maxOffsetsPerTrigger": 25,
            **more,
        }
        self._spark, self._servers = spark, kafka.bootstrap_servers
        self._work, self._files = work, files
        self.deaths: list[str] = []

    def _save(self, df, given):
        dies = self.deaths.pop(0) if self.deaths else ""
        if dies == "before":
            raise DeadError
        self._files.append(rows_of(df), given)
        if dies == "after":
            raise DeadError

    def run(self, checkpoint: str) -> None:
        query = reader(self._spark, self._servers, **self._source).load()
        writer = query.writeStream.foreachBatch(
            kafka_tx.for_each_transaction(self._save)
        )
        place = str(self._work / checkpoint)
        read_out(writer.option("checkpointLocation", place))
        forget()


@pytest.mark.parametrize("mode", ["transactional", *in_all("opaque")])
def test_a_query_writes_each_record_once_also_with_another_checkpoint(
    spark, kafka, topic, produce, files, tmp_path, mode
):
    name = topic(2)
    files.is_opaque = mode == "opaque"
    query = Query(spark, kafka, name, tmp_path, files, tx__mode=mode)
    produce(name, [f"{n}" for n in range(50)])
    query.run("first")
    shutil.copytree(tmp_path / "first", tmp_path / "older")

    produce(name, [f"{n}" for n in range(50, 80)])
    for death in ("before", "after"):
        query.deaths = [death]
        with pytest.raises(StreamingQueryException, match="DeadError"):
            query.run(f"deleted {death}")
    query.run("second")
    produce(name, [f"{n}" for n in range(80, 90)])
    with pytest.raises(StreamingQueryException, match="KAFKA_TX_CHECKPOINT_DISAGREES"):
        query.run("older")
    query.run("third")

    assert files.rows() == sorted(map(str, range(90)))


@pytest.mark.all
def test_a_driver_that_was_frozen_before_publishing_changes_nothing(files):
    files.write(attempt(1), ["a"])
    put = _HadoopFolder.put
    found: list[Any] = []

    def overtaken(folder, *given):
        with mock.patch.object(_HadoopFolder, "put", put):
            assert files.write(attempt(2, epoch=2), ["b"])
        found.extend((files.published(), set(files.read().inputFiles())))
        put(folder, *given)

    frozen = mock.patch.object(_HadoopFolder, "put", overtaken)
    with frozen, pytest.raises(FencedError):
        files.write(attempt(2), ["b"])

    assert len(files.published()) == len(found[0]) + 1
    assert set(files.read().inputFiles()) == found[1]
    assert files.rows() == ["a", "b"]


def test_a_driver_that_was_frozen_while_it_wrote_publishes_nothing(files):
    files.write(attempt(1), ["a"])
    write = _HadoopFolder.write

    def overtaken(folder, *given):
        found = write(folder, *given)
        with mock.patch.object(_HadoopFolder, "write", write):
            assert files.write(attempt(2, epoch=2), ["b"])
            assert files.write(attempt(3, epoch=2), ["c"])
        return found

    frozen = mock.patch.object(_HadoopFolder, "write", overtaken)
    with frozen, pytest.raises(FencedError):
        files.write(attempt(2), ["b"])

    assert len(files.published()) == 3
    assert files.rows() == ["a", "b", "c"]
    assert len(files.attempts()) == 4
    assert kafka_tx.clean_files(files.spark, files.path) == 0  # it is young
    assert kafka_tx.clean_files(files.spark, files.path, left_overs_after_s=0) == 1
    assert files.rows() == ["a", "b", "c"]


@pytest.mark.all
def test_two_drivers_at_once_are_one(files):
    files.write(attempt(1), ["a"])

    def one(number):
        return tried(lambda: files.write(attempt(2, number=number), ["b"]))

    with ThreadPoolExecutor(2) as pool:
        wrote = list(pool.map(one, (1, 2)))

    assert set(wrote) <= {"True", "False", "FencedError"}
    assert "True" in wrote
    assert files.rows() == ["a", "b"]


def test_names_and_values_come_back_as_they_were(spark, tmp_path):
    files = Files(spark, str(tmp_path / "a b[1]{x},%41"))
    df = spark.sql(
        "SELECT '007' AS day, 1L AS `a.b`, decimal(1.50) AS c, current_date() AS t"
        " UNION ALL SELECT 'x/y =%', 2L, NULL, NULL"
    )
    given = df.select("c", "day", "`a.b`", "t")

    assert files.append(given, attempt(1), partition_by=["day"])
    assert files.append(given.limit(0), attempt(2), partition_by=["day"])
    more = given.selectExpr("*", "7 AS more")
    assert files.append(more, attempt(3), partition_by=["day"])

    earlier = files.read(as_of=2)
    assert earlier.schema.names == ["c", "day", "a.b", "t"]
    assert sorted(map(str, earlier.collect())) == sorted(map(str, given.collect()))
    every = files.read().orderBy("more").collect()
    assert [row.more for row in every] == [None, None, 7, 7]
    assert files.read(schema="day string").columns == ["day"]
    names = [file.rpartition("/")[2] for file in files.read().inputFiles()]
    assert names
    assert all(name.startswith("part-") for name in names)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("csv", {"sep": "|", "header": "true"}),
        *(
            pytest.param(form, {}, marks=pytest.mark.all)
            for form in ("json", "orc", "text")
        ),
    ],
)
def test_other_formats_are_read_as_they_were_written(spark, files, form, options):
    df = spark.sql("SELECT 'a|b' AS value")
    for txid in (1, 2):
        assert files.append(df, attempt(txid), format=form, options=options)

    assert [row.value for row in files.read().collect()] == ["a|b"] * 2


def test_what_names_of_folders_change_is_refused_and_times_have_a_zone(spark, files):
    def by_day(day, txid=1):
        df = spark.sql(f"SELECT 1 AS a, {day}")
        return files.append(df, attempt(txid), partition_by=df.columns[1:])

    for text in ("''", "'__HIVE_DEFAULT_PARTITION__'"):
        with pytest.raises(PySparkException, match="'day' has ''.*nothing was publish"):
            by_day(f"{text} AS day")
    with pytest.raises(PySparkException, match="'day' has text that is not UTF-8"):
        by_day("string(X'ff') AS day")
    with pytest.raises(ConfigError, match="'day'; legal: .*without bytes"):
        by_day("X'ff' AS day")
    with pytest.raises(ConfigError, match="'.day'; legal: .*does not begin with '.'"):
        by_day("1 AS `.day`")
    assert files.published() == []

    time = "timestamp_micros(1704110400123456)"
    for txid, zone in enumerate(("Asia/Tokyo", "America/New_York"), 1):
        with in_zone(spark, zone):
            by_day(f"{time} AS day", txid)
    with in_zone(spark, "Europe/Berlin"):
        found = files.read().selectExpr(f"day = {time}").collect()
    assert [row[0] for row in found] == [True, True]


@contextmanager
def in_zone(spark, zone):
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.all
@pytest.mark.parametrize(
    "form",
    [*in_all("csv", "json"), "parquet"],
)
def test_columns_may_move_come_go_and_become_wider(spark, files, form):
    for txid, columns in enumerate(
        ("1 AS n, 'a' AS a, 'b' AS b", "'b' AS b, 'x' AS x, 'a' AS a, 5000000000 AS n"),
        1,
    ):
        files.append(spark.sql(f"SELECT {columns}"), attempt(txid), format=form)

    assert files.read().columns == ["b", "x", "a", "n"]
    found = sorted(map(tuple, files.read().collect()), key=str)
    assert found == [("b", "x", "a", 5000000000), ("b", None, "a", 1)]
    assert files.read(as_of=1).columns == ["n", "a", "b"]

    files.append(spark.sql("SELECT 'seven' AS n"), attempt(3), format=form)
    files.append(spark.sql("SELECT 8 AS n"), attempt(4), format=form)
    with pytest.raises(ConfigError, match="column 'n' was bigint .*and is int in the"):
        files.read()
    found = files.read(schema="n string").collect()
    assert sorted(row.n for row in found) == ["1", "5000000000", "8", "seven"]


@pytest.mark.all
def test_a_replay_with_more_columns_moves_no_value_of_earlier_batches(spark, files):
    files.is_opaque = True
    for txid in (1, 2):
        df = spark.sql(f"SELECT '{txid}' AS a, 'b' AS b")
        files.append(df, attempt(txid), format="csv")
    df = spark.sql("SELECT '2' AS a, 'x' AS x, 'b' AS b")
    files.append(df, attempt(2, epoch=2), format="csv")

    kafka_tx.clean_files(spark, files.path)

    found = sorted(map(tuple, files.read().collect()))
    assert found == [("1", None, "b"), ("2", "x", "b")]


@pytest.mark.all
def test_texts_are_as_many_rows_as_before(spark, files, tmp_path):
    texts = ["a\nb", " x ", "a\\", '"', "\t", "a\r\nb", "#c,d", "\0", None]
    df = spark.createDataFrame([*enumerate(texts)], "n int, t string")
    files.append(df.coalesce(1), attempt(1), format="csv")
    assert sorted(map(tuple, files.read().collect())) == [*enumerate(texts)]

    lines = Files(spark, str(tmp_path / "lines"))
    for text in ("'a\\nb'", "string(NULL)"):
        with pytest.raises(PySparkException, match="'t' has null or a line break"):
            lines.append(spark.sql(f"SELECT {text} AS t"), attempt(1), format="text")
    lines.append(spark.sql("SELECT 'a\\rb' AS t"), attempt(1), format="text")
    assert [row.t for row in lines.read().collect()] == ["a\rb"]


def test_a_null_that_csv_would_not_write_is_refused(spark, files):
    """As the value of a tombstone; beside another value it stays."""
    by_day = {"format": "csv", "partition_by": ["Day"]}
    alone = spark.sql("SELECT 1 AS day, int(NULL) AS t")
    beside = spark.sql("SELECT 1 AS day, 2 AS n, string(NULL) AS t")
    with pytest.raises(PySparkException, match="'t' has a value alone in its row"):
        files.append(alone, attempt(1), **by_day)
    assert files.published() == []

    files.append(beside, attempt(1), **by_day)
    assert [(row.n, row.t) for row in files.read().collect()] == [(2, None)]


@pytest.mark.all
def test_a_text_may_stand_for_null_in_csv(spark, tmp_path):
    said, unsaid = (Files(spark, str(tmp_path / name)) for name in ("said", "unsaid"))
    df = spark.sql("SELECT explode(array('a', NULL)) AS t")
    said.append(df, attempt(1), format="csv", options={"nullValue": "-"})
    assert {row.t for row in said.read().collect()} == {"a", None}

    empty, options = spark.sql("SELECT '' AS t"), {"emptyValue": ""}
    with pytest.raises(PySparkException, match="'t' has a value alone in its row"):
        unsaid.append(empty, attempt(1), format="csv", options=options)


@pytest.mark.parametrize(
    ("format_", "columns"),
    [
        (
            "avro",
            "1Y AS a, 2S AS b, array(3S) AS c, map('k', 4Y) AS d, struct(5S) AS e",
        ),
        pytest.param("json", "'{' AS _corrupt_record, 1 AS n", marks=pytest.mark.all),
        pytest.param("csv", "1 AS n, '{' AS _corrupt_record", marks=pytest.mark.all),
        pytest.param("csv", r"'a\r\nb' AS t, 'c\nd' AS u", marks=pytest.mark.all),
        pytest.param("csv", r"'a\rb' AS t, 'c\nd' AS u", marks=pytest.mark.all),
    ],
)
def test_rows_come_back_as_they_were(spark, files, format_, columns):
    df = spark.sql(f"SELECT {columns}")
    files.append(df, attempt(1), format=format_)

    assert files.read().collect() == df.collect()
    assert [kind for _, kind in files.read().dtypes] == [kind for _, kind in df.dtypes]


COLUMNS = {
    "yes": "true",
    "tiny": "-128Y",
    "small": "-32768S",
    "whole": "2147483647",
    "long": "-9223372036854775808L",
    "float": "float('NaN')",
    "double": "4.9E-324D",
    "price": "1E-10BD",
    "text": r"' a\n\"\\\\'",
    "odd": "string(X'61ff')",
    "bytes": "X'6100'",
    "day": "date'0001-01-01'",
    "at": "timestamp_millis(-62135596800001 + 2)",
    "ntz": "timestamp_ntz'1969-12-31 23:59:59.999'",
    "months": "interval '1-2' year to month",
    "seconds": "interval '1 2:03:04.5' day to second",
    "calendar": "make_interval(1, 2, 3, 4, 5, 6, 7.5)",
    "nothing": "NULL",
    "variant": "parse_json('{\"a\": 1}')",
    "pair": "struct(1 AS a, X'ff' AS b)",
    "list": "array(X'ff', NULL)",
    "by_text": "map('a', X'ff')",
    "by_number": "array(struct(map(1, 'a') AS m))",
    "odd_inside": "array(struct(map('a', string(X'61ff')) AS m, X'ff' AS b))",
}
NESTED = {"pair", "list", "by_text", "by_number", "odd_inside"}
REFUSED = {
    "parquet": {"calendar"},
    "orc": {"calendar", "nothing", "variant", "at"},
    "avro": {"calendar", "variant", "by_number"},
    "json": {"calendar", "by_number", "odd", "odd_inside"},
    "csv": {"calendar", "nothing", "variant", "bytes", "odd", *NESTED},
}
"""By kafka_tx or by Spark; nobody publishes anything."""


@pytest.mark.parametrize("form", ["parquet", *in_all("orc", "avro", "json", "csv")])
def test_a_value_of_each_type_comes_back_or_is_refused(spark, files, form):
    for name in REFUSED[form]:
        with pytest.raises((ConfigError, PySparkException, Py4JJavaError)):
            files.append(chosen(spark, "yes", name), attempt(1), format=form)
    assert files.published() == []
    df = chosen(spark, *(name for name in COLUMNS if name not in REFUSED[form]))

    files.append(df, attempt(1), format=form)

    found, each = files.read(), [f"hex(string(`{name}`))" for name in df.columns]
    assert found.selectExpr(each).collect() == df.selectExpr(each).collect()
    assert found.dtypes == df.dtypes


def test_the_types_of_spark_have_values_here(spark):
    kinds = {type(field.dataType) for field in chosen(spark, *COLUMNS).schema}
    every = {k for k in vars(types).values() if isinstance(k, type)}
    every = {
        k for k in every if issubclass(k, types.DataType) and not k.__subclasses__()
    }
    known = {
        *("CharType", "VarcharType", "UserDefinedType", "StructField"),  # no columns'
        *("TimeType", "GeographyType", "GeometryType"),  # Spark has switched them off
    }
    assert {k.__name__ for k in every - kinds} <= known


@pytest.mark.parametrize(
    ("form", "column", "instead"),
    [
        ("csv", "X'61' AS a", "base64(a) AS a"),
        *(
            pytest.param(*more, marks=pytest.mark.all)
            for more in (
                ("orc", "timestamp_micros(-1) AS a", "unix_micros(a) AS a"),
                ("json", "string(X'61ff') AS a", "make_valid_utf8(a) AS a"),
                (
                    *("json", "map(1, 2) AS a"),
                    "transform_keys(a, (k, v) -> string(k)) AS a",
                ),
            )
        ),
    ],
)
def test_what_a_format_cannot_hold_is_written_as_the_text_says(
    spark, files, form, column, instead
):
    df = spark.sql(f"SELECT 1 AS n, {column}")
    told = re.escape(instead.partition("(")[0])
    refused = pytest.raises(
        (ConfigError, PySparkException), match=f"column 'a' .*{told}"
    )
    with refused:
        files.append(df, attempt(1), format=form)
    df = df.selectExpr("n", instead)

    files.append(df, attempt(1), format=form)

    assert files.read().collect() == df.collect()


def test_a_folder_that_has_times_in_orc_goes_on(spark, files):
    df = spark.sql("SELECT array(timestamp'2026-01-02 03:04:05') AS at")
    with pytest.raises(ConfigError, match="'at' is .* Write another format such as"):
        files.append(df, attempt(1), format="orc")
    with mock.patch.dict("kafka_tx.spark.sinks.file_rows._NOT_HELD", clear=True):
        files.append(df, attempt(1), format="orc")  # as version 0.3.0 did

    assert files.append(df, attempt(2), format="orc")
    assert files.read().collect() == df.collect() * 2


def test_a_folder_of_orc_takes_times_as_names_of_folders_only(spark, files):
    df = spark.sql("SELECT 1 AS a, timestamp'2026-01-02 03:04:05' AS at")

    assert files.append(df, attempt(1), format="orc", partition_by=["at"])

    assert files.read().collect() == df.collect()


def test_a_folder_of_orc_that_has_no_times_takes_none_later(spark, files):
    df = spark.sql("SELECT 1 AS a, timestamp'2026-01-02 03:04:05' AS at")
    files.append(df.select("a"), attempt(1), format="orc")

    with pytest.raises(ConfigError, match="'at' is timestamp"):
        files.append(df, attempt(2), format="orc")


def chosen(spark, *names):
    return spark.sql("SELECT " + ", ".join(f"{COLUMNS[n]} AS `{n}`" for n in names))


def test_a_file_that_is_damaged_is_not_left_out(spark, files):
    files.write(attempt(1), ["a"])
    (name,) = files.read().inputFiles()
    Path(name.removeprefix("file://")).write_bytes(b"PAR1")
    lenient = "spark.sql.files.ignoreCorruptFiles"
    spark.conf.set(lenient, "true")
    try:
        with pytest.raises(Exception, match="FAILED_READ_FILE"):
            files.read().collect()
    finally:
        spark.conf.unset(lenient)


def test_a_publication_that_another_driver_has_begun_is_none(files):
    """A session of Spark Connect writes a folder with one file; it may die at work."""
    files.write(attempt(1), ["a"])
    for txid in (2, 3):
        name = name_of(txid, attempt(txid).attempt_id)
        Path(files.path, PUBLISHED, str(name), "_temporary").mkdir(parents=True)

    assert files.write(attempt(2), ["b"])
    assert kafka_tx.clean_files(files.spark, files.path) == 0
    assert files.rows() == ["a", "b"]
    assert files.write(attempt(3), ["c"])
    assert files.rows() == ["a", "b", "c"]


def test_a_publication_that_somebody_has_removed_is_missed(files):
    for txid in (1, 2, 3):
        files.write(attempt(txid), [f"{txid}"])
    gone = Path(files.path, PUBLISHED, files.published()[1])
    copy = gone.read_bytes()
    gone.unlink()

    for act in (files.read, partial(kafka_tx.clean_files, files.spark, files.path)):
        with pytest.raises(
            StateCorruptedError, match="lacks the publication of txid 2"
        ):
            act()
    assert [row.key for row in files.read(as_of=1).collect()] == ["1"]
    gone.write_bytes(copy)
    assert files.rows() == ["1", "2", "3"]


@pytest.mark.all
def test_two_queries_that_begin_in_one_path_at_once_do_not_hide_rows(files):
    put = _HadoopFolder.put

    def another_comes(folder, *given):
        with mock.patch.object(_HadoopFolder, "put", put):
            assert files.write(attempt(1, numbering="two", source="two"), ["b"])
        put(folder, *given)

    at_once = mock.patch.object(_HadoopFolder, "put", another_comes)
    with at_once, pytest.raises(AnotherNumberingError, match="numbering two"):
        files.write(attempt(1, epoch=2), ["a"])

    assert files.rows() == ["b"]


def test_a_plain_read_finds_nothing_rather_than_too_much(spark, files):
    files.write(attempt(1), ["a"])

    with pytest.raises(
        AnalysisException, match="UNABLE_TO_INFER_SCHEMA|PATH_NOT_FOUND"
    ):
        spark.read.parquet(files.path)


def test_what_does_not_fit_is_refused_by_name(spark, files, tmp_path):
    files.write(attempt(1), ["a"])

    with pytest.raises(ConfigError, match="give the second write a path of its own"):
        files.write(attempt(1), ["a"])
    with pytest.raises(ConfigError, match="has files of format parquet, by nothing"):
        files.append(files.batch(["b"]), attempt(2), format="json")
    with pytest.raises(ConfigError, match="option 'format' is 'delta'; legal: parquet"):
        files.append(files.batch(["b"]), attempt(2), format="delta")
    with pytest.raises(ConfigError, match="option 'as_of' is 2; legal: 1 to 1"):
        files.read(as_of=2)
    with pytest.raises(ConfigError, match="option 'path' is .*has published"):
        kafka_tx.read_files(spark, str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="option 'df' is"):
        files.append(spark.sql("SELECT 1 AS _kafka_tx"), attempt(2))
    plain = Files(spark, str(tmp_path / "plain"))
    plain.batch(["a"]).write.parquet(plain.path)
    with pytest.raises(ConfigError, match="holds other files, such as 'part-"):
        plain.write(attempt(1), ["a"])
    assert files.write(attempt(2), ["b"])


def stored_schemas(files):
    each = Path(files.path, PUBLISHED).glob("0*")
    lines = [json.loads(line) for f in each for line in f.read_text().splitlines()]
    return [line["schema"] for line in lines if line["schema"]]


def test_a_file_that_somebody_has_removed_is_missed_whatever_the_session_says(files):
    for txid in (1, 2):
        files.write(attempt(txid), [f"{txid}"])
    (file, *_) = files.read(as_of=1).inputFiles()
    Path(file.removeprefix("file://")).unlink()
    files.spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(PySparkException, match="(?i)exist"):
            files.rows()
    finally:
        files.spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.all
def test_publications_are_merged_and_expire(files):
    with mock.patch.object(publications, "MERGED_AT", 2):
        for txid in range(1, 9):
            assert files.write(attempt(txid), [f"{txid}"])
    assert len(files.published()) < 6
    forget()
    assert not files.write(attempt(8, epoch=2), ["8"])
    assert files.rows() == [f"{txid}" for txid in range(1, 9)]
    assert files.rows(as_of=3) == ["1", "2", "3"]
    assert len(stored_schemas(files)) < 8

    assert kafka_tx.clean_files(files.spark, files.path, keep_s=0) == 7
    assert files.rows() == ["8"]
    assert files.write(attempt(9, epoch=2), ["9"])
    assert files.rows() == ["8", "9"]
    assert len(files.published()) <= 3


def test_a_publication_that_somebody_has_changed_stops_readers_and_writers(files):
    files.write(attempt(1), ["a"])
    (file,) = Path(files.path, PUBLISHED).glob("0*")
    text = file.read_text()
    files_of_spark._newest.clear()  # as in another program
    Path(file.parent, f".{file.name}.crc").unlink()
    file.write_text("{}")

    for act in (files.read, lambda: files.write(attempt(2), ["b"])):
        with pytest.raises(StateCorruptedError, match="cannot be read: '{}'"):
            act()
    file.write_text(text)
    files_of_spark._newest.clear()
    assert files.write(attempt(2), ["b"])
    assert files.rows() == ["a", "b"]


@pytest.mark.all
def test_readers_meet_whole_batches_while_publications_are_merged_and_cleaned(files):
    batches = 30

    def write():
        for txid in range(2, batches + 1):
            assert files.write(attempt(txid), 2 * [f"{txid:02}"])
            if txid % 10 == 0:
                kafka_tx.clean_files(files.spark, files.path, left_overs_after_s=0)

    files.write(attempt(1), 2 * ["01"])
    reads = 0
    with (
        mock.patch.object(publications, "MERGED_AT", 4),
        ThreadPoolExecutor(1) as pool,
    ):
        writing = pool.submit(write)
        while not writing.done() or not reads:
            found = files.rows()
            last = int(found[-1])
            assert found == sorted(2 * [f"{n:02}" for n in range(1, last + 1)])
            reads += 1
        writing.result()

    assert len(files.rows()) == 2 * batches


@pytest.mark.all
def test_a_later_version_is_read_if_it_stores_more_and_named_otherwise(files):
    with more_members():
        files.write(attempt(1), ["a"])
    forget()
    assert not files.write(attempt(1, epoch=2), ["a"])
    assert files.write(attempt(2, epoch=2), ["b"])
    assert files.rows() == ["a", "b"]
    with numbers(LATER, FIRST):
        files.write(attempt(3, epoch=2), ["c"])
    forget()

    for call in (files.rows, lambda: files.write(attempt(4, epoch=3), ["d"])):
        with pytest.raises(FormatError, match="A later version of kafka_tx"):
            call()


def test_a_path_that_was_emptied_under_a_program_stops_it(files):
    files.write(attempt(1), ["a"])
    files.write(attempt(2), ["b"])
    shutil.rmtree(files.path)

    with pytest.raises(StateLostError, match="txid 2 was left .* one is none"):
        files.write(attempt(3), ["c"])
    forget()  # started again

    assert files.write(attempt(3, epoch=2), ["c"])
    assert files.rows() == ["c"]


def test_a_merge_that_fails_loses_nothing_and_the_next_one_goes_on(files):
    with mock.patch.object(publications, "MERGED_AT", 2):
        with mock.patch.object(_HadoopFolder, "remove", side_effect=OSError):
            for txid in (1, 2):
                files.write(attempt(txid), [f"{txid}"])
            assert files.write(attempt(3), ["3"])  # it is published, whatever follows
        assert files.rows() == ["1", "2", "3"]
        left = len(files.published())

        assert files.write(attempt(4), ["4"])
    assert len(files.published()) < left
    assert files.rows() == ["1", "2", "3", "4"]
