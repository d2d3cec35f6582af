"""The data source behind ``format("kafka_tx")``.

Every worker that reads or writes imports this module, so each of the four ways in is
imported when it is taken.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_tx.errors import ConfigError
from kafka_tx.errors_first import raises_own_error_first
from kafka_tx.options.source import check_source, parse_source
from kafka_tx.running.worker_python import task_done
from kafka_tx.spark.versions.workers import modules_loading, show_to_streams

_HEADER = StructType().add("key", StringType()).add("value", BinaryType())
_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
"""Types, as the session decides what the word `timestamp` means."""


@raises_own_error_first("schema", "reader", "streamReader", "writer", "streamWriter")
class KafkaTxDataSource(DataSource):
    """A drop-in for Spark's ``format("kafka")``; pip alone installs it.

    Found by name when ``pyspark_kafka_tx`` is installed beside it; ``spark.dataSource.
    register(KafkaTxDataSource)`` does the same where packages are shipped by hand.
    Options are those of Spark's Kafka source plus ``tx.*``; see ``docs/options.md``.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._fixed: dict[str, str] = {}
        show_to_streams()
        task_done()  # of a process that plans: what it did before was released

    @classmethod
    def name(cls) -> str:
        """The word in ``format(...)``."""
        return "kafka_tx"

    def schema(self) -> StructType:
        """Spark's columns of Kafka records, with ``headers`` when asked for.

        Spark asks when a query is made, so this is where bad options are refused, and
        where readers' schemas are fixed. This object then travels to all processes.

        Raises:
            ConfigError: An option is missing or illegal, or a schema is refused.
            RegistryError: The schema registry does not answer, or refuses the client.
        """
        formats = check_source(self.options).formats
        with_headers = self.options.get("includeheaders", "false").strip().lower()
        columns = {
            name: kind
            for name, kind in _COLUMNS.items()
            if name != "headers" or with_headers == "true"
        }
        if formats:
            from kafka_tx.spark.source import typed

            self._fixed = typed.fixed(formats)
            columns = typed.columns(columns, self._fixed, formats)
        return StructType([StructField(name, kind) for name, kind in columns.items()])

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - fixed
        """A batch read (planning process); raises ConfigError."""
        from kafka_tx.spark.source.batch import KafkaTxBatchReader

        return KafkaTxBatchReader(parse_source(self._all_options(), streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """A streaming read (planning process)."""
        with modules_loading():
            from kafka_tx.spark.connect.meeting import ServedStreamReader
            from kafka_tx.spark.versions.streams import as_this_spark_calls_it

        return as_this_spark_calls_it(ServedStreamReader(self._all_options()))

    def _all_options(self) -> dict[str, str]:
        """The options, with the schemas that were fixed by ``schema``."""
        formats = check_source(self.options).formats
        if formats and not self._fixed:  # the user gave the columns
            from kafka_tx.spark.source import typed

            self._fixed = typed.fixed(formats)
        return {**self.options, **self._fixed}

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write (driver).

        Raises:
            ConfigError: An option or a column is missing or illegal, or the save mode
                is ``overwrite``: a topic is only appended to.
        """
        from kafka_tx.options.sink import parse_sink
        from kafka_tx.spark.sinks.writer import KafkaTxWriter

        if overwrite:
            raise ConfigError.illegal("mode", "overwrite", "append")
        return KafkaTxWriter(parse_sink(self.options, by_transaction=True), schema)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - complete mode truncates nothing, as in Spark
    ) -> DataSourceStreamWriter:
        """A streaming write (driver); raises ConfigError."""
        from kafka_tx.options.sink import parse_sink
        from kafka_tx.spark.sinks.writer import KafkaTxStreamWriter

        return KafkaTxStreamWriter(parse_sink(self.options), schema)
