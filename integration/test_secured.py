"""Brokers that want a password and show a certificate: the options Spark users know."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import trustme
from pyspark.errors import PySparkException

from integration.cluster.java import java
from integration.cluster.pem import as_pkcs8
from integration.cluster.records import Produce
from integration.cluster.running import running
from integration.cluster.settings import STEADY
from integration.cluster.topics import fresh_name
from integration.reading import Run, reader
from kafka_tx import TransactionAttempt, sink_assembly, write_transaction
from kafka_tx.config import SinkConfig
from kafka_tx.errors import AuthenticationError
from kafka_tx.kafka.producer import OutRecord

VALUES = [f"v{n}" for n in range(50)]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
STORE_PASSWORD = "changeit"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(servers, authority):
    """A broker with a second listener, SASL_SSL, that knows alice."""
    certificate = authority.issue_cert("127.0.0.1")
    chain = "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems)
    cluster = servers.kafka(
        settings=STEADY,
        login={
            "security.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": f'{MODULE} user_alice="sesame";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": as_pkcs8(certificate.private_key_pem.bytes()),
        },
    )
    with running(cluster):
        yield cluster


@pytest.fixture(scope="module")
def topic(secured):
    secured.create_topic("guarded", 2)
    Produce(secured.bootstrap_servers)("guarded", VALUES)
    return "guarded"


@pytest.fixture
def trusted(authority, tmp_path):
    """Options that name the authority, as Java's client takes them."""
    pem = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(pem))
    return {
        "kafka__ssl__truststore__type": "PEM",
        "kafka__ssl__truststore__location": str(pem),
    }


def login(password="sesame"):
    return {
        "kafka__security__protocol": "SASL_SSL",
        "kafka__sasl__mechanism": "PLAIN",
        "kafka__sasl__jaas__config": (
            f'{MODULE} username="alice" password="{password}";'
        ),
    }


def test_sparks_source_and_ours_take_the_same_options(spark, secured, topic, trusted):
    rows = []
    for source in ("kafka", "kafka_tx"):
        made = spark.read.format(source).option("subscribe", topic)
        made = made.option("kafka.bootstrap.servers", secured.login_servers)
        for name, value in (login() | trusted).items():
            made = made.option(name.replace("__", "."), value)
        rows.append(sorted(made.load().collect()))

    assert rows[0] == rows[1]
    assert len(rows[1]) == len(VALUES)


def test_the_command_named_for_a_pkcs12_trust_store_converts_it(
    spark, secured, topic, trusted, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    keytool = str(Path(java()).resolve().with_name("keytool"))
    keytool += " -importcert -noprompt -alias ca -file ca.pem -keystore ca.p12"
    run(f"{keytool} -storetype PKCS12 -storepass {STORE_PASSWORD}")
    there = {"subscribe": topic, **login()}
    in_java = {"kafka__ssl__truststore__location": "ca.p12"}
    with pytest.raises(PySparkException, match="PKCS12") as caught:
        reader(spark, secured.login_servers, streaming=False, **there, **in_java).load()

    command = re.search(r"Convert it: (openssl .*?);", str(caught.value))
    assert command is not None
    run(f"{command[1]} -passin pass:{STORE_PASSWORD}")

    pem = {"kafka__ssl__truststore__location": str(tmp_path / "truststore.pem")}
    df = reader(spark, secured.login_servers, streaming=False, **there, **pem)
    assert df.load().count() == len(VALUES)


def run(command):
    subprocess.run(command.split(), check=True, capture_output=True)


def test_a_stream_stores_commits_and_writes_behind_a_password(
    spark, secured, topic, trusted, tmp_path
):
    copied = fresh_name("copied")
    secured.create_topic(copied, 1)
    options = login() | trusted
    guarded = Run(
        spark,
        secured.login_servers,
        subscribe=topic,
        tx__id="guarded",
        tx__store=f"sqlite:///{tmp_path}/state.db",
        tx__commitGroupId="guarded",
        **options,
    )
    values = guarded.until_done(tmp_path / "checkpoint")
    sink = {name.replace("__", "."): value for name, value in options.items()}
    sink |= {"kafka.bootstrap.servers": secured.login_servers}
    df = spark.createDataFrame([(value,) for value in values], "value binary")
    for number in range(2):
        write_transaction(
            df,
            TransactionAttempt(1, number),
            sink | {"topic": copied, "tx.id": copied},
        )

    assert sorted(values) == sorted(value.encode() for value in VALUES)
    copies = Run(
        spark,
        secured.bootstrap_servers,
        subscribe=copied,
        startingOffsets="earliest",
        kafka__isolation__level="read_committed",
    )
    assert sorted(copies.until_done(tmp_path / "copies")) == sorted(values)


def test_a_wrong_password_is_named_and_not_shown(
    spark, secured, topic, trusted, tmp_path
):
    options = login("open sesame") | trusted
    refused = Run(spark, secured.login_servers, subscribe=topic, **options)

    with pytest.raises(PySparkException, match="KAFKA_TX_AUTHENTICATION") as caught:
        refused.until_done(tmp_path / "checkpoint")
    assert "open sesame" not in str(caught.value)


def test_a_certificate_of_an_unknown_authority_is_named(
    spark, secured, topic, tmp_path
):
    refused = Run(spark, secured.login_servers, subscribe=topic, **login())

    with pytest.raises(PySparkException, match=r"KAFKA_TX_AUTHENTICATION.*certificate"):
        refused.until_done(tmp_path / "checkpoint")


def test_the_exactly_once_sink_names_an_unknown_authority(secured, topic):
    options = {
        name.removeprefix("kafka__").replace("__", "."): value
        for name, value in login().items()
    }
    kafka = {"bootstrap.servers": secured.login_servers, **options}
    part = sink_assembly.part_transaction(
        SinkConfig(kafka=kafka, topic=topic, id="distrustful", txid=1), 0
    )

    with pytest.raises(AuthenticationError, match="certificate"):
        part.write([OutRecord(topic, b"k", b"v")])
