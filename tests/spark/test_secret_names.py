"""Every option that may hold a secret has a name that Spark's plans do not show."""

import re
from types import SimpleNamespace

import pytest

from kafka_tx.kafka import translations
from kafka_tx.kafka.client_settings import is_secret
from kafka_tx.kafka.librdkafka_names import COMMON, CONSUMER_ONLY, PRODUCER_ONLY
from kafka_tx.options.shown import SECRETS
from kafka_tx.spark.versions import jvm
from tests.doc_pages import DOCS

HIDDEN_BY_SPARK = "(?i)secret|password|token|access[.]?key"
"""The default of ``spark.redaction.regex``, for names and values."""

(BY_HAND,) = re.findall(
    r"`spark\.sql\.redaction\.options\.regex` to\s+`(.*)`",
    (DOCS / "security.md").read_text(),
)
"""What users set who do not call ``attach``."""

ALL = COMMON | CONSUMER_ONLY | PRODUCER_ONLY | translations.known_names()


class Session:
    """A session's settings."""

    def __init__(self, **given):
        self.given = given
        self.conf = SimpleNamespace(get=self.given.get, set=self.given.__setitem__)


OF_REGISTRY = (
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.bearer.auth.client.secret",
    "schema.registry.ssl.key.password",
    "schema.registry.proxy",
)


@pytest.mark.parametrize(
    "name",
    [
        *sorted(f"kafka.{n}" for n in ALL if is_secret(n)),
        *("tx.store", "TX.Store"),
        *OF_REGISTRY,
    ],
)
def test_it_is_hidden(name):
    session = Session()

    jvm.hide_secrets(session)

    ours = session.given[jvm._HIDDEN]
    for hidden in (ours, BY_HAND):
        assert re.search(hidden, name) or re.search(HIDDEN_BY_SPARK, name)


def test_what_a_user_hides_stays_hidden_and_ours_is_added_once():
    session = Session(**{jvm._HIDDEN: "mine"})

    jvm.hide_secrets(session)
    jvm.hide_secrets(session)

    assert session.given == {jvm._HIDDEN: f"mine|{SECRETS}"}


@pytest.mark.parametrize(
    "name", ["value.schema", "subscribe", "kafka.bootstrap.servers", "tx.id"]
)
def test_other_options_are_shown(name):
    session = Session()

    jvm.hide_secrets(session)

    assert not re.search(session.given[jvm._HIDDEN], name)
