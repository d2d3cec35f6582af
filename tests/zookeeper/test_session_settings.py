import traceback

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings

parse = ZooKeeperSettings.parse


def test_a_url_names_hosts_and_root():
    settings = parse("zookeeper://h1:2181,h2:2182/kafka/tx")

    assert settings == ZooKeeperSettings(hosts="h1:2181,h2:2182", root="/kafka/tx")
    assert settings.url == "zookeeper://h1:2181,h2:2182/kafka/tx"


@pytest.mark.parametrize("url", ["zookeeper://h1", "zookeeper://h1/"])
def test_without_a_root_everything_is_kept_below_one_of_its_own(url):
    assert parse(url).root == "/kafka_tx"


def test_timeouts_have_storms_defaults_and_can_be_given():
    assert parse("zookeeper://h1/a").session_timeout_ms == 20_000
    assert parse("zookeeper://h1/a?session_timeout_ms=6000&retry_times=0") == (
        ZooKeeperSettings(
            hosts="h1", root="/a", session_timeout_ms=6_000, retry_times=0
        )
    )


def test_auth_closes_the_nodes_to_others_and_is_never_shown():
    settings = parse("zookeeper://h1/a?auth=digest:me:s3cr%40t%26more")

    assert settings.auth == "me:s3cr@t&more"
    assert settings.acl == "creator"
    assert "s3cr" not in repr(settings) + str(settings) + settings.url


def test_auth_may_leave_the_nodes_open():
    assert parse("zookeeper://h1/a?auth=digest:me:x&acl=open").acl == "open"


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://",
        "zookeeper:///root",
        "zk://h1/a",
        "zookeeper://me:s3cret@h1/a",
        "zookeeper://h1:port/a",
        "zookeeper://h1:2181:2181/a",
        "zookeeper://h1 h2/a",
        "zookeeper://[fd00::1/a",
        "zookeeper://h1/a//b",
        "zookeeper://h1/a/../b",
        "zookeeper://h1/a~b",
        "zookeeper://h1/a#s3cret",
        "zookeeper://h1/a?auth=sasl:me:s3cret",
        "zookeeper://h1/a?auth=digest:s3cret",
        "zookeeper://h1/a?auth=digest:me:s3&cret=",
        "zookeeper://h1/a?s3cret",
        "zookeeper://h1/a?acl=everybody",
        "zookeeper://h1/a?acl=creator",
        "zookeeper://h1/a?session_timeout_ms=0",
        "zookeeper://h1/a?session_timeout_ms=1s",
        "zookeeper://h1/a?retry_times=1&retry_times=2",
    ],
)
def test_a_bad_address_is_refused_without_repeating_a_secret(url):
    with pytest.raises(ConfigError) as caught:
        parse(url)

    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
