"""Brokers that want a password and show a certificate: the options Spark users know."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.errors import PySparkException

from integration.cluster.java import java
from integration.cluster.pem import as_pkcs8
from integration.cluster.records import Produce
from integration.cluster.running import running
from integration.cluster.settings import LOGIN, STEADY
from integration.cluster.topics import fresh_name
from integration.cluster.waiting import wait_until
from integration.reading import Run, reader
from kafka_tx import TransactionAttempt, sink_assembly, write_transaction
from kafka_tx.config import SinkConfig
from kafka_tx.errors import AuthenticationError, BrokerUnavailableError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.cluster import KafkaClusterView
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.reader import topic_id_now
from kafka_tx.kafka.sender import Sender
from kafka_tx.model import Earliest, LogPosition, TopicPartition, Topics

VALUES = [f"v{n}" for n in range(50)]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
STORE_PASSWORD = "changeit"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(servers, authority):
    """A broker with a second listener, SASL_SSL, that knows alice."""
    cluster = servers.kafka(
        settings=STEADY,
        login={
            "security.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": f'{MODULE} user_alice="sesame";',
            "ssl.keystore.type": "PEM",
            **shown_by(authority),
        },
    )
    with running(cluster):
        yield cluster


def shown_by(authority):
    """A certificate of this authority, as settings of a broker."""
    certificate = authority.issue_cert(
        "127.0.0.1", common_name="broker", organization_unit_name="tests"
    )
    chain = "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems)
    return {
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": as_pkcs8(certificate.private_key_pem.bytes()),
    }


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


def without_prefix(options):
    return {
        name.removeprefix("kafka__").replace("__", "."): value
        for name, value in options.items()
    }


@pytest.mark.all
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


@pytest.mark.all
def test_the_command_named_for_a_pkcs12_trust_store_converts_it(
    spark, secured, topic, trusted, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tool = str(Path(java()).resolve().with_name("keytool"))
    adding = f"{tool} -importcert -noprompt -alias ca -file ca.pem -keystore ca.p12"
    run(f"{adding} -storetype PKCS12 -storepass {STORE_PASSWORD}")
    there = {"subscribe": topic, **login()}
    in_java = {"kafka__ssl__truststore__location": "ca.p12"}
    with pytest.raises(PySparkException, match="PKCS12") as caught:
        reader(spark, secured.login_servers, streaming=False, **there, **in_java).load()

    command = re.search(r": keytool (.*?) > truststore.pem;", str(caught.value))
    assert command is not None
    printed = run(f"{tool} {command[1]} -storepass {STORE_PASSWORD}")
    Path("truststore.pem").write_bytes(printed)

    pem = {"kafka__ssl__truststore__location": str(tmp_path / "truststore.pem")}
    df = reader(spark, secured.login_servers, streaming=False, **there, **pem)
    assert df.load().count() == len(VALUES)


def run(command):
    return subprocess.run(command.split(), check=True, capture_output=True).stdout


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


def test_authorities_that_were_replaced_on_disk_are_read_by_who_lives(
    secured, authority, trusted, topic
):
    given = without_prefix(login() | trusted)
    given["bootstrap.servers"] = secured.login_servers
    settings = client_settings(given, purpose="admin")
    reading = client_settings(given, purpose="consumer")
    partition = TopicPartition(topic, 0)
    views = [KafkaClusterView(settings) for _ in range(3)]
    group = GroupMirror(settings, fresh_name("mirror"))
    living = {
        "topics": lambda: views[0].topics(Topics((topic,))),
        "bounds": lambda: views[1].bounds([partition]),
        "offsets": lambda: views[2].offsets({partition: Earliest()}),
        "mirror": lambda: group.store({partition: LogPosition(1, None)}),
        "reader": lambda: topic_id_now(reading, topic, 30_000),
    }
    before = {name: ask() for name, ask in living.items()}
    target = fresh_name("target")
    secured.create_topic(target, 1)
    writing = client_settings(given, purpose="producer")
    sender = Sender(writing)
    assert sender.send([OutRecord(target, b"k", b"v")]) == 1
    another = trustme.CA()
    both = authority.cert_pem.bytes() + another.cert_pem.bytes()
    replace_file(trusted["kafka__ssl__truststore__location"], both)
    try:
        show(secured, another)
        end_connections(secured.login_servers)
        assert {name: ask() for name, ask in living.items()} == before
        with pytest.raises(BrokerUnavailableError, match="let this producer in"):
            sender.send([OutRecord(target, b"k", b"v")])
        assert Sender(writing).send([OutRecord(target, b"k", b"v")]) == 1
    finally:
        show(secured, authority)
        for view in views:
            view.close()
        group.close()


def end_connections(address):
    """All those of this process to this address; its clients make new ones."""
    port = int(address.rpartition(":")[2])
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as found:
            is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
            if is_tcp and found.getpeername()[1] == port:
                found.shutdown(socket.SHUT_RDWR)


def replace_file(path, content):
    """At no moment there is none, nor half of one."""
    new = Path(f"{path}.new")
    new.write_bytes(content)
    new.replace(path)


def show(cluster, authority):
    """Let the broker show new clients a certificate of this authority; it does then."""

    def shown():
        host, port = cluster.login_servers.split(":")
        return ssl.get_server_certificate((host, int(port)))

    before = shown()
    entries = [
        ConfigEntry(
            f"listener.name.{LOGIN.lower()}.{name}",
            value,
            incremental_operation=AlterConfigOpType.SET,
        )
        for name, value in shown_by(authority).items()
    ]
    broker = ConfigResource(
        ConfigResource.Type.BROKER, "1", incremental_configs=entries
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([broker])[broker].result(60)
    # the broker's threads take it one after the other, and new connections in turn
    wait_until("each shows it", lambda: before not in [shown() for _ in range(6)])


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


@pytest.mark.all
def test_the_exactly_once_sink_names_an_unknown_authority(secured, topic):
    kafka = {"bootstrap.servers": secured.login_servers, **without_prefix(login())}
    part = sink_assembly.part_transaction(
        SinkConfig(
            kafka=kafka, topic=topic, id="distrustful", attempt=TransactionAttempt(1, 0)
        ),
        0,
    )

    with pytest.raises(AuthenticationError, match="certificate"):
        part.write([OutRecord(topic, b"k", b"v")])
