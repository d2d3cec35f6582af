"""What a marker topic holds is read to its end, however many pieces it comes in."""

from __future__ import annotations

from confluent_kafka import Producer

from kafka_tx.kafka import marker_topic
from kafka_tx.kafka.marker_log import MarkerLog
from kafka_tx.kafka.marker_topic import MarkerTopic
from kafka_tx.model import TopicPattern, TransactionAttempt
from kafka_tx.transactions.sink_memory import Entry
from kafka_tx.transactions.sink_parts import Digest, Marker


def test_all_markers_of_a_sink_are_remembered(
    cluster, topic, consumer_settings, monkeypatch
):
    monkeypatch.setattr(marker_topic, "_AT_ONCE", 3)
    log = MarkerLog(topic(), topic(), consumer_settings, {})
    wanted = [
        Marker(index, TransactionAttempt.of(7, epoch=2, number=0), 10, Digest(), "run")
        for index in range(10)
    ]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for sink in ("ours", "another"):
        for marker in wanted:
            record = log.record(Entry(sink, marker))
            producer.produce(log.topic, key=record.key, value=record.value, partition=0)
    assert producer.flush(30) == 0

    named = TopicPattern(".*").matching([log.topic, log.place])
    assert log.recall("ours").markers == wanted

    assert named == [log.topic, log.place]
    assert TopicPattern(".*").matching(named) == [log.place], "none reads markers"


def test_the_topics_policy_is_checked_by_who_reads_all_of_it_and_not_again(
    topic, consumer_settings, monkeypatch
):
    checked = []
    monkeypatch.setattr(MarkerTopic, "check_policy", lambda self: checked.append(self))
    log = MarkerLog(topic(), topic(), consumer_settings, {})

    remembered = log.recall("ours")
    assert len(checked) == 1

    log.recall("ours", since=remembered)
    assert len(checked) == 1
