"""A real Prometheus scrapes a running streaming job."""

from __future__ import annotations

import pytest
import requests

import kafka_tx
from integration.cluster.waiting import wait_until
from integration.observing import Observed
from integration.reading import Run
from integration.watching import watching
from kafka_tx.metrics.metric import Fed

NEWEST = "kafka_tx_newest_record_timestamp_seconds"


@pytest.mark.timeout(300)
def test_every_panel_and_rule_answers_for_a_running_job(
    spark, kafka, topic, produce, tmp_path
):
    name = topic(2)
    produce(name, ["0123456789"] * 100)
    attached = kafka_tx.attach(spark, metrics_port=0, metrics_address="127.0.0.1")
    run = Run(
        spark,
        kafka.bootstrap_servers,
        subscribe=name,
        tx__id="watched",
        tx__store=f"sqlite:///{tmp_path}/state.db",
        maxOffsetsPerTrigger="10",
    )
    query = run._writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        with watching(f"127.0.0.1:{attached.port}") as api:
            seen = Observed(
                api,
                "watched",
                frozenset({Fed.COMMIT, Fed.BATCH, Fed.PROCESS}),
                without=frozenset({NEWEST}),
            )
            seen.assert_every_panel_shows_data()
            seen.assert_every_rule_is_evaluated()
            wait_until("all is counted", lambda: counted("records", attached) == 100)
            query.stop()

            assert counted("records", attached) == 100  # it answers when all is over
            assert counted("bytes", attached) == 1000
    finally:
        query.stop()
        attached.close()


def counted(what, attached):
    text = requests.get(f"http://127.0.0.1:{attached.port}/metrics", timeout=5).text
    start = f'kafka_tx_{what}_total{{id="watched"}} '
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return float(lines[0].removeprefix(start)) if lines else None
