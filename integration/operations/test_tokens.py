"""OAUTHBEARER with tokens of a function in Python: planned, read and written with."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.cluster.records import Produce
from integration.cluster.running import running
from integration.cluster.settings import STEADY
from integration.cluster.topics import fresh_name
from integration.promptness import TRIES
from integration.reading import Run, reader
from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import AuthenticationError
from kafka_tx.model import Assigned, Earliest, LogBounds, OffsetRange, TopicPartition

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.provider": "integration.operations.tokens:long_lived",
}


@pytest.fixture(scope="module")
def guarded(servers):
    """A broker with a second listener that takes unsigned tokens."""
    cluster = servers.kafka(
        settings=STEADY,
        login={
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": (
                f'{MODULE} required unsecuredLoginStringClaim_sub="broker";'
            ),
        },
    )
    with running(cluster):
        cluster.create_topic("tokens", 2)
        Produce(cluster.bootstrap_servers)("tokens", [f"v{n}" for n in range(50)])
        yield cluster


@pytest.mark.all
def test_a_query_reads_and_writes_with_tokens_of_a_function(spark, guarded, tmp_path):
    options = {name.replace(".", "__"): value for name, value in LOGIN.items()}
    copy = fresh_name("copy")
    guarded.create_topic(copy, 1)

    def of(topic):
        known = {"subscribe": topic, **options}
        return reader(spark, guarded.login_servers, streaming=False, **known).load()

    values = Run(
        spark, guarded.login_servers, subscribe="tokens", **options
    ).until_done(tmp_path / "checkpoint")
    writer = of("tokens").select("value").write.format("kafka_tx").mode("append")
    writer = writer.option("topic", copy).options(**LOGIN)
    writer.option("kafka.bootstrap.servers", guarded.login_servers).save()

    assert len(values) == 50
    assert of(copy).count() == 50


def write_slowly(cluster, count):
    """Over several lives of a token."""
    produce = Produce(cluster.bootstrap_servers)
    for _ in range(count):
        time.sleep(0.5)
        produce("tokens", ["late"], partition=0)


def config_of(cluster, partition, tokens):
    kafka = {name.removeprefix("kafka."): value for name, value in LOGIN.items()}
    kafka["sasl.oauthbearer.token.provider"] = f"integration.operations.tokens:{tokens}"
    return SourceConfig(
        subscription=Assigned((partition,)),
        kafka=kafka | {"bootstrap.servers": cluster.login_servers},
        start=Earliest(),
        poll_timeout_ms=60_000,
    )


def end_of(config, partition):
    (bounds,) = assembly.cluster_view(config).bounds([partition]).values()
    assert isinstance(bounds, LogBounds)
    return bounds.end


def test_the_clients_of_a_process_share_a_token(guarded, tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_TX_TEST_TOKENS", str(tmp_path))
    monkeypatch.setattr("kafka_tx.kafka.tokens._tokens", {})
    partition = TopicPartition("tokens", 0)
    config = config_of(guarded, partition, "long_lived")
    wanted = OffsetRange(partition, 0, end_of(config, partition))

    for _ in range(3):
        read = assembly.range_reader(config).read(wanted)
        assert sum(batch.num_rows for batch in read) == len(wanted)

    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.all
def test_a_long_read_gets_new_tokens(guarded, tmp_path, monkeypatch):
    """At one of three tries: a machine that halts lets a token expire unused."""
    monkeypatch.setenv("KAFKA_TX_TEST_TOKENS", str(tmp_path))
    partition = TopicPartition("tokens", 0)
    config = config_of(guarded, partition, "short_lived")
    late = 24

    def reads_with_new_tokens():
        monkeypatch.setattr("kafka_tx.kafka.tokens._tokens", {})
        end = end_of(config, partition)
        wanted = OffsetRange(partition, end, end + late)
        given = len(list(tmp_path.iterdir()))
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write_slowly, guarded, late)
            try:
                batches = [*assembly.range_reader(config).read(wanted)]
            except AuthenticationError:
                batches = []
            writer.result()
        is_whole = sum(batch.num_rows for batch in batches) == late
        return is_whole and len(list(tmp_path.iterdir())) > given

    assert any(reads_with_new_tokens() for _ in range(TRIES))
