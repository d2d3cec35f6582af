"""Batches as files that count once, on any file system of Spark's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from kafka_tx.clock import SystemClock
from kafka_tx.config import check_attempt, check_kind
from kafka_tx.errors import ConfigError
from kafka_tx.running.file_sink import FileSink, OpaqueFileSink, clean, published
from kafka_tx.sinks.publications import (
    ATTEMPTS,
    PUBLISHED,
    Form,
    Name,
    Publication,
    counting,
)
from kafka_tx.spark.sinks.file_rows import (
    as_stored,
    check_types,
    exact,
    form_of,
    shape_of,
)
from kafka_tx.spark.versions.jvm import file_system
from kafka_tx.spark.versions.names import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_tx.model import TransactionAttempt

FORMATS = ("parquet", "orc", "avro", "json", "csv", "text")
COLUMN = "_kafka_tx"
"""Begins the names of attempts' folders, so that Spark takes them for partitions."""
_DAY_S = 86_400
_TRIES = 5
"""Tries to read the publications while a writer merges some of them."""
_WHOLE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Read everything or fail, whatever the session says."""
_PUBLICATIONS = {"recursiveFileLookup": "true", **_WHOLE}
_ALL_ROWS = {
    **_WHOLE,
    "columnNameOfCorruptRecord": "kafka_tx.corrupt_record",
    "lineSep": "\n",
}
"""Also rows that have Spark's own name of that column; the end of a line is what Spark
writes, whatever a value begins with."""
_newest: dict[str, dict[Name, str]] = {}
"""The file of publications that this program has read or made last, by path. A file
never changes, and no other one gets its name."""


def append_files(
    df: DataFrame,
    attempt: TransactionAttempt,
    path: str,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    *,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    opaque: bool = False,
) -> bool:
    """Append a batch as files, once, with a new checkpoint, too (driver).

    The attempt writes files into a folder of its own below ``path``, and then publishes
    them by one small file. ``read_files`` reads what is published. A replay is skipped.
    The names of published files never change. Executors write the rows.

    Args:
        df: The batch. A path takes one write of it: ``union`` what belongs together.
        attempt: Of the batch.
        path: A folder of its own, for one query: a local path, or any URL that Spark
            writes to.
        format: ``parquet``, ``orc``, ``avro``, ``json``, ``csv`` or ``text``; the same
            in all batches, as are ``partition_by`` and the options of text formats.
        partition_by: Columns whose values become names of folders.
        options: Of the format's writer, such as ``compression``. Those of text formats
            are stored for ``read_files``: give no secrets.
        opaque: For ``tx.mode=opaque``: a replay takes the place of the earlier
            attempt's files.

    Returns:
        False if the txid was there already, so that nothing was published.

    Raises:
        ConfigError: An argument is not legal, the format does not hold the type of a
            column, the path holds other files or files of another form, the attempt is
            opaque and ``opaque`` is not given, or the attempt was appended by an
            earlier call.
        OutOfOrderError: A later txid is published.
        FencedError: A newer owner has published; opaque: or a later attempt.
        AnotherNumberingError: The path counts the txids of another numbering.
        ReplayDiffersError: The txid is published from other records.
        StateLostError: The path does not hold what this program has published.
        StateCorruptedError: A publication cannot be read.
        pyspark.errors.PySparkException: What Spark raises; nothing is published.
        py4j.protocol.Py4JJavaError: The file system's errors, such as a missing right.
    """
    check_attempt(attempt)
    _check_path(path)
    given = dict(options or {})
    if format not in FORMATS:
        raise ConfigError.illegal("format", format, ", ".join(FORMATS))
    if isinstance(partition_by, str):
        raise ConfigError.illegal("partition_by", partition_by, "a list of columns")
    if COLUMN in (name.lower() for name in df.columns):
        legal = f"columns without {COLUMN!r}, which names the attempts"
        raise ConfigError.illegal("df", df.columns, legal)
    form = form_of(df, format, partition_by, given)
    folder = _folder(df.sparkSession, path)
    kind = OpaqueFileSink if opaque else FileSink
    check = partial(check_types, df.schema, form)
    sink = kind(folder, form, {**form.options, **given}, check_types=check)
    return sink(exact(df, form), attempt)


def read_files(
    spark: SparkSession,
    path: str,
    *,
    as_of: int | None = None,
    schema: StructType | str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read what ``append_files`` has published: of each txid one attempt (driver).

    What is published later is not in the DataFrame. ``inputFiles()`` of it names the
    files, for other programs.

    Args:
        spark: Any session.
        path: As of ``append_files``.
        as_of: Read the txids up to this one; None: all.
        schema: Of the rows; None: that of the last batch which is read. Columns that a
            batch lacks are null in its rows. Values of other types are cast as Spark
            does for ``INSERT``; without a schema only where no value can change.
        options: Of the format's reader, besides those that ``append_files`` has stored.

    Raises:
        ConfigError: Nothing is published there, or nothing up to ``as_of``; or
            ``as_of`` is above the last txid; or a column has changed its type.
        StateCorruptedError: A publication cannot be read.
        pyspark.errors.PySparkException: What Spark raises.
    """
    _check_path(path)
    folder = _SparkFolder(spark, path)
    found = counting(published(folder, as_of)[1])
    if not found:
        legal = "a path to which append_files has published a batch"
        raise ConfigError.illegal("path", path, legal)
    first, last = found[0].attempt.txid, found[-1].attempt.txid
    if as_of is not None and not first <= as_of <= last:
        legal = f"{first} to {last}, the txids that are published"
        raise ConfigError.illegal("as_of", as_of, legal)
    wanted = counting(found, as_of)
    if isinstance(schema, str):
        schema = spark.createDataFrame([], schema).schema
    return _frame(spark, folder, wanted, shape_of(wanted, schema), options or {})


def _frame(
    spark: SparkSession,
    folder: _SparkFolder,
    wanted: Sequence[Publication],
    shape: StructType,
    options: Mapping[str, str],
) -> DataFrame:
    """Batches of one schema are read together, and then fitted to the wanted one."""
    form = wanted[-1].form
    alike: dict[str, list[str]] = {}
    for p in wanted:
        files = [folder.file(p.folder, name) for name in p.files]
        alike.setdefault(p.schema, []).extend(files)
    frames = []
    for stored, files in alike.items():
        if files:
            reader = spark.read.format(form.format).schema(as_stored(stored, form))
            reader = reader.options(**{**_ALL_ROWS, **form.options, **options})
            found = reader.option("basePath", folder.attempts).load(files)
            frames.append(found.to(shape))
    empty = spark.createDataFrame([], shape)
    return reduce(DataFrame.union, frames[1:], frames[0]) if frames else empty


def clean_files(
    spark: SparkSession,
    path: str,
    *,
    keep_s: float | None = None,
    left_overs_after_s: float = _DAY_S,
) -> int:
    """Remove files that no longer count, and merge small publications (driver).

    Left-overs are folders of attempts that died or were replaced. Queries may run, and
    a kill at any moment is harmless. Readers that began earlier may miss the files.

    Args:
        spark: A classic session: one of Spark Connect cannot remove files.
        path: As of ``append_files``.
        keep_s: Also remove the batches that were published longer ago, in the order of
            their txids; the last one stays. None: all batches stay.
        left_overs_after_s: How long left-overs stay after a newer attempt was
            published; longer than a driver may be frozen, and than a reader takes.

    Returns:
        Number of attempts whose files were removed.

    Raises:
        ConfigError: The session is one of Spark Connect, or an argument is not legal.
        StateCorruptedError: A publication cannot be read; nothing was removed.
        py4j.protocol.Py4JJavaError: The file system's errors; call it again.
    """
    _check_path(path)
    if not is_classic(spark):
        legal = "a classic session: with Spark Connect no files can be removed"
        raise ConfigError.illegal("spark", spark, legal)
    for name, value in (
        ("keep_s", 0 if keep_s is None else keep_s),
        ("left_overs_after_s", left_overs_after_s),
    ):
        check_kind(name, value, (int, float), "a number of seconds")
        if value < 0:
            raise ConfigError.illegal(name, value, "0 seconds and more")
    folder = _HadoopFolder(spark, path)
    return clean(
        folder,
        keep_ms=None if keep_s is None else int(keep_s * 1000),
        spare_ms=int(left_overs_after_s * 1000),
        now_ms=SystemClock().now_ms(),
    )


def _check_path(path: object) -> None:
    if not isinstance(path, str) or not path.strip():
        raise ConfigError.illegal("path", path, "the path or URL of a folder")


def _folder(spark: SparkSession, path: str) -> _SparkFolder:
    return (_HadoopFolder if is_classic(spark) else _SparkFolder)(spark, path)


class _SparkFolder:
    """A folder as jobs of Spark see it: also in a session of Spark Connect."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path.rstrip("/") or path
        self.attempts = f"{self.path}/{ATTEMPTS}"
        self._lines: dict[Name, list[str]] = {}

    def names(self) -> list[Name]:
        for left in reversed(range(_TRIES)):
            try:
                self._lines = self._read()
            except (PySparkException, Py4JJavaError):  # merged in between
                if not left:
                    raise
            else:
                break
        return [*self._lines]

    def _read(self) -> dict[Name, list[str]]:
        place = _literal(f"{self.path}/{PUBLISHED}")
        found: dict[Name, list[str]] = {}
        try:
            text = self._spark.read.options(**_PUBLICATIONS).text(place)
            rows = text.select("value", "_metadata.file_path").collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return found
        for value, file in rows:
            name = _named(file.rpartition(f"{PUBLISHED}/")[2])
            if name is not None:
                found.setdefault(name, []).append(value)
        return found

    def lines(self, name: Name) -> list[str]:
        return self._lines[name]

    def put(self, name: Name, text: str) -> None:
        df = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        df.write.text(f"{self.path}/{PUBLISHED}/{name}")

    def write(
        self, rows: DataFrame, name: Name, form: Form, options: Mapping[str, str]
    ) -> list[str]:
        writer = rows.write.format(form.format).options(**options)
        if form.partition_by:
            writer = writer.partitionBy(*form.partition_by)
        writer.save(self._of_attempt(name))
        return sorted(self._files(name, form))

    def _files(self, name: Name, form: Form) -> list[str]:  # noqa: ARG002
        place = _literal(self._of_attempt(name))
        found = (
            self._spark.read.format("binaryFile").options(**_PUBLICATIONS).load(place)
        )
        return [_after(row.path, name) for row in found.select("path").collect()]

    def schema(self, rows: DataFrame) -> str:
        return str(rows.schema.json())

    def strangers(self) -> list[str]:
        found = self._spark.read.format("binaryFile").options(**_PUBLICATIONS)
        try:
            rows = found.load(_literal(self.path)).select("path").limit(1).collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return []
        return [row.path for row in rows]

    def file(self, folder: str, name: str) -> str:
        return _literal(f"{self.attempts}/{COLUMN}={folder}/{name}")

    def _of_attempt(self, name: Name) -> str:
        return f"{self.attempts}/{COLUMN}={name}"


class _HadoopFolder(_SparkFolder):
    """A folder through the JVM of a classic session: some milliseconds a step."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, path)
        self._packages, self._fs = file_system(spark, self.path)

    def _at(self, place: str, pattern: str = "") -> Any:  # noqa: ANN401 - of py4j
        whole = f"{self.path}/{place}" if place else self.path
        whole = _literal(whole) + pattern if pattern else whole
        return self._packages.org.apache.hadoop.fs.Path(whole)

    def names(self) -> list[Name]:
        return self._named(f"{PUBLISHED}/")

    def folders(self) -> list[Name]:
        return self._named(f"{ATTEMPTS}/{COLUMN}=")

    def _named(self, place: str) -> list[Name]:
        names = (Name.of(name) for name in self._beside(place))
        return [name for name in names if name is not None]

    def _beside(self, place: str) -> list[str]:
        """How the names go on that begin with a place, in few calls to the JVM."""
        status = self._fs.globStatus(self._at(place, "*"))
        if status is None:
            return []
        paths = self._packages.org.apache.hadoop.fs.FileUtil.stat2Paths(status)
        every = self._packages.scala.runtime.ScalaRunTime.genericWrapArray(paths)
        return [p.rpartition(place)[2] for p in every.mkString("\n").splitlines()]

    def lines(self, name: Name) -> list[str]:
        try:
            text = self._text(name)
        except Py4JJavaError as error:
            if "FileNotFoundException" not in str(error.java_exception.getClass()):
                raise
            raise FileNotFoundError(str(error.java_exception.getMessage())) from error
        if text:
            _newest[self.path] = {name: text}
        return text.splitlines()

    def _below(self, place: str) -> list[str]:
        """The files below a folder, by their places there."""
        at, found = self._at(place), []
        files, before = self._fs.listFiles(at, True), len(self._whole(at)) + 1
        while files.hasNext():
            found.append(self._whole(files.next().getPath())[before:])
        return [name for name in found if not _HIDDEN.search(name)]

    def _whole(self, path: Any) -> str:  # noqa: ANN401 - of py4j
        return str(self._fs.makeQualified(path).toString())

    def _text(self, name: Name) -> str:
        known = _newest.get(self.path, {}).get(name)
        if known is not None:
            return known
        place = f"{PUBLISHED}/{name}"
        if self._fs.getFileStatus(self._at(place)).isDirectory():  # Spark Connect's
            parts = self._below(place)
            if not parts:
                return ""  # its driver is at work, or has died
            place = f"{place}/{parts[0]}"
        stream = self._fs.open(self._at(place))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def put(self, name: Name, text: str) -> None:
        """Write the file beside the attempt's files, and rename it."""
        beside = self._at(f"{ATTEMPTS}/{COLUMN}={name}/_publication")
        there = self._at(f"{PUBLISHED}/{name}")
        stream = self._fs.create(beside, False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._fs.mkdirs(there.getParent())
        if not self._fs.rename(beside, there):
            raise OSError(f"{beside} could not be renamed to {there}")
        if name.level:  # no attempt's
            self._fs.delete(beside.getParent(), True)
        else:
            _newest[self.path] = {name: text}

    def remove(self, names: Sequence[Name]) -> None:
        for name in names:
            self._fs.delete(self._at(f"{PUBLISHED}/{name}"), True)

    def _files(self, name: Name, form: Form) -> list[str]:
        place = f"{ATTEMPTS}/{COLUMN}={name}"
        found = self._below(place) if form.partition_by else self._beside(f"{place}/")
        return [file for file in found if not _HIDDEN.search(file)]

    def remove_folders(self, folders: Sequence[Name]) -> None:
        for folder in folders:
            self._fs.delete(self._at(f"{ATTEMPTS}/{COLUMN}={folder}"), True)

    def strangers(self) -> list[str]:
        with suppress(Py4JJavaError):  # there is no folder yet
            files = self._fs.listStatus(self._at(""))
            names = (file.getPath().getName() for file in files)
            return [name for name in names if not _HIDDEN.match(name)]
        return []


_HIDDEN = re.compile(r"(?:^|/)(?:\.[^/]*|_[^/=]*)(?:/|$)")
"""What Spark takes no notice of."""


def _named(place: str) -> Name | None:
    """The publication's name: that of a file, or of a folder with one file."""
    return Name.of(place.partition("/")[0])


def _after(path: str, name: Name) -> str:
    return path.partition(f"{COLUMN}={name}/")[2]


def _literal(path: str) -> str:
    """A path whose characters mean themselves: Spark takes others for patterns."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
