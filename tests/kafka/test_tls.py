"""Java's key and trust stores become settings of librdkafka."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.client_settings import client_settings, tls_settings


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
            "openssl pkcs12 -in /trust.p12 -nokeys -out truststore.pem",
        ),
        (
            {"ssl.truststore.location": "/trust.jks"},
            "-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -nokeys",
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
