"""The planner of a run with ``availableNow``, as Spark calls it."""

from __future__ import annotations

from contextlib import closing

from kafka_tx.source.questions import Question
from kafka_tx.spark.source.stream import KafkaTxStreamReader
from kafka_tx.spark.versions.streams import ReadAllAvailable
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout.txid_layout import ALIVE


def test_a_run_shows_life_until_all_is_read_and_again_for_a_batch_without_records(
    cluster, topic, tmp_path
):
    """Such a batch closes the last windows; the end of the process ends all signs."""
    url = f"sqlite:///{tmp_path}/store.db"
    reader = KafkaTxStreamReader(
        {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": topic(b"a", b"b"),
            "startingoffsets": "earliest",
            "tx.id": "job",
            "tx.store": url,
        }
    )

    def shows_life():
        with closing(SqlStore(url, "job")) as store:
            return store.get(ALIVE) is not None

    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert shows_life()
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert not shows_life()

    at = reader._offset(end)
    reader.latestOffset(Question("query", 1, at, at).to_json(), ReadAllAvailable())
    assert shows_life()

    reader.stop()
    assert not shows_life()
