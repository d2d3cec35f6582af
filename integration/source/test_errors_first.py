"""Of an error of ours, Spark shows class and sentence in its first or last line."""

from __future__ import annotations

import logging

import pytest
from pyspark.errors import StreamingQueryException

import kafka_tx
from integration.reading import reader
from integration.sizes import in_all


def fails(df, attempt):
    raise kafka_tx.FailedException("not today")


def run(spark, kafka, topic, work, function, **options):
    query = (
        reader(spark, kafka.bootstrap_servers, **{"subscribe": topic} | options)
        .load()
        .writeStream.foreachBatch(function)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    return str(raised.value), str(query.exception())


def is_first(text, error_class):
    return f"[{error_class}]" in text.splitlines()[0]


def test_of_a_function_of_foreach_batch(spark, kafka, topic, produce, tmp_path, caplog):
    name = topic(1)
    produce(name, ["x"])
    attached = kafka_tx.attach(spark, metrics_port=0)
    try:
        assert f"{attached.port}" in repr(attached)
        with caplog.at_level(logging.ERROR, "kafka_tx"):
            texts = run(
                *(spark, kafka, name, tmp_path, kafka_tx.for_each_transaction(fails)),
                tx__id=name,
                tx__store=f"sqlite:///{tmp_path}/store.db",
            )
    finally:
        attached.close()

    assert all(is_first(text, "KAFKA_TX_FAILED") for text in texts)
    (line,) = [r.getMessage() for r in caplog.records if "ended" in r.getMessage()]
    assert line.startswith("query ")
    assert line.endswith(f"[KAFKA_TX_FAILED] not today [id={name}]")
    assert name in repr(attached)


@pytest.mark.all
def test_of_a_task_inside_a_function_of_foreach_batch(
    spark, kafka, topic, produce, tmp_path
):
    name = topic(1)
    produce(name, ["x"])

    def reads_too_far(df, attempt):
        servers, too_far = kafka.bootstrap_servers, f'{{"{name}": {{"0": 9}}}}'
        asked = {"subscribe": name, "endingOffsets": too_far}
        reader(spark, servers, streaming=False, **asked).load().collect()

    texts = run(
        *(spark, kafka, name, tmp_path),
        kafka_tx.for_each_transaction(reads_too_far),
        tx__id=name,
        tx__store=f"sqlite:///{tmp_path}/store.db",
    )

    wanted = "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"
    assert all(is_first(text, wanted) for text in texts), texts[0]


def test_of_the_planner(spark, kafka, topic, tmp_path):
    name = topic(1)
    texts = run(
        *(spark, kafka, name, tmp_path, lambda df, batch_id: None),
        startingOffsets=f'{{"{name}": {{"0": 0, "7": 1}}}}',
    )

    assert all(
        is_first(text, "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED") for text in texts
    ), texts[0]


def test_of_a_task_that_writes(spark, kafka):
    rows = spark.createDataFrame([(None, "v")], "topic string, value string")
    writer = rows.write.format("kafka_tx").mode("append")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers)

    with pytest.raises(Exception, match="KAFKA_TX_CONFIG") as raised:
        writer.save()

    assert "[KAFKA_TX_CONFIG]" in str(raised.value).strip().splitlines()[-1]


@pytest.mark.parametrize("where", ["planner", *in_all("task")])
def test_of_a_batch_read(spark, kafka, topic, produce, where):
    name = topic(1)
    produce(name, ["x"])
    wrong = {
        "planner": {"startingOffsets": f'{{"{name}": {{"0": 0, "7": 1}}}}'},
        "task": {"endingOffsets": f'{{"{name}": {{"0": 9}}}}'},
    }[where]
    servers = kafka.bootstrap_servers
    df = reader(spark, servers, streaming=False, subscribe=name, **wrong).load()

    with pytest.raises(Exception, match="KAFKA_") as raised:
        df.collect()

    first, second, *_, last = str(raised.value).strip().splitlines()
    if where == "planner":
        assert "[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED]" in first
    else:  # the first line is Spark's: an exception was thrown from the Python worker
        assert "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data" in second
        assert last == second
