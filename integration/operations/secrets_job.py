"""Runs queries whose options hold secrets, and keeps all that Spark shows of them.

``python -m integration.operations.secrets_job <work> <brokers> <source> <target>``
puts explanations, pages of the UI, the event log, checkpoints and errors into files
below ``work``, and prints the log of the driver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_tx
from integration.cluster.spark_local import local_session
from integration.cluster.waiting import PATIENT_S
from kafka_tx.spark.quiet_stop import stop_quietly

PLANTED = "hunter2-planted"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="u" password="{PLANTED}";'
)
USED = {"kafka.sasl.jaas.config": JAAS, "kafka.ssl.key.password": PLANTED}
"""Of clients that need none of them."""
NAMED = (
    "kafka.sasl.password",
    "kafka.ssl.key.pem",
    "kafka.ssl.keystore.key",
    "kafka.ssl.keystore.password",
    "kafka.ssl.truststore.password",
    "kafka.sasl.oauthbearer.client.secret",
    "kafka.sasl.oauthbearer.config",
    "kafka.sasl.oauthbearer.extensions",
    "kafka.sasl.oauthbearer.assertion.private.key.pem",
    "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
    "kafka.sasl.oauthbearer.client.credentials.client.secret",
)
STORES = (
    f"postgresql+psycopg://jobs:{PLANTED}@127.0.0.1:1/jobs?retry_for_ms=100",
    f"postgresql+psycopg://jobs@127.0.0.1:1/jobs?password={PLANTED}&retry_for_ms=100",
    f"zookeeper://127.0.0.1:1/root?auth=digest:jobs:{PLANTED}&retry_for_ms=100",
)
MODES = ("extended", "cost", "formatted")


def plans(df: DataFrame) -> Iterator[str]:
    """All that ``explain`` can print of it."""
    explaining = df.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode
    for mode in MODES:
        yield df._jdf.queryExecution().explainString(explaining.fromString(mode))


class Job:
    """One session, and what it is asked to do."""

    def __init__(self, spark: SparkSession, work: Path, brokers: str) -> None:
        self.spark, self.work = spark, work
        self.brokers = {"kafka.bootstrap.servers": brokers}
        self.shown = (work / "shown").open("w")

    def load(self, source: str, *, stream: bool, **more: str) -> DataFrame:
        """Read, and keep the plans."""
        reader = self.spark.readStream if stream else self.spark.read
        options = {**self.brokers, **USED, **more, "subscribe": source}
        df = reader.format("kafka_tx").options(**options).load()
        print(*plans(df), file=self.shown)  # the longer ones hold the others
        return df

    def run(self, df: DataFrame, checkpoint: str, *, fails: bool = False) -> None:
        """Run a stream to its end."""

        def each(batch: DataFrame, _: object) -> None:
            print(*plans(batch), file=self.shown)
            batch.count()
            if fails:
                raise ValueError("as it was told to")

        writer = df.writeStream.foreachBatch(kafka_tx.for_each_transaction(each))
        writer = writer.option("checkpointLocation", str(self.work / checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(PATIENT_S)
        except PySparkException as error:
            print(error, repr(error), file=self.shown)
        print([p.json for p in query.recentProgress], file=self.shown)
        print(query._jsq.explainInternal(True), file=self.shown)
        query.stop()

    def write(self, df: DataFrame, target: str, **more: str) -> None:
        """Write a DataFrame."""
        options = {**self.brokers, **USED, **more, "topic": target}
        writer = df.select("value").write.format("kafka_tx").mode("append")
        try:
            writer.options(**options).save()
        except PySparkException as error:
            print(error, repr(error), file=self.shown)

    def pages(self) -> None:
        """Fetch what the UI shows."""
        url = self.spark.sparkContext.uiWebUrl
        store = self.spark._jsparkSession.sharedState().statusStore()
        count = store.executionsCount()
        paths = ["SQL/", "StreamingQuery/", "environment/", "jobs/", "stages/"]
        paths += [f"SQL/execution/?id={n}" for n in range(count)]
        application = self.spark.sparkContext.applicationId
        paths += [f"api/v1/applications/{application}/sql?details=true&length=1000"]
        for path in paths:
            with urlopen(f"{url}/{path}") as page:
                print(path, page.read().decode(), file=self.shown)
        print(f"{count} executions", file=self.shown)


def main(work: Path, brokers: str, source: str, target: str) -> None:
    """Do all of it."""
    (work / "events").mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(work / "events"),
        "spark.sql.ui.explainMode": "extended",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }
    spark = local_session(work / "spark", settings)
    spark.sparkContext.setLogLevel("INFO")
    kafka_tx.attach(spark, metrics_port=None)
    job = Job(spark, work, brokers)
    begin = {"startingOffsets": "earliest"}
    for number, store in enumerate(STORES):
        options = begin | {"tx.id": f"of-{source}", "tx.store": store}
        df = job.load(source, stream=True, **options)
        if number == 0:
            job.run(df, "dead")
    for stream in (False, True):
        job.load(source, stream=stream, **dict.fromkeys(NAMED, PLANTED))
    kept = {"tx.id": source, "tx.store": f"sqlite:///{work}/s.db?token={PLANTED}"}
    job.run(job.load(source, stream=True, **begin, **kept), "fails", fails=True)
    records = job.load(source, stream=False)
    job.write(records, target)
    job.write(records, f"{target}-that-is-not-there")
    job.pages()
    job.shown.close()
    stop_quietly(spark)
    (work / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
