"""Kafka to SQLite and PostgreSQL: state equals a recount, whatever dies or repeats."""

from __future__ import annotations

from collections import Counter

import pytest

from integration.bounded import read_out
from integration.cluster.records import Record
from integration.pausing import Life, kill_when_paused, run_to_end
from integration.sizes import size
from integration.state_job import POINTS, Results, counting, urls_of
from kafka_tx.errors import OutOfOrderError
from kafka_tx.model import TransactionAttempt

RECORDS, PARTITIONS, KEYS = size(120, 240), 3, 17
WITHIN_S = 120
JOB = "integration.state_job"


@pytest.fixture
def urls(tmp_path, postgresql_server):
    return urls_of(tmp_path / "state.db", postgresql_server)


@pytest.fixture
def results(urls):
    opened = Results(urls)
    yield opened
    opened.close()


@pytest.fixture
def filled(topic, produce):
    """A topic, and what a correct job makes of it."""
    name = topic(PARTITIONS)
    keys = [f"k{n % KEYS}" for n in range(RECORDS)]
    places = produce(name, [Record(str(n), key=key) for n, key in enumerate(keys)])
    rows = sorted((p, o, keys[n], n) for n, (p, o) in enumerate(places))
    sums: Counter[str] = Counter()
    for _, _, key, n in rows:
        sums[key] += n
    expected = {
        "counts": dict(Counter(keys)),
        "sums": dict(sums),
        "newest": {key: n for n, key in enumerate(keys)},
        "kept": rows,
        "replaced": rows,
    }
    return name, expected


def check(results, expected):
    """Both databases hold what they must; return how many batches they counted."""
    dumps = results.dump()
    batches = [dump.pop("batches")["all"] for dump in dumps]
    assert dumps == [expected, expected]
    assert batches[0] == batches[1]
    return batches[0]


class Job:
    """The counting job over a topic, which drivers take up one after the other.

    A transactional one keeps its checkpoint, an opaque one has a new one each time.
    """

    def __init__(self, work, servers, topic, mode, urls):
        self.work, self.urls, self.mode = work, urls, mode
        self.txid = 1
        self.given = ["--servers", servers, "--topic", topic, "--mode", mode]

    def to(self, point):
        self.txid += 1
        place = ("--point", point, "--txid", str(self.txid))
        return Life(JOB, self.work, [*self._given(), *place])

    def finish(self, spark):
        run_to_end(JOB, spark, self.work, *self._given())

    def _given(self):
        name = "kept" if self.mode == "transactional" else f"run{self.txid}"
        urls = [word for url in self.urls for word in ("--url", url)]
        return [*self.given, "--checkpoint", str(self.work / name), *urls]


DIFFERENT = ("between-databases",)
"""One database has the batch, the other one has not: elsewhere both are as one of them.
The simulator, ``tests/properties/test_maps.py``, dies in the middle of batches."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "points", [DIFFERENT, pytest.param(POINTS, marks=pytest.mark.all)]
)
def test_killed_drivers_leave_state_that_equals_a_recount(
    spark, python, kafka, filled, tmp_path, postgresql_server, points
):
    """Two queries over one topic, with a state each."""
    name, expected = filled
    jobs = [
        Job(tmp_path / mode, kafka.bootstrap_servers, name, mode, urls)
        for mode, urls in {
            mode: urls_of(tmp_path / f"{mode}.db", postgresql_server)
            for mode in ("transactional", "opaque")
        }.items()
    ]

    for point in points:
        kill_when_paused([job.to(point) for job in jobs], python)

    for job in jobs:
        job.finish(spark)
        results = Results(job.urls)
        assert check(results, expected) >= RECORDS // 60
        results.close()


@pytest.fixture
def run(spark, kafka, filled, results, tmp_path):
    """Run the query to the end of the topic; tells which batches came."""

    def until_done():
        seen = []

        def remember(df, attempt):
            seen.append((attempt, df.toArrow()))
            results(df, attempt)

        query = counting(
            spark,
            remember,
            servers=kafka.bootstrap_servers,
            topic=filled[0],
            store=f"sqlite:///{tmp_path}/store.db",
            mode="transactional",
        )
        checkpoint = str(tmp_path / "checkpoint")
        read_out(query.option("checkpointLocation", checkpoint), WITHIN_S)
        return seen

    return until_done


@pytest.mark.timeout(300)
def test_state_survives_a_commit_that_spark_forgot(run, filled, results, tmp_path):
    first = run()
    batches = check(results, filled[1])
    commits = tmp_path / "checkpoint" / "commits"
    newest = max(int(p.name) for p in commits.iterdir() if p.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)

    again = run()

    assert [attempt.txid for attempt, _ in again] == [first[-1][0].txid]
    assert again[0][0].attempt_id > first[-1][0].attempt_id
    assert again[0][1].num_rows == first[-1][1].num_rows
    assert check(results, filled[1]) == batches == len(first)


@pytest.mark.timeout(300)
def test_replaying_a_committed_batch_by_hand_changes_nothing(
    run, spark, filled, results
):
    batches = run()
    before = results.dump()
    newest = batches[-1][0].txid

    for attempt, rows in batches[-2:]:
        df = spark.createDataFrame(rows)
        for attempt_id in (attempt.attempt_id + 1, attempt.attempt_id + 2):
            replay = TransactionAttempt(attempt.txid, attempt_id)
            if attempt.txid < newest:
                with pytest.raises(OutOfOrderError):
                    results(df, replay)
            else:
                results(df, replay)

    assert results.dump() == before
    check(results, filled[1])
