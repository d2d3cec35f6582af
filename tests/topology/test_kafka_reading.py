import pickle

import pytest

from kafka_tx.errors import FailedException, ReplayImpossibleError
from kafka_tx.model import TopicPartition, Topics
from kafka_tx.topology.kafka.kafka_reading import KafkaEmitter, partition_of
from kafka_tx.topology.rows.blocks import to_rows
from kafka_tx.topology.rows.schemes import StringScheme

PARTITION = TopicPartition("t", 0)
METADATA = {"start": 2, "end": 6}


def emitter(cluster, is_exact=True, seen=None):
    return KafkaEmitter(cluster, StringScheme(), 7, is_exact, seen or {})


def read(given, metadata=METADATA):
    facts: dict = {}
    rows = [row[0] for b in given.read("t-0", metadata, facts) for row in to_rows(b)]
    return rows, facts


def test_a_range_is_read_as_rows_of_the_scheme(cluster):
    cluster.fill("t", 9)

    rows, facts = read(pickle.loads(pickle.dumps(emitter(cluster))))

    assert rows == ["t-0@2", "t-0@3", "t-0@4", "t-0@5"]
    assert (facts["records"], facts["bytes"]) == (4, 20)


def test_holes_are_no_loss(cluster):
    cluster.fill("t", 9)
    cluster.compact(PARTITION, [3, 5])

    rows, facts = read(emitter(cluster))

    assert rows == ["t-0@2", "t-0@4"]
    assert facts["records"] == 2


def test_an_empty_range_asks_nobody(cluster):
    rows, facts = read(emitter(cluster), {"start": 3, "end": 3})

    assert rows == []
    assert facts["records"] == 0


def test_a_replay_that_reads_the_same_is_fine(cluster):
    cluster.fill("t", 9)
    _, facts = read(emitter(cluster))

    assert read(emitter(cluster, seen={"t-0": facts}))[1] == facts


def a_compaction(cluster):
    cluster.compact(PARTITION, [4])


def other_records(cluster):
    cluster.cut(PARTITION, 4)
    cluster.append(PARTITION, b"t-0@X", b"t-0@5")


@pytest.mark.parametrize("happens", [a_compaction, other_records])
def test_a_replay_that_reads_anything_else_is_impossible(cluster, happens):
    cluster.fill("t", 9)
    _, facts = read(emitter(cluster))

    happens(cluster)

    with pytest.raises(ReplayImpossibleError, match="It held") as stopped:
        read(emitter(cluster, seen={"t-0": facts}))
    assert stopped.value.fields["txid"] == 7


def test_records_that_are_gone_make_an_exact_replay_impossible(cluster):
    cluster.fill("t", 9)
    cluster.trim(PARTITION, 4)

    with pytest.raises(ReplayImpossibleError) as stopped:
        read(emitter(cluster))

    fields = stopped.value.fields
    assert (fields["topic"], fields["partition"]) == ("t", 0)
    assert (fields["wanted"], fields["available"]) == ((2, 6), (4, 9))
    assert "t-0 [2, 6)" in str(stopped.value)


def test_records_that_are_gone_fail_an_opaque_attempt(cluster):
    cluster.fill("t", 9)
    cluster.trim(PARTITION, 4)

    with pytest.raises(FailedException, match=r"t-0 \[2, 6\) cannot be read any more"):
        read(emitter(cluster, is_exact=False))


def made_anew(cluster, count=9):
    """The topic; gives what was planned of the former one."""
    (former,) = (topic.topic_id for topic in cluster.topics(Topics(("t",))).values())
    cluster.create("t", 1)
    cluster.append(PARTITION, *[b"new"] * count)
    return {**METADATA, "id": former}


def test_a_topic_made_anew_since_the_plan_makes_an_exact_attempt_impossible(cluster):
    cluster.fill("t", 9)
    planned = made_anew(cluster)

    with pytest.raises(ReplayImpossibleError, match="created again") as stopped:
        read(emitter(cluster), planned)

    assert stopped.value.fields["available"] is None


def test_a_topic_made_anew_since_the_plan_fails_an_opaque_attempt(cluster):
    cluster.fill("t", 9)
    planned = made_anew(cluster)

    with pytest.raises(FailedException, match="created again"):
        read(emitter(cluster, is_exact=False), planned)


def test_topics_with_dashes_are_told_from_partitions():
    assert partition_of("my-own-topic-12") == TopicPartition("my-own-topic", 12)
