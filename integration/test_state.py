"""Kafka to SQLite and PostgreSQL: state equals a recount, whatever dies or repeats."""

from __future__ import annotations

from collections import Counter

import pytest

from integration.bounded import read_out
from integration.cluster.records import Record
from integration.pausing import run_to_end, run_to_pause
from integration.state_job import POINTS, Results, counting
from kafka_tx.errors import OutOfOrderError
from kafka_tx.model import TransactionAttempt

RECORDS, PARTITIONS, KEYS = 240, 3, 17
WITHIN_S = 120
JOB = "integration.state_job"


@pytest.fixture
def urls(tmp_path, postgresql):
    return [f"sqlite:///{tmp_path}/state.db", postgresql]


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
    """The counting job, as a process tree of its own."""

    def __init__(self, work, servers, topic, mode, urls):
        self.work, self.urls = work, urls
        self.txid = 1
        self.given = ["--servers", servers, "--topic", topic, "--mode", mode]

    def kill_at(self, point, checkpoint):
        """Run until it pauses at ``point``, and kill it."""
        self.txid += 1
        place = ("--point", point, "--txid", str(self.txid))
        given = self._given(checkpoint)
        assert not run_to_pause(JOB, self.work, *given, *place), f"not at {point}"

    def finish(self, spark, checkpoint):
        run_to_end(JOB, spark, self.work, *self._given(checkpoint))

    def _given(self, checkpoint):
        urls = [word for url in self.urls for word in ("--url", url)]
        return [*self.given, "--checkpoint", str(self.work / checkpoint), *urls]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mode", "points"),
    [
        ("transactional", ("in-transaction", "after-state")),
        ("opaque", ("between-databases",)),
        pytest.param("transactional", POINTS, marks=pytest.mark.all),
    ],
)
def test_a_killed_driver_leaves_state_that_equals_a_recount(
    spark, kafka, filled, tmp_path, urls, results, mode, points
):
    name, expected = filled
    job = Job(tmp_path, kafka.bootstrap_servers, name, mode, urls)

    for n, point in enumerate(points):
        job.kill_at(point, "kept" if mode == "transactional" else f"run{n}")
    job.finish(spark, "kept" if mode == "transactional" else "last")

    assert check(results, expected) >= RECORDS // 60


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

    for attempt, rows in batches:
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
