"""Batches larger than a topic takes: written all the same, by every door."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyspark.errors import PySparkException

import kafka_tx
from integration.bounded import read_out
from integration.consuming import committed_records
from integration.sizes import in_all
from integration.topologies.tally import ending
from kafka_tx import sink_assembly
from kafka_tx.config import SinkConfig
from kafka_tx.errors import DeliveryError
from kafka_tx.kafka import topic_limits
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.sender import Sender
from kafka_tx.model import Earliest, TransactionAttempt

LIMIT = 100_000
COUNT, BYTES = 5_000, 200


@pytest.fixture
def narrow(topic):
    """Make a topic that takes less than the client's library puts into a batch."""

    def make(limit=LIMIT, partitions=1, **more):
        return topic(partitions, config={"max.message.bytes": str(limit), **more})

    return make


@pytest.fixture
def values(kafka):
    def read(topic):
        return [r.value for r in committed_records(kafka.bootstrap_servers, topic)]

    return read


@pytest.fixture
def untold(monkeypatch):
    """Brokers do not tell a user without DESCRIBE_CONFIGS how much a topic takes."""
    monkeypatch.setattr(topic_limits, "_limit", lambda *_: None)
    monkeypatch.setattr(topic_limits, "_all", {})


def value(number, size=BYTES):
    return b"%d " % number + b"v" * (size - 8)


def records(topic, count=COUNT, *, large=(), keys=10):
    """Records, of which some are larger than the topic takes."""
    return [
        OutRecord(
            topic, b"k%d" % (n % keys), value(n, 8 * LIMIT if n in large else BYTES)
        )
        for n in range(count)
    ]


def settings(kafka, **more):
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    options |= {name.replace("_", "."): text for name, text in more.items()}
    return client_settings(options, purpose="producer")


def post_all(sender, given):
    """Post them; what everyone was told, by key and value."""
    outcomes: dict[OutRecord, list[DeliveryError | None]] = {}
    for record in given:
        outcomes[record] = []
        sender.post(record, outcomes[record].append)
    sender.flush()
    assert all(len(answers) == 1 for answers in outcomes.values())
    return {record: answers[0] for record, answers in outcomes.items()}


def last_places(values):
    """Where each value stands last: after a refusal some are written again."""
    return {value: place for place, value in enumerate(values)}


# --- at least once ------------------------------------------------------------------


def test_batches_follow_the_limit_of_their_topic(kafka, narrow, values):
    name, wide = narrow(), narrow(2_000_000)
    sender = Sender(settings(kafka))

    with sender:
        sender.send([*records(name), *records(wide, 10)])

    assert values(name) == [value(n) for n in range(COUNT)]
    assert sender._at == {name: LIMIT, wide: 1_000_000}


def test_what_is_refused_is_sent_again_in_smaller_batches(
    kafka, narrow, values, untold
):
    name = narrow()

    with Sender(settings(kafka)) as sender:
        sender.send(records(name))
        learned = sender._at[name]

    places = last_places(values(name))
    assert sorted(places, key=places.__getitem__) == [value(n) for n in range(COUNT)]
    assert LIMIT // 2 <= learned <= 3 * LIMIT
    with Sender(settings(kafka)) as another:
        another.send(records(name, 10))
        assert another._at[name] == learned


@pytest.mark.parametrize("compression", ["none", *in_all("lz4")])
def test_only_the_record_that_its_topic_does_not_take_fails(
    kafka, narrow, values, untold, compression
):
    name, large = narrow(), {70, 2_000}
    noise = random.Random(1).randbytes
    given = [
        OutRecord(name, b"k", noise(2 * LIMIT if n in large else BYTES))
        for n in range(COUNT)
    ]

    with Sender(settings(kafka, compression_type=compression)) as sender:
        outcomes = post_all(sender, given)

    failed = {n for n, record in enumerate(given) if outcomes[record] is not None}
    assert failed == large
    places = last_places(values(name))
    expected = [r.value for n, r in enumerate(given) if n not in large]
    assert sorted(places, key=places.__getitem__) == expected
    text = str(outcomes[given[70]])
    assert f"topic '{name}' with key b'k' and 200001 bytes" in text
    assert "'max.message.bytes'" in text
    assert "max.request.size" not in text


def test_headers_count_and_a_limit_below_every_record_refuses_every_record(
    kafka, narrow, values
):
    name, none = narrow(2_000), narrow(100)
    given = [
        OutRecord(name, None, b"%d" % n, (("h", b"x" * (5_000 if n == 50 else 5)),))
        for n in range(100)
    ]

    with Sender(settings(kafka)) as sender:
        outcomes = post_all(sender, given + records(none, 20))

    failed = [record for record in outcomes if outcomes[record] is not None]
    assert failed == [given[50], *records(none, 20)]
    assert set(values(name)) == {b"%d" % n for n in range(100) if n != 50}
    assert f"the topic '{none}' takes 100 bytes" in str(outcomes[failed[-1]])


@pytest.mark.all
def test_a_limit_that_is_lowered_under_a_sender_is_learned(kafka, narrow, values):
    name = narrow()

    with Sender(settings(kafka)) as sender:
        sender.send(records(name, 1_000))
        kafka.alter_topic(name, {"max.message.bytes": "10000"})
        sender.send(records(name))
        sender.renew()
        assert 5_000 <= sender._at[name] <= 10_000

    assert set(values(name)) == {value(n) for n in range(COUNT)}


@pytest.mark.all
def test_only_the_record_without_a_key_fails_in_a_compacted_topic(kafka, topic, values):
    name = topic(1, config={"cleanup.policy": "compact"})
    given = [
        OutRecord(name, b"%d" % n if n != 50 else None, b"v%d" % n) for n in range(100)
    ]

    with Sender(settings(kafka)) as sender:
        outcomes = post_all(sender, given)

    assert [r for r in given if outcomes[r] is not None] == [given[50]]
    assert set(values(name)) == {b"v%d" % n for n in range(100) if n != 50}


# --- exactly once -------------------------------------------------------------------


def part(kafka, topic, txid=1, **more):
    """What writes the only part of a batch."""
    options = {"bootstrap.servers": kafka.bootstrap_servers, **more}
    config = SinkConfig(
        kafka=options, topic=topic, id=topic, attempt=TransactionAttempt(txid, 0)
    )
    return sink_assembly.part_transaction(config, 0)


@pytest.mark.all  # the stream below shows it through Spark
def test_a_part_is_written_again_in_smaller_batches_until_it_is_taken(
    kafka, narrow, values, untold
):
    name = narrow(4 * LIMIT)
    given = records(name, 30_000)  # more than the first batch, whose refusal ends all

    assert part(kafka, name).write(given).now

    assert values(name) == [r.value for r in given]
    assert not part(kafka, name).write(given).now


@pytest.mark.all
def test_a_part_may_go_to_several_topics_with_several_limits(kafka, narrow, values):
    name, narrower = narrow(), narrow(10_000)
    given = [*records(name, 1_000), *records(narrower, 1_000)]

    assert part(kafka, name).write(given).now

    for each in (name, narrower):
        assert values(each) == [value(n) for n in range(1_000)]


def test_a_part_with_a_record_that_its_topic_does_not_take_names_it(
    kafka, narrow, values, untold
):
    name = narrow(4 * LIMIT)

    with pytest.raises(DeliveryError, match="with key b'k7' and 799997 bytes"):
        part(kafka, name).write(records(name, large={77}))

    assert values(name) == []
    assert part(kafka, name).write(records(name)).now


# --- through Spark ------------------------------------------------------------------
# Brokers see compressed batches only, so that a user's size of those is believed and
# the workers have to learn from refusals. `make test` shows one stream: what is above
# shows the rest without Spark.

REFUSED = {"kafka.compression.type": "lz4", "kafka.batch.size": "1000000"}
NOISE = "concat(id, ' ', " + ", ".join(f"md5(concat(id, {n}))" for n in range(6)) + ")"
"""Does not become half as large when it is compressed."""


def rows(spark, count=COUNT):
    return spark.range(count).selectExpr("'k' AS key", f"{NOISE} AS value").coalesce(1)


def numbers(values):
    return Counter(int(value.split()[0]) for value in values)


ONCE = Counter(range(COUNT))


@pytest.mark.all
@pytest.mark.parametrize(
    ("way", "more"),
    [
        pytest.param("plain", {}, id="plain-followed"),
        pytest.param("plain", REFUSED, id="plain-refused"),
        pytest.param("once", {}, id="once-followed"),
        pytest.param("once", REFUSED, id="once-refused"),
    ],
)
def test_a_dataframe_is_written_whatever_its_topic_takes(
    spark, kafka, narrow, values, way, more
):
    name = narrow()
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name} | more

    if way == "plain":
        rows(spark).write.format("kafka_tx").mode("append").options(**options).save()
    else:
        attempt = TransactionAttempt(1, 1)
        kafka_tx.write_transaction(rows(spark), attempt, options | {"tx.id": name})

    found = numbers(values(name))
    assert found.keys() == ONCE.keys()
    assert way == "plain" or found == ONCE


def test_a_stream_is_written_once_whatever_its_topic_takes(
    spark, kafka, topic, produce, narrow, values, tmp_path
):
    source, name = topic(1), narrow()
    noise = random.Random(1).randbytes
    produce(source, [f"{n} {noise(100).hex()}" for n in range(COUNT)])
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    stream = (
        spark.readStream.format("kafka_tx")
        .options(**servers, subscribe=source, startingOffsets="earliest")
        .load()
        .select("key", "value")
        .writeStream.format("kafka_tx")
        .options(**servers, **REFUSED, topic=name)
        .option("tx.id", name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )

    read_out(stream)

    assert numbers(values(name)) == ONCE


@pytest.mark.all
@pytest.mark.parametrize("way", ["plain", "once"])
def test_a_transactional_topology_writes_whatever_its_topic_takes(
    spark, kafka, topic, produce, narrow, values, tmp_path, way
):
    source, name = topic(1), narrow()
    produce(source, [value(n) for n in range(COUNT)])
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    spout = kafka_tx.TransactionalKafkaSpout(
        {**servers, "subscribe": source}, scheme=kafka_tx.KeyValueScheme()
    )
    builder = kafka_tx.TransactionalTopologyBuilder(name, "spout", spout, 1)
    options = {**servers, "topic": name} | ({"tx.id": name} if way == "once" else {})
    builder.set_bolt("out", kafka_tx.KafkaBolt(options)).shuffle_grouping("spout")
    store = {"tx.store": f"sqlite:///{tmp_path}/state.db"}
    handle = builder.build().start(spark, store)

    with ending(handle):
        assert handle.process_all_available(180), handle.status

    assert numbers(values(name)) == ONCE


@pytest.mark.all
def test_only_records_that_no_topic_takes_become_dead_letters_and_lose_their_value(
    spark, kafka, topic, produce, narrow, values, tmp_path
):
    source, name, dead = topic(1), narrow(2_000), narrow(3_000)
    large = {20, 50}
    produce(source, [value(n, 5_000 if n in large else 50) for n in range(100)])
    config = kafka_tx.SpoutConfig(
        hosts=kafka_tx.BrokerHosts(kafka.bootstrap_servers),
        topic=source,
        scheme=kafka_tx.KeyValueScheme(),
        retry_limit=1,
        retry_initial_delay_ms=10,
        dead_letter_topic=dead,
        start_offset_time=Earliest(),
    )
    builder = kafka_tx.TopologyBuilder(name)
    builder.set_spout("spout", kafka_tx.KafkaSpout(config))
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name}
    builder.set_bolt("out", kafka_tx.KafkaBolt(options)).shuffle_grouping("spout")
    store = {"tx.store": f"sqlite:///{tmp_path}/state.db"}
    handle = builder.build().start(spark, store)

    with ending(handle):
        assert handle.process_all_available(180), handle.status
        status = handle.status

    assert status.dead_letters == len(large)
    assert set(numbers(values(name))) == set(range(100)) - large
    assert values(dead) == [None] * len(large)


@pytest.mark.all
def test_a_record_that_its_topic_does_not_take_is_named_alone(spark, kafka, narrow):
    name = narrow()
    big = "CASE WHEN id = 7 THEN repeat('x', 200000) ELSE 'v' END"
    df = spark.range(100).selectExpr("cast(id AS string) AS key", f"{big} AS value")
    write = df.coalesce(1).write.format("kafka_tx").mode("append")
    write = write.option("kafka.bootstrap.servers", kafka.bootstrap_servers)

    with pytest.raises(PySparkException, match=f"'{name}' with key b'7' and 200001"):
        write.option("topic", name).save()
