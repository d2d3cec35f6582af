"""A job that has read markers by a pattern goes on; a new job reads none."""

import pytest

from kafka_tx import own_topics
from kafka_tx.model import TopicPartition, TopicPattern
from kafka_tx.options.source import parse_source, reads
from kafka_tx.own_topics import MARKER_TOPIC, leaves_out, may_meet
from kafka_tx.source.microbatches import MicroBatches
from tests.fake_cluster import FakeCluster
from tests.source.test_transactional import P0, Job

MARKERS = TopicPartition(MARKER_TOPIC, 0)
BY_PATTERN = {
    "kafka.bootstrap.servers": "b:9092",
    "subscribePattern": ".*",
    "startingOffsets": "earliest",
}


class ByPattern(FakeCluster):
    """Shows a pattern what it matches."""

    def topics(self, wanted):
        found = super().topics(wanted)
        names = wanted.matching(found) if isinstance(wanted, TopicPattern) else found
        return {name: found[name] for name in names}


@pytest.fixture
def cluster():
    made = ByPattern()
    made.set(0, 0, 10)
    made.set(0, 0, 7, topic=MARKER_TOPIC)
    return made


class Numbered(Job):
    def start(self, **options):
        return super().start(subscribePattern=".*", subscribe=None, **options)


def planner(cluster, clock, job):
    if job is None:
        return MicroBatches(
            parse_source(BY_PATTERN, streaming=True), cluster, clock, lambda _: {}
        )
    return job.start()


@pytest.mark.parametrize("is_numbered", [True, False])
@pytest.mark.parametrize("is_pending", [True, False])
def test_a_job_goes_on_with_markers_that_an_earlier_version_read(
    cluster, clock, monkeypatch, caplog, is_numbered, is_pending
):
    job = Numbered(cluster, clock) if is_numbered else None
    with monkeypatch.context() as earlier:
        earlier.setattr(own_topics, "_own", {})
        run = planner(cluster, clock, job)
        start = run.initial()
        end = run.latest(start, everything=True)
    assert end.positions == {P0: 10, MARKERS: 7}

    run = planner(cluster, clock, job)
    if is_pending:
        ranges = {r.topic_partition: len(r) for r in run.ranges(start, end)}
        assert ranges == {P0: 10, MARKERS: 7}
    cluster.set(0, 0, 20)

    assert run.latest(end, everything=True).positions == {P0: 20, MARKERS: 7}
    assert f"the job has read {MARKER_TOPIC} and goes on" in caplog.text


@pytest.mark.parametrize("is_numbered", [True, False])
def test_a_new_job_reads_no_markers(cluster, clock, is_numbered):
    run = planner(cluster, clock, Numbered(cluster, clock) if is_numbered else None)

    assert run.latest(run.initial(), everything=True).positions == {P0: 10}


@pytest.mark.parametrize("pattern", [".*", "orders.*", ".*orders.*|x"])
def test_a_pattern_leaves_a_topic_out_as_the_errors_say(pattern):
    given = {"kafka.bootstrap.servers": "b:1"}
    advised = f"{leaves_out('orders-dead')}(?:{pattern})"

    all_, others = (
        parse_source({**given, "subscribePattern": each}, streaming=True)
        for each in (pattern, advised)
    )

    assert reads(all_, "orders-dead")
    assert not reads(others, "orders-dead")
    assert reads(others, "orders-dead-2")
    assert reads(others, "orders")


@pytest.mark.parametrize(
    ("others", "may"),
    [("b1:1,b2:1", True), (" b2:1 , b1:1", True), ("b2:1", True), ("b3:1", False)],
)
def test_clients_with_an_address_in_common_may_meet_the_same_brokers(others, may):
    one = {"bootstrap.servers": "b1:1,b2:1"}

    assert may_meet(one, {"bootstrap.servers": others}) is may
