"""What is attached follows a query to the store that it uses now."""

from __future__ import annotations

import os
from functools import partial

import kafka_tx
from integration.cluster.waiting import wait_until
from kafka_tx.assembly import open_store
from kafka_tx.transactions.ledger.ledger import Ledger


def committed(url):
    ledger = Ledger(open_store(url, "moving"))
    try:
        return ledger.load().txid
    finally:
        ledger.close()


def is_committed(url):
    return committed(url) == 1


def test_a_query_that_moves_to_another_store_is_committed_there(
    spark, kafka, topic, produce, tmp_path, monkeypatch
):
    """One is named from the folder of the session; the program has left that since."""
    name = topic()
    folder = spark._jvm.java.lang.System.getProperty("user.dir")
    attached = kafka_tx.attach(spark, metrics_port=None)
    urls = [f"sqlite:///{tmp_path}/{which}.db" for which in ("first", "second")]
    given = [urls[0], f"sqlite:///{os.path.relpath(tmp_path, folder)}/second.db"]
    monkeypatch.chdir(tmp_path)
    try:
        for url, option in zip(urls, given, strict=True):
            produce(name, ["v"] * 3)
            query = (
                spark.readStream.format("kafka_tx")
                .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
                .option("subscribe", name)
                .option("startingOffsets", "earliest")
                .option("tx.id", "moving")
                .option("tx.store", option)
                .load()
                .writeStream.format("noop")
                .trigger(availableNow=True)
                .option("checkpointLocation", f"{tmp_path}/checkpoint{urls.index(url)}")
                .start()
            )
            query.awaitTermination()
            # no trigger follows, so that nobody but the listener commits it
            wait_until("it is committed", partial(is_committed, url))
    finally:
        attached.close()
    assert [committed(url) for url in urls] == [1, 1]
