"""Java's key and trust stores become settings of librdkafka."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kafka_tx.cli.java import find_java
from kafka_tx.errors import ConfigError
from kafka_tx.kafka.client_settings import client_settings, tls_settings
from kafka_tx.kafka.clients import new_consumer
from kafka_tx.kafka.errors import ErrorWatch
from kafka_tx.testing import QUICK_JAVA


@pytest.mark.parametrize(
    ("options", "becomes"),
    [
        ({}, {}),
        ({"ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        (
            {"ssl.truststore.location": "/ca", "ssl.truststore.type": "pem"},
            {"ssl.ca.location": "/ca"},
        ),
        ({"ssl.truststore.certificates": "-----BEGIN"}, {"ssl.ca.pem": "-----BEGIN"}),
        (
            {"ssl.keystore.key": "KEY", "ssl.keystore.certificate.chain": "CERT"},
            {"ssl.key.pem": "KEY", "ssl.certificate.pem": "CERT"},
        ),
        (
            {"ssl.keystore.location": "/me.pem", "ssl.keystore.type": "PEM"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"},
        ),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"},
        ),
        (
            {"ssl.keystore.location": "/me.store", "ssl.keystore.type": "pkcs12"},
            {"ssl.keystore.location": "/me.store"},
        ),
    ],
)
def test_a_store_librdkafka_can_read_is_translated(
    options: dict[str, str], becomes: dict[str, str]
) -> None:
    assert tls_settings(options) == becomes


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"ssl.keystore.location": "/me.jks"},
            "keytool -importkeystore -srckeystore /me.jks -destkeystore store.p12"
            " -deststoretype PKCS12",
        ),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.type": "JKS"},
            "legal: a PKCS12 or PEM file",
        ),
        (
            {"ssl.truststore.location": "/trust.p12"},
            "keytool -list -rfc -keystore /trust.p12 > truststore.pem",
        ),
        (
            {"ssl.truststore.location": "/trust.jks"},
            "keytool -list -rfc -keystore /trust.jks > truststore.pem",
        ),
    ],
)
def test_a_store_it_cannot_read_is_refused_with_the_command_that_converts_it(
    options: dict[str, str], says: str
) -> None:
    secrets = {"ssl.keystore.password": "sesame", "ssl.truststore.password": "sesame"}

    with pytest.raises(ConfigError) as caught:
        tls_settings({**options, **secrets})

    assert says in str(caught.value)
    assert "sesame" not in str(caught.value)


PASSWORD = "sesame"
OLD = "-J-Dkeystore.pkcs12.legacy"
"""Lets a new keytool encrypt as those before 8u301 and 11.0.12 do."""


def keytool(words: str, folder: Path, typed: str = "") -> None:
    """Run it as a person would, who types the passwords."""
    tool = Path(find_java().command).resolve().with_name("keytool")
    quickly = " ".join(f"-J{option}" for option in QUICK_JAVA)
    subprocess.run(
        ["sh", "-c", f"{tool} {quickly} {words}"],
        cwd=folder,
        input=typed,
        text=True,
        check=True,
    )


@pytest.mark.all
def test_the_commands_named_for_stores_of_an_old_keytool_convert_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keytool(
        f"{OLD} -genkeypair -keystore old.p12 -storetype PKCS12 -storepass {PASSWORD}"
        " -dname CN=me -keyalg RSA -keysize 2048 -alias me",
        tmp_path,
    )
    given = {"ssl.keystore.password": PASSWORD, "bootstrap.servers": "127.0.0.1:1"}

    def client(**stores: str) -> None:
        options = {name.replace("_", "."): at for name, at in stores.items()}
        settings = client_settings(
            {**given, "security.protocol": "SSL", **options}, purpose="consumer"
        )
        new_consumer(settings, ErrorWatch("")).close()

    with pytest.raises(ConfigError, match="RC2") as caught:
        client(ssl_keystore_location="old.p12")
    command = re.search(r"keytool (-importkeystore .*?);", str(caught.value))
    assert command is not None
    keytool(command[1], tmp_path, f"{PASSWORD}\n" * 3)
    client(ssl_keystore_location="store.p12")

    with pytest.raises(ConfigError, match="PEM") as caught:
        client(ssl_truststore_location="old.p12")
    command = re.search(r"keytool (-list .*?);", str(caught.value))
    assert command is not None
    keytool(f"{OLD} {command[1]}", tmp_path, f"{PASSWORD}\n")
    client(ssl_keystore_location="store.p12", ssl_truststore_location="truststore.pem")


def test_a_keystore_without_type_is_java_s_default() -> None:
    with pytest.raises(ConfigError, match=r"/me \(JKS\)"):
        tls_settings({"ssl.keystore.location": "/me"})


def test_stores_reach_the_settings_of_a_client_without_java_s_names() -> None:
    options = {
        "bootstrap.servers": "one:9093",
        "security.protocol": "SSL",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.keystore.type": "PEM",
        "ssl.key.password": "x",
        "ssl.protocol": "TLSv1.3",
    }

    settings = client_settings(options, purpose="consumer")

    tls = {name: value for name, value in settings.items() if name.startswith("ssl.")}
    assert tls == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "x",
    }
