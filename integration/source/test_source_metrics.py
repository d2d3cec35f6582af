"""A real Prometheus scrapes a running streaming job."""

from __future__ import annotations

import logging
import threading

import pytest
import requests

import kafka_tx
from integration.cluster.waiting import wait_until
from integration.operations.observing import Observed
from integration.operations.watching import watching
from integration.reading import Run
from kafka_tx.metrics.metric import Fed

EVERY_S = 0.5


class Feed:
    """Writes ten records of ten bytes again and again: rates have something to show."""

    def __init__(self, produce, topic):
        self.records = 0
        self._produce, self._topic = produce, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="feed")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Stop; what is counted until now is in the topic."""
        self._over.set()
        self._thread.join()

    def _write(self):
        while not self._over.wait(EVERY_S):
            self._produce(self._topic, ["0123456789"] * 10)
            self.records += 10


@pytest.mark.all
def test_every_panel_and_rule_answers_for_a_running_job(
    spark, kafka, topic, produce, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "kafka_tx")
    name = topic(2)
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
        with (
            watching(f"127.0.0.1:{attached.port}") as api,
            Feed(produce, name) as feed,
        ):
            seen = Observed(
                api,
                "watched",
                frozenset({Fed.COMMIT, Fed.BATCH, Fed.PROCESS}),
            )
            seen.assert_every_panel_shows_data()
            seen.assert_every_rule_is_evaluated()
            feed.end()
            wait_until(
                "all is counted", lambda: counted("records", attached) == feed.records
            )
            query.stop()

            # It answers when all is over.
            assert counted("records", attached) == feed.records
            assert counted("bytes", attached) == 10 * feed.records
            assert counted("batches", attached, outcome="committed") >= 3
            ours = [one for one in caplog.records if one.name.startswith("kafka_tx")]
            assert not ours, "batches are no news"
    finally:
        query.stop()
        attached.close()


def counted(what, attached, **labels):
    text = requests.get(f"http://127.0.0.1:{attached.port}/metrics", timeout=60).text
    of = ",".join(
        f'{name}="{value}"' for name, value in {"id": "watched", **labels}.items()
    )
    start = f"kafka_tx_{what}_total{{{of}}} "
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return float(lines[0].removeprefix(start)) if lines else None
