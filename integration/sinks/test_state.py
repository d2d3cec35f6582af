"""Kafka to SQLite and PostgreSQL: a batch that comes again changes nothing.

Drivers that are killed: ``test_crashes``.
"""

from __future__ import annotations

from typing import Any

import pytest

from integration.bounded import read_out
from integration.cluster.topics import fresh_name
from integration.killed.state import PARTITIONS, check, fill
from integration.sinks.state_job import Results, counting, urls_of
from kafka_tx.errors import OutOfOrderError
from kafka_tx.model import TransactionAttempt

pytestmark = pytest.mark.all


class Counted:
    """The query over a topic; the first run of it has come to the topic's end."""

    def __init__(self, spark, servers, topic, expected, work, urls) -> None:
        self.expected, self.work = expected, work
        self.results = Results(urls, "transactional")
        self._query: Any = lambda take: counting(
            spark,
            take,
            servers=servers,
            topic=topic,
            store=f"sqlite:///{work}/store.db",
            mode="transactional",
        )
        self.first = self.run()

    def run(self):
        """Run to the end of the topic; tells which batches came."""
        seen = []

        def remember(df, attempt):
            seen.append((attempt, df.toArrow()))
            self.results(df, attempt)

        checkpoint = str(self.work / "checkpoint")
        query = self._query(remember).option("checkpointLocation", checkpoint)
        read_out(query)
        return seen

    def batches(self):
        """How many are counted; all else is as it must be."""
        return check(self.results, self.expected)


@pytest.fixture(scope="module")
def counted(spark, kafka, produce, postgresql_server, tmp_path_factory):
    """One for all tests, in their order: another run has another owner."""
    name, work = fresh_name("state"), tmp_path_factory.mktemp("state")
    kafka.create_topic(name, PARTITIONS)
    expected = fill(produce, name)
    urls = urls_of(work / "state.db", postgresql_server)
    found = Counted(spark, kafka.bootstrap_servers, name, expected, work, urls)
    yield found
    found.results.close()


def test_replaying_a_committed_batch_by_hand_changes_nothing(spark, counted):
    batches, before = counted.first, counted.results.dump()
    newest = batches[-1][0].txid

    for attempt, rows in batches[-2:]:
        df = spark.createDataFrame(rows)
        for attempt_id in (attempt.attempt_id + 1, attempt.attempt_id + 2):
            replay = TransactionAttempt(attempt.txid, attempt_id)
            if attempt.txid < newest:
                with pytest.raises(OutOfOrderError):
                    counted.results(df, replay)
            else:
                counted.results(df, replay)

    assert counted.results.dump() == before
    assert counted.batches() == len(batches)


def test_state_survives_a_commit_that_spark_forgot(counted):
    first, before = counted.first, counted.batches()
    commits = counted.work / "checkpoint" / "commits"
    newest = max(int(p.name) for p in commits.iterdir() if p.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)

    again = counted.run()

    assert [attempt.txid for attempt, _ in again] == [first[-1][0].txid]
    assert again[0][0].attempt_id > first[-1][0].attempt_id
    assert again[0][1].num_rows == first[-1][1].num_rows
    assert counted.batches() == before == len(first)
