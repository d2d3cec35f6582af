"""Options of the Java client become settings of librdkafka."""

from __future__ import annotations

import ctypes
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kafka_tx.errors import ConfigError
from kafka_tx.kafka import client_settings as settings_module
from kafka_tx.kafka import translations
from kafka_tx.kafka.client_settings import ClientSettings, client_settings, is_secret
from kafka_tx.kafka.librdkafka_names import (
    COMMON,
    CONSUMER_ONLY,
    ENUMERATIONS,
    PRODUCER_ONLY,
)
from kafka_tx.kafka.translations import Purpose

BROKERS = {"bootstrap.servers": "one:9092,two:9092"}


def settings_of(purpose: Purpose = "consumer", **options: str) -> ClientSettings:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return client_settings({**BROKERS, **named}, purpose=purpose)


@pytest.mark.parametrize(
    ("java", "value", "librdkafka", "becomes"),
    [
        ("fetch.max.wait.ms", "50", "fetch.wait.max.ms", "50"),
        ("max.partition.fetch.bytes", "7000", "fetch.message.max.bytes", "7000"),
        ("fetch.max.bytes", "9000000", "fetch.max.bytes", "9000000"),
        ("fetch.min.bytes", "2", "fetch.min.bytes", "2"),
        ("request.timeout.ms", "4000", "socket.timeout.ms", "4000"),
        ("receive.buffer.bytes", "65536", "socket.receive.buffer.bytes", "65536"),
        ("receive.buffer.bytes", "-1", "socket.receive.buffer.bytes", "0"),
        ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
        ("metadata.max.age.ms", "60000", "topic.metadata.refresh.interval.ms", "60000"),
        ("reconnect.backoff.ms", "70", "reconnect.backoff.ms", "70"),
        ("reconnect.backoff.max.ms", "900", "reconnect.backoff.max.ms", "900"),
        ("retry.backoff.ms", "30", "retry.backoff.ms", "30"),
        ("client.id", "me", "client.id", "me"),
        ("client.rack", "r1", "client.rack", "r1"),
        (
            "client.dns.lookup",
            "use_all_dns_ips",
            "client.dns.lookup",
            "use_all_dns_ips",
        ),
        ("isolation.level", "read_committed", "isolation.level", "read_committed"),
        ("security.protocol", "SASL_SSL", "security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "PLAIN", "sasl.mechanisms", "PLAIN"),
        (
            "ssl.endpoint.identification.algorithm",
            "",
            "ssl.endpoint.identification.algorithm",
            "none",
        ),
        (
            "ssl.endpoint.identification.algorithm",
            "HTTPS",
            "ssl.endpoint.identification.algorithm",
            "https",
        ),
        ("ssl.key.password", "k", "ssl.key.password", "k"),
        ("sasl.kerberos.service.name", "kafka", "sasl.kerberos.service.name", "kafka"),
        ("check.crcs", "false", "check.crcs", "false"),
        ("enable.metrics.push", "true", "enable.metrics.push", "true"),
    ],
)
def test_a_name_of_the_java_client_is_translated(
    java: str, value: str, librdkafka: str, becomes: str
) -> None:
    settings = client_settings({**BROKERS, java: value}, purpose="consumer")

    assert settings[librdkafka] == becomes


@pytest.mark.parametrize(
    ("java", "value", "librdkafka", "becomes"),
    [
        ("acks", "all", "acks", "all"),
        ("linger.ms", "5", "linger.ms", "5"),
        ("compression.type", "zstd", "compression.type", "zstd"),
        ("compression.zstd.level", "3", "compression.level", "3"),
        ("buffer.memory", "33554432", "queue.buffering.max.kbytes", "32768"),
        ("max.request.size", "2000000", "message.max.bytes", "2000000"),
        ("delivery.timeout.ms", "9000", "delivery.timeout.ms", "9000"),
        ("request.timeout.ms", "4000", "request.timeout.ms", "4000"),
        ("transactional.id", "t", "transactional.id", "t"),
        ("enable.idempotence", "true", "enable.idempotence", "true"),
        (
            "partitioner.class",
            "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "partitioner",
            "random",
        ),
        ("partitioner.ignore.keys", "true", "partitioner", "random"),
    ],
)
def test_a_name_of_the_java_producer_is_translated(
    java: str, value: str, librdkafka: str, becomes: str
) -> None:
    with_codec = {**BROKERS, "compression.type": "zstd", java: value}
    settings = client_settings(with_codec, purpose="producer")

    assert settings[librdkafka] == becomes


def test_only_the_level_of_the_codec_counts() -> None:
    levels = {"compression.gzip.level": "9", "compression.zstd.level": "3"}

    def level_of(**codec: str) -> str | None:
        given = {**BROKERS, **levels, **codec}
        return client_settings(given, purpose="producer").get("compression.level")

    codecs = ("zstd", "GZIP", "lz4", "none")
    found = [level_of(**{"compression.type": codec}) for codec in codecs]
    assert [*found, level_of()] == ["3", "9", None, None, None]
    assert level_of(**{"compression.codec": "zstd"}) == "3"


def test_brokers_that_create_topics_create_those_of_sinks_unless_told_not_to() -> None:
    name = "allow.auto.create.topics"
    asked = client_settings({**BROKERS, name: "false"}, purpose="producer")

    assert settings_of("producer")[name] == "true"
    assert asked[name] == "false"
    assert settings_of("admin")[name] == "false"


def test_names_are_taken_in_any_case() -> None:
    settings = client_settings(
        {"Bootstrap.Servers": "one:9092", "FETCH.Max.Wait.MS": "9"}, purpose="consumer"
    )

    assert settings["bootstrap.servers"] == "one:9092"
    assert settings["fetch.wait.max.ms"] == "9"


def test_a_name_of_librdkafka_passes_through_and_wins_over_a_translated_one() -> None:
    options = {
        **BROKERS,
        "fetch.wait.max.ms": "11",
        "fetch.max.wait.ms": "22",
        "queued.min.messages": "1000",
    }

    settings = client_settings(options, purpose="consumer")

    assert settings["fetch.wait.max.ms"] == "11"
    assert settings["queued.min.messages"] == "1000"


def test_one_set_of_options_serves_every_kind_of_client() -> None:
    options = {**BROKERS, "acks": "all", "fetch.min.bytes": "2", "client.id": "me"}

    consumer = client_settings(options, purpose="consumer")
    admin = client_settings(options, purpose="admin")
    producer = client_settings(options, purpose="producer")

    assert "acks" not in consumer
    assert "fetch.min.bytes" not in admin
    assert "acks" not in admin
    assert "fetch.min.bytes" not in producer
    assert consumer["client.id"] == admin["client.id"] == producer["client.id"] == "me"


def test_uncommitted_records_are_read_unless_asked_otherwise_as_in_spark() -> None:
    assert settings_of("consumer")["isolation.level"] == "read_uncommitted"
    assert settings_of("admin")["isolation.level"] == "read_uncommitted"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("allow.auto.create.topics", "false"),
        ("enable.metrics.push", "false"),
        ("auto.offset.reset", "error"),
    ],
)
def test_what_reading_exact_ranges_needs_is_always_set(name: str, value: str) -> None:
    options = {"enable.partition.eof": "false", "allow.auto.create.topics": "true"}

    settings = client_settings({**BROKERS, **options}, purpose="consumer")

    assert settings[name] == value


def test_records_go_to_the_partition_that_java_producers_choose() -> None:
    assert settings_of("producer")["partitioner"] == "murmur2_random"


@pytest.mark.parametrize("purpose", ["consumer", "admin", "producer"])
def test_librdkafka_takes_what_is_built(purpose: Purpose) -> None:
    settings: dict[str, Any] = dict(settings_of(purpose, client_rack="r", acks="all"))
    settings["bootstrap.servers"] = "127.0.0.1:1"
    settings["log_level"] = "0"

    if purpose == "consumer":
        Consumer({**settings, "group.id": "g"}).close()
    elif purpose == "admin":
        settings.pop("isolation.level")
        AdminClient(settings)
    else:
        Producer(settings)


# --- refusals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "auto.offset.reset",
            "Kafka option 'auto.offset.reset' is not supported. Instead set the source"
            " option 'startingOffsets' to 'earliest' or 'latest'",
        ),
        (
            "key.deserializer",
            "Kafka option 'key.deserializer' is not supported as keys are deserialized"
            " as byte arrays with ByteArrayDeserializer. Use DataFrame operations to"
            " explicitly deserialize the keys.",
        ),
        (
            "value.deserializer",
            "Kafka option 'value.deserializer' is not supported as values are"
            " deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame"
            " operations to explicitly deserialize the values.",
        ),
        ("enable.auto.commit", "'tx.commitGroupId' mirrors them to a consumer group"),
        ("interceptor.classes", "Use DataFrame operations to look at or change"),
        ("ssl.engine.factory.class", "Use PEM files or a PKCS12 keystore"),
        ("sasl.client.callback.handler.class", "Use 'kafka.sasl.jaas.config'"),
    ],
)
def test_a_refused_option_names_what_replaces_it(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client_settings({**BROKERS, name.upper(): "x"}, purpose="consumer")

    assert says in str(caught.value)
    assert caught.value.fields["option"] == f"kafka.{name}"


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_a_serializer_is_refused_for_writing_and_ignored_for_reading(name: str) -> None:
    with pytest.raises(ConfigError, match="are serialized with ByteArraySerializer"):
        client_settings({**BROKERS, name: "x"}, purpose="producer")

    assert name not in client_settings({**BROKERS, name: "x"}, purpose="consumer")


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'kafka\.fetch\.max\.bytes'"):
        settings_of(fetch_max_bites="1")


def test_missing_addresses_are_told_in_spark_s_words() -> None:
    with pytest.raises(
        ConfigError, match=r"Option 'kafka\.bootstrap\.servers' must be specified"
    ):
        client_settings({"client.id": "me"}, purpose="consumer")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("buffer.memory", "much", "a number of bytes"),
        ("partitioner.class", "com.example.Mine", "DefaultPartitioner"),
        ("ssl.cipher.suites", "TLS_RSA_WITH_AES_128_CBC_SHA", "OpenSSL's"),
    ],
)
def test_a_value_that_cannot_be_translated_names_the_legal_ones(
    name: str, value: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        client_settings({**BROKERS, name: value}, purpose="producer")


# --- no effect ----------------------------------------------------------------------


def test_a_name_without_effect_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "_said", set())

    with caplog.at_level(logging.WARNING):
        first = settings_of(max_poll_records="10")
        settings_of(max_poll_records="10")

    assert "max.poll.records" not in first
    assert [r.getMessage() for r in caplog.records] == [
        "option 'kafka.max.poll.records' has no effect here"
    ]


# --- secrets ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.config",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.truststore.password",
    ],
)
def test_no_secret_is_shown(name: str) -> None:
    settings = ClientSettings({name: "open sesame", "client.id": "me"})

    assert is_secret(name)
    assert "sesame" not in f"{settings!r} {settings} {[settings]}"
    assert "me" in repr(settings)


def test_settings_cross_processes_with_their_secrets() -> None:
    settings = ClientSettings({"sasl.password": "open sesame"})

    copy = pickle.loads(pickle.dumps(settings))

    assert copy == settings
    assert copy["sasl.password"] == "open sesame"
    assert "sesame" not in repr(copy)


# --- numbers that only Java takes ---------------------------------------------------


@pytest.mark.parametrize(
    ("java", "value", "becomes"),
    [
        ("connections.max.idle.ms", "-1", {"connections.max.idle.ms": "0"}),
        ("request.timeout.ms", "600000", {"socket.timeout.ms": "300000"}),
        ("fetch.min.bytes", "0", {"fetch.min.bytes": "1"}),
        (
            "fetch.max.bytes",
            "65536",
            {"fetch.max.bytes": "65536", "message.max.bytes": "65536"},
        ),
        ("fetch.max.bytes", "0", {"fetch.max.bytes": "1000"}),
        (
            "fetch.max.bytes",
            "2147483647",
            {
                "fetch.max.bytes": "2147483135",
                "receive.message.max.bytes": "2147483647",
            },
        ),
        ("max.partition.fetch.bytes", "0", {"fetch.message.max.bytes": "1"}),
        ("fetch.max.wait.ms", "900000", {"fetch.wait.max.ms": "300000"}),
        (
            "metadata.max.age.ms",
            "86400000",
            {"topic.metadata.refresh.interval.ms": "3600000"},
        ),
        ("retry.backoff.ms", "0", {"retry.backoff.ms": "1"}),
        ("socket.connection.setup.timeout.ms", "1", None),
        ("request.timeout.ms", " 4000 ", {"socket.timeout.ms": "4000"}),
        ("isolation.level", "read_committed ", {"isolation.level": "read_committed"}),
        ("client.id", "me\n", {"client.id": "me"}),
    ],
)
def test_what_java_takes_is_brought_to_what_librdkafka_takes(java, value, becomes):
    made = client_settings({**BROKERS, java: value}, purpose="consumer")

    for name, expected in (becomes or {}).items():
        assert made[name] == expected
    Consumer({"group.id": "g", "log_level": 0, **made}).close()


def test_a_number_that_is_changed_is_told_once(caplog):
    for _ in range(2):
        settings_of(request_timeout_ms="600001")

    (line,) = [r.message for r in caplog.records if "600001" in r.message]
    assert "10 to 300000" in line
    assert "becomes 300000" in line


@pytest.mark.parametrize(
    ("name", "end"),
    [
        (name, end)
        for name in sorted(translations.BOUNDS)
        for end in (0, 1)
        if (name, end)
        not in {
            ("receive.message.max.bytes", 0),  # below any fetch
            ("message.max.bytes", 1),  # above any
        }
    ],
)
def test_the_bounds_are_librdkafkas(name, end):
    value = translations.BOUNDS[name][end]
    made = client_settings({**BROKERS, name: str(value)}, purpose="consumer")
    Consumer({"group.id": "g", "log_level": 0, **made}).close()


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize(
    "name", sorted(translations.BOUNDS.keys() & (COMMON | PRODUCER_ONLY))
)
def test_the_bounds_are_librdkafkas_for_producers_too(name, end):
    value = translations.BOUNDS[name][end]
    patient = {"delivery.timeout.ms": "2147483647"}  # more than any linger.ms
    made = client_settings({**BROKERS, **patient, name: str(value)}, purpose="producer")
    Producer({"log_level": 0, **made})


@pytest.mark.parametrize(
    ("java", "value", "name", "becomes"),
    [
        ("batch.size", "0", "batch.size", "1"),
        ("request.timeout.ms", "0", "request.timeout.ms", "1"),
        ("request.timeout.ms", "2147483647", "request.timeout.ms", "900000"),
        ("linger.ms", "9223372036854775807", "linger.ms", "900000"),
        ("max.request.size", "100", "message.max.bytes", "1000"),
        ("max.request.size", "2147483647", "message.max.bytes", "1000000000"),
        ("compression.zstd.level", "22", "compression.level", "12"),
        ("compression.zstd.level", "-131072", "compression.level", "-1"),
        ("transaction.timeout.ms", "500", "transaction.timeout.ms", "1000"),
        (
            "buffer.memory",
            "9223372036854775807",
            "queue.buffering.max.kbytes",
            "2147483647",
        ),
        ("connections.max.idle.ms", "-1", "connections.max.idle.ms", "0"),
    ],
)
def test_a_producer_takes_what_java_takes(java, value, name, becomes):
    patient = {"delivery.timeout.ms": "2147483647", "compression.type": "zstd"}
    made = client_settings({**BROKERS, **patient, java: value}, purpose="producer")

    assert made[name] == becomes
    Producer({"log_level": 0, **made})


def test_the_brokers_decide_how_large_a_record_may_be():
    made = client_settings(BROKERS, purpose="producer")

    assert int(made["message.max.bytes"]) > 1_048_576 + 512


@pytest.mark.parametrize(
    ("more", "becomes"),
    [
        ({"buffer.memory": "33554432"}, "33554432"),
        ({"buffer.memory": "33554432", "max.request.size": "2000"}, "2000"),
        ({"queue.buffering.max.kbytes": "1"}, "1024"),
        ({"queue.buffering.max.kbytes": "2097151"}, "100000000"),
    ],
)
def test_no_record_may_be_larger_than_the_buffer(more, becomes):
    made = client_settings({**BROKERS, **more}, purpose="producer")

    assert made["message.max.bytes"] == becomes


def test_a_word_where_a_number_belongs_is_refused():
    with pytest.raises(ConfigError, match=r"kafka\.request\.timeout\.ms' is 'soon'"):
        settings_of(request_timeout_ms="soon")


@pytest.mark.parametrize(
    ("name", "word"),
    [(name, word) for name, words in ENUMERATIONS.items() for word in words],
)
def test_words_are_taken_in_any_case_and_compared_in_one(name, word):
    purpose: Purpose = "producer" if name in PRODUCER_ONLY else "consumer"
    if name in translations.NO_EFFECT or name in translations.REFUSED_FOR_READING:
        return  # no client gets them
    given = [word.upper(), word.lower(), f" {word} "]

    made = [client_settings({**BROKERS, name: w}, purpose=purpose) for w in given]
    refused = {**BROKERS, name: f"{word}d"}

    target = "sasl.mechanisms" if name == "sasl.mechanism" else name
    fixed = client_settings(BROKERS, purpose=purpose).get(target)
    assert {each[target] for each in made} <= {word, fixed}
    with pytest.raises(ConfigError, match=f"legal: {', '.join(ENUMERATIONS[name])}"):
        client_settings(refused, purpose=purpose)


def test_words_are_those_of_librdkafka(tmp_path):
    shown = tmp_path / "properties"
    _show_properties(shown)
    rows = [line.split("|") for line in shown.read_text().splitlines() if "|" in line]
    theirs: dict[str, set[str]] = {}
    for name, _, legal, *_ in rows:
        words = legal.strip().split(", ")
        if len(words) > 1 and name.strip() != "debug":  # a list of words
            theirs.setdefault(name.strip(), set()).update(words)

    names = theirs.keys() & (COMMON | CONSUMER_ONLY | PRODUCER_ONLY)
    assert len(names) > 30
    for name in names:
        ours = {word.lower() for word in ENUMERATIONS[name]}
        assert ours == {word.lower() for word in theirs[name]}, name


def _show_properties(place):
    """Librdkafka's own table; it writes it to a file of C's."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    (found,) = {line.split()[-1] for line in maps if "/librdkafka" in line}
    library, libc = ctypes.CDLL(found), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(place).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    ],
)
def test_newer_names_of_java_are_known(name):
    assert name not in client_settings({**BROKERS, name: "1"}, purpose="consumer")


@pytest.mark.parametrize("purpose", ["consumer", "admin", "producer"])
def test_addresses_are_no_urls(purpose):
    given = {"bootstrap.servers": "a:9092,http://h:9092"}

    with pytest.raises(ConfigError, match="host:port, separated by commas"):
        client_settings(given, purpose=purpose)

    usual = {"bootstrap.servers": "SASL_SSL://a:9092, b"}
    assert client_settings(usual, purpose=purpose)["bootstrap.servers"]
