"""What the sink says when a record cannot be written, and that nothing of it shows."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from pyspark.errors import PySparkException

import kafka_tx
from integration.cluster.rights import grant
from integration.cluster.running import running
from integration.cluster.topics import ask, fresh_name
from integration.cluster.waiting import wait_until
from integration.consuming import committed_records
from integration.sizes import in_all
from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import DeliveryError, KafkaError
from kafka_tx.kafka import sender as sender_module
from kafka_tx.kafka import transaction as transaction_module
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.native_producer import NativeProducer
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import ProducerClient
from kafka_tx.kafka.sender import Sender
from kafka_tx.kafka.transaction import Transaction
from kafka_tx.model import TransactionAttempt

RECORDS = 200


@pytest.fixture(scope="module")
def guarded(servers):
    """A broker with access control, which allows what no rule is about."""
    cluster = servers.kafka(
        settings={
            "authorizer.class.name": (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            ),
            "allow.everyone.if.no.acl.found": "true",
        }
    )
    with running(cluster):
        yield cluster


@pytest.fixture
def target(guarded):
    """A topic of this run's own, on the guarded broker."""
    name = fresh_name("target")
    guarded.create_topic(name, 1)
    return name


def part(cluster, topic, txid=1, id_="", **kafka):
    """What writes the only part of a batch."""
    options = {"bootstrap.servers": cluster.bootstrap_servers}
    options |= {name.replace("_", "."): value for name, value in kafka.items()}
    config = SinkConfig(
        kafka=options, topic=topic, id=id_ or topic, attempt=TransactionAttempt(txid, 0)
    )
    return sink_assembly.part_transaction(config, 0)


class records:  # noqa: N801 - called as a function
    """Records, with something that happens before one of them."""

    def __init__(self, topic, at=RECORDS, event=lambda: None):
        self.topic, self.at, self.event = topic, at, event

    def __iter__(self):
        for number in range(RECORDS):
            if number == self.at:
                self.event()
            yield OutRecord(self.topic, f"k{number}".encode(), b"v" * 10)


def end(cluster, topic, level):
    """Where the log ends for readers of this isolation level."""
    admin = ask([cluster.bootstrap_servers])
    admin.list_topics(topic, timeout=10)  # see AdminConnection.learn_leaders
    wanted = {TopicPartition(topic, 0): OffsetSpec.latest()}
    (found,) = admin.list_offsets(wanted, isolation_level=level).values()
    return found.result(60).offset


def visible(cluster, topic):
    """Keys that a reader of committed records sees."""
    found = committed_records(cluster.bootstrap_servers, topic)
    return [record.key for record in found]


@pytest.mark.all
def test_a_broker_that_dies_in_mid_transaction_leaves_nothing_and_a_retry_everything(
    guarded, target
):
    def die():
        wait_until(
            "the first records are in the log",
            lambda: end(guarded, target, IsolationLevel.READ_UNCOMMITTED) > 0,
        )
        guarded.kill(1)

    writing = part(guarded, target, delivery_timeout_ms="10000", linger_ms="0")
    try:
        with pytest.raises(KafkaError) as raised:
            writing.write(records(target, RECORDS // 2, die))
    finally:
        guarded.restart(1)

    assert raised.value.retryable
    assert isinstance(raised.value, DeliveryError)
    assert raised.value.topic == target
    assert raised.value.size == len(raised.value.key or b"") + 10
    assert part(guarded, target).write(records(target)).now
    assert visible(guarded, target) == [f"k{n}".encode() for n in range(RECORDS)]
    assert not part(guarded, target).write(records(target)).now


def test_a_transaction_that_times_out_is_named_and_leaves_nothing(kafka, topic):
    target = topic(1)

    def dawdle():
        wait_until(
            "the broker has ended the transaction",
            lambda: (
                0
                < end(kafka, target, IsolationLevel.READ_UNCOMMITTED)
                == end(kafka, target, IsolationLevel.READ_COMMITTED)
            ),
        )

    writing = part(kafka, target, transaction_timeout_ms="1500", linger_ms="0")
    with pytest.raises(KafkaError) as raised:
        writing.write(records(target, RECORDS // 2, dawdle))

    text = str(raised.value)
    assert "kafka.transaction.timeout.ms" in text
    assert "1500 ms" in text
    assert f"a record for topic '{target}' with key b'k" in text
    assert "14 bytes" in text or "13 bytes" in text
    assert visible(kafka, target) == []
    assert part(kafka, target).write(records(target)).now
    assert len(visible(kafka, target)) == RECORDS


def test_a_newer_run_ends_the_older_ones_part_and_writes_the_batch(kafka, topic):
    """The older one stops, as its error says; a job with an id of its own writes on."""
    target = topic(1)

    def be_overtaken():
        assert part(kafka, target).write(records(target)).now

    older = part(kafka, target, linger_ms="0")
    with pytest.raises(KafkaError, match="A newer try or run of this job"):
        older.write(records(target, RECORDS // 2, be_overtaken))
    assert len(visible(kafka, target)) == RECORDS

    assert part(kafka, target, id_=f"{target}-other").write(records(target)).now
    assert part(kafka, target, txid=2).write(records(target)).now
    assert len(visible(kafka, target)) == 3 * RECORDS


def writers(cluster, topic):
    """Both ways of Spark to write there, by name."""
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": topic,
    }

    def plain(df):
        df.write.format("kafka_tx").mode("append").options(**options).save()

    def once(df):
        attempt = TransactionAttempt(1, 1)
        kafka_tx.write_transaction(df, attempt, options | {"tx.id": topic})

    return {"plain": plain, "once": once}


EITHER = pytest.mark.parametrize("way", in_all("plain", "once"))


@EITHER
def test_an_unknown_topic_is_named_with_key_and_size(spark, guarded, way):
    df = spark.sql("SELECT 'k7' AS key, 'value' AS value")

    with pytest.raises(
        PySparkException,
        match=r"KAFKA_TX_DELIVERY.*'nowhere' with key b'k7' and 7 bytes.*Create the",
    ):
        writers(guarded, "nowhere")[way](df)


@EITHER
def test_a_missing_permission_is_named_with_topic_key_and_size(
    spark, guarded, target, way
):
    grant(guarded, "bob", (ResourceType.TOPIC, target, AclOperation.WRITE))
    grant(guarded, "*", (ResourceType.TOPIC, target, AclOperation.READ))
    df = spark.sql("SELECT 'k7' AS key, 'value' AS value")

    with pytest.raises(
        PySparkException,
        match=rf"_AUTHENTICATION.*'{target}' with key b'k7' and 7 bytes.*Grant",
    ):
        writers(guarded, target)[way](df)

    assert visible(guarded, target) == []


@EITHER
def test_a_record_that_the_topic_does_not_take_is_named(spark, guarded, way):
    name = fresh_name(f"narrow-{way}")
    guarded.create_topic(name, 1, config={"max.message.bytes": "2000"})
    df = spark.sql(
        "SELECT cast(id AS string) AS key, repeat('x', CASE WHEN id = 7 THEN 9000"
        " ELSE 10 END) AS value FROM range(10)"
    ).coalesce(1)

    with pytest.raises(
        PySparkException, match=f"KAFKA_TX_DELIVERY.*'{name}' with key b'7' and 9001"
    ):
        writers(guarded, name)[way](df)

    if way == "once":
        assert visible(guarded, name) == []


# --- single records that a broker refuses: which, and why, in words that still exist

AHEAD_MS = 7_200_000
REFUSED = {
    "INVALID_RECORD": ({"cleanup.policy": "compact"}, None, b"v", 0),
    "INVALID_TIMESTAMP": ({"message.timestamp.after.max.ms": "1000"}, b"k", b"v", 1),
    "MSG_SIZE_TOO_LARGE": ({"max.message.bytes": "200"}, b"k", b"v" * 500, 0),
}
NAMED = {
    "INVALID_RECORD": "has no key",
    "INVALID_TIMESTAMP": "'message.timestamp.after.max.ms'",
    "MSG_SIZE_TOO_LARGE": "takes less|takes 200 bytes",
}


def written(door, settings, reading, name, record):
    if door == "at least once":
        with Sender(settings) as sender:
            sender.send([record])
        return
    moving = Transaction(settings, name, "a test", reading, name, {name})
    with moving, moving.writing():
        moving.send([record])


@pytest.mark.parametrize(
    ("door", "kind"),
    [
        ("at least once", ProducerClient),
        ("exactly once", NativeProducer),
        pytest.param("at least once", NativeProducer, marks=pytest.mark.all),
        pytest.param("exactly once", ProducerClient, marks=pytest.mark.all),
    ],
)
@pytest.mark.parametrize("code", REFUSED)
def test_a_record_that_is_refused_alone_is_named_in_whole_words(
    kafka, topic, monkeypatch, kind, door, code
):
    """The broker's own words are freed memory by the time that they are reported."""
    config, key, value, is_ahead = REFUSED[code]
    name = topic(1, "choosy", config=config)
    at_ms = int(time.time() * 1000) + AHEAD_MS if is_ahead else None
    record = OutRecord(name, key, value, timestamp_ms=at_ms)
    given = {"bootstrap.servers": kafka.bootstrap_servers}
    settings = client_settings(given, purpose="producer")
    reading = client_settings(given, purpose="consumer")
    for module in (sender_module, transaction_module):
        monkeypatch.setattr(module, "new_client", kind)

    for _ in range(5):
        with pytest.raises(KafkaError, match=NAMED[code]) as raised:
            written(door, settings, reading, name, record)

        known = ClientError(getattr(ClientError, code)).str()
        assert f"was not written: {known}" in raised.value.message
