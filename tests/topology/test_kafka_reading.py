import pickle

import pytest

from kafka_tx.errors import FailedException, ReplayImpossibleError
from kafka_tx.model import OffsetRange, TopicPartition, Topics
from kafka_tx.topology.kafka.spout import KafkaBatch
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.schemes import StringScheme

PARTITION = TopicPartition("t", 0)
PLANNED = OffsetRange(PARTITION, 2, 6)


def batch(cluster, planned=PLANNED, is_exact=True, seen=None):
    ranges = (planned,)
    return KafkaBatch(cluster, StringScheme(), 7, ranges, is_exact, seen or {})


def read(given):
    facts: dict = {}
    rows = [row[0] for b in given.read(0, 1, facts) for row in to_rows(b)]
    return rows, facts["t-0"]


def test_a_range_is_read_as_rows_of_the_scheme(cluster):
    cluster.fill("t", 9)

    rows, facts = read(pickle.loads(pickle.dumps(batch(cluster))))

    assert rows == ["t-0@2", "t-0@3", "t-0@4", "t-0@5"]
    assert (facts["records"], facts["bytes"]) == (4, 20)


def test_holes_are_no_loss(cluster):
    cluster.fill("t", 9)
    cluster.compact(PARTITION, [3, 5])

    rows, facts = read(batch(cluster))

    assert rows == ["t-0@2", "t-0@4"]
    assert facts["records"] == 2


def test_an_empty_range_asks_nobody(cluster):
    rows, facts = read(batch(cluster, OffsetRange(PARTITION, 3, 3)))

    assert rows == []
    assert facts["records"] == 0


def test_a_replay_that_reads_the_same_is_fine(cluster):
    cluster.fill("t", 9)
    _, facts = read(batch(cluster))

    assert read(batch(cluster, seen={"t-0": facts}))[1] == facts


def a_compaction(cluster):
    cluster.compact(PARTITION, [4])


def other_records(cluster):
    cluster.cut(PARTITION, 4)
    cluster.append(PARTITION, b"t-0@X", b"t-0@5")


@pytest.mark.parametrize("happens", [a_compaction, other_records])
def test_a_replay_that_reads_anything_else_is_impossible(cluster, happens):
    cluster.fill("t", 9)
    _, facts = read(batch(cluster))

    happens(cluster)

    with pytest.raises(ReplayImpossibleError, match="It held") as stopped:
        read(batch(cluster, seen={"t-0": facts}))
    assert stopped.value.fields["txid"] == 7


def test_records_that_are_gone_make_an_exact_replay_impossible(cluster):
    cluster.fill("t", 9)
    cluster.trim(PARTITION, 4)

    with pytest.raises(ReplayImpossibleError) as stopped:
        read(batch(cluster))

    fields = stopped.value.fields
    assert (fields["topic"], fields["partition"]) == ("t", 0)
    assert (fields["wanted"], fields["available"]) == ((2, 6), (4, 9))
    assert "t-0 [2, 6)" in str(stopped.value)


def test_records_that_are_gone_fail_an_opaque_attempt(cluster):
    cluster.fill("t", 9)
    cluster.trim(PARTITION, 4)

    with pytest.raises(FailedException, match=r"t-0 \[2, 6\) cannot be read any more"):
        read(batch(cluster, is_exact=False))


def made_anew(cluster, count=9):
    """The topic; gives what was planned of the former one."""
    (former,) = (topic.topic_id for topic in cluster.topics(Topics(("t",))).values())
    cluster.create("t", 1)
    cluster.append(PARTITION, *[b"new"] * count)
    return PLANNED.of_topic(former)


def test_a_topic_made_anew_since_the_plan_makes_an_exact_attempt_impossible(cluster):
    cluster.fill("t", 9)
    planned = made_anew(cluster)

    with pytest.raises(ReplayImpossibleError, match="created again") as stopped:
        read(batch(cluster, planned))

    assert stopped.value.fields["available"] is None


def test_a_topic_made_anew_since_the_plan_fails_an_opaque_attempt(cluster):
    cluster.fill("t", 9)
    planned = made_anew(cluster)

    with pytest.raises(FailedException, match="created again"):
        read(batch(cluster, planned, is_exact=False))


def test_tasks_share_the_ranges(cluster):
    cluster.fill("t", 1, 2, 3)
    ranges = tuple(OffsetRange(TopicPartition("t", n), 0, n + 1) for n in range(3))
    given = KafkaBatch(cluster, StringScheme(), 7, ranges)
    facts: list[dict] = [{}, {}]

    for task in range(2):
        assert list(given.read(task, 2, facts[task]))

    assert [[*told] for told in facts] == [["t-0", "t-2"], ["t-1"]]
