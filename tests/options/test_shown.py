"""Options are shown to people without their secrets."""

from __future__ import annotations

import pytest

from kafka_tx.options.shown import HIDDEN, shown


@pytest.mark.parametrize(
    "name",
    [
        "tx.store",
        "kafka.sasl.jaas.config",
        "kafka.sasl.password",
        "kafka.ssl.key.password",
        "kafka.ssl.key.pem",
        "kafka.ssl.keystore.key",
        "kafka.ssl.keystore.password",
        "kafka.sasl.oauthbearer.config",
        "kafka.sasl.oauthbearer.client.secret",
        "kafka.basic.auth.credentials.source",
        "user.apiKey",
        "schema.registry.basic.auth.user.info",
        "schema.registry.bearer.auth.token",
        "schema.registry.bearer.auth.client.secret",
        "schema.registry.ssl.key.password",
        "schema.registry.proxy",
    ],
)
def test_what_may_be_secret_is_hidden(name):
    assert shown({name: "s3cret"}) == {name: HIDDEN}
    assert shown({name.upper(): "s3cret"}) == {name.upper(): HIDDEN}


def test_other_options_are_shown_by_name():
    given = {"subscribe": "orders", "maxOffsetsPerTrigger": 5, "tx.id": "job"}

    assert list(shown(given).items()) == [
        ("maxOffsetsPerTrigger", "5"),
        ("subscribe", "orders"),
        ("tx.id", "job"),
    ]


def test_the_store_is_shown_by_its_address_without_secrets():
    given = {"tx.store": "postgresql://app:s3cret@db/kafka_tx"}

    assert shown(given, "postgresql://app:***@db/kafka_tx") == {
        "tx.store": "postgresql://app:***@db/kafka_tx"
    }


def test_who_logs_in_to_a_url_is_hidden():
    url = "https://app:s3cret@registry:8081/v1"

    assert shown({"schema.registry": url}) == {
        "schema.registry": "https://***@registry:8081/v1"
    }
