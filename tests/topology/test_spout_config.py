"""What a spout may be told, and how it shows that."""

import logging
from dataclasses import fields, replace

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.model import AtTime, Earliest, Latest, TopicPattern, Topics
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.topology.declare.spout_config import ABOUT, SpoutConfig
from kafka_tx.topology.declare.spout_hosts import BrokerHosts, StaticHosts

HOSTS = BrokerHosts("kafka:9092")


def config(**more):
    return SpoutConfig(**{"hosts": HOSTS, "topic": "orders", **more})


def test_the_defaults_are_those_of_storm_kafka():
    given = config()

    assert given.fetch_size_bytes == given.buffer_size_bytes == 1_048_576
    assert given.socket_timeout_ms == 10_000
    assert given.state_update_interval_ms == 2_000
    assert given.start_offset_time == Earliest()
    assert given.back_off().initial_delay_ms == 0
    assert given.back_off().multiplier == 1.0
    assert given.back_off().max_delay_ms == 60_000
    assert given.back_off().limit is None
    assert given.refresh_interval_ms == 60_000
    assert given.scheme.fields.names == ("bytes",)


def test_storms_numbers_mean_what_they_mean_there():
    assert config(start_offset_time=-2).start_offset_time == Earliest()
    assert config(start_offset_time=-1).start_offset_time == Latest()
    for ms in (0, 1_700):
        assert config(start_offset_time=ms).start_offset_time == AtTime(ms)
    assert config(retry_limit=-1).retry_limit is None
    assert config(max_offset_behind=2**63 - 1).max_offset_behind is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", ""),
        ("id", "a/b"),
        ("start_offset_time", -3),
        ("start_offset_time", "earliest"),
        ("out_of_range", "somewhere"),
        ("output_stream_id", "other"),
        ("state_update_interval_ms", 0),
        ("fetch_size_bytes", 0),
        ("total_tasks", 0),
        ("retry_delay_multiplier", 0.5),
        ("retry_limit", -2),
        ("max_uncommitted_offsets", 0),
        ("max_offset_behind", 0),
    ],
)
def test_an_illegal_value_is_refused(name, value):
    with pytest.raises(ConfigError, match="legal"):
        config(**{name: value})


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="zk_servers"):
        config(store="memory:", zk_servers=("zk",))
    with pytest.raises(ConfigError, match="is_pattern"):
        config(hosts=StaticHosts({0: "a"}), is_pattern=True)


@pytest.mark.parametrize("setting", ["topic", "dead_letter_topic"])
def test_topics_that_only_kafka_tx_may_name_are_refused(setting):
    with pytest.raises(ConfigError, match=f"{setting}.*markers"):
        config(**{setting: "kafka_tx.markers"})


def test_a_topic_is_a_name_or_a_pattern():
    assert config().subscription == Topics(("orders",))
    assert config(topic="o.*", is_pattern=True).subscription == TopicPattern("o.*")


def test_an_offset_outside_of_the_log_may_be_made_an_error():
    assert config().policy is OutOfRange.EARLIEST
    assert config(out_of_range="nearest").policy is OutOfRange.EARLIEST
    strict = config(use_start_offset_time_if_offset_out_of_range=False)
    assert strict.policy is OutOfRange.FAIL
    assert strict.partition_rules("t").out_of_range is OutOfRange.FAIL
    assert strict.start_rules("t").out_of_range is OutOfRange.FAIL


def test_offsets_in_zookeeper_have_an_address():
    given = config(zk_servers=("a", "b:2182", "[::1]"), zk_root="/spouts")

    assert given.store_url == "zookeeper://a:2181,b:2182,[::1]:2181/spouts"
    assert config(store="memory:").store_url == "memory:"
    assert config().store_url is None


def test_client_options_are_the_settings_and_the_users_win():
    given = config(min_fetch_bytes=5, kafka={"max.partition.fetch.bytes": "7"})

    assert given.client_options() == {
        "max.partition.fetch.bytes": "7",
        "fetch.min.bytes": "5",
        "receive.buffer.bytes": "1048576",
    }


def test_managers_are_told_who_stores():
    rules = config(retry_limit=3).partition_rules("topology", "release-2")

    assert (rules.topology_id, rules.topology_name) == ("release-2", "topology")
    assert rules.back_off.limit == 3


def test_a_setting_of_storm_without_effect_is_said_and_not_shown(caplog):
    name = "metrics_time_bucket_size_in_secs"
    with caplog.at_level(logging.WARNING):
        config()
        assert not caplog.text
        given = config(**{name: 30})

    assert f"setting '{name}' of Storm has no effect here" in caplog.text
    assert replace(given, id="") == config()
    assert name not in SpoutConfig.table() + str(given)


def test_every_setting_is_explained():
    names = [field.name for field in fields(SpoutConfig)]

    assert list(ABOUT) == names
    assert all(about.meaning.endswith(".") for about in ABOUT.values())
    lines = SpoutConfig.table().splitlines()
    assert len(lines) == len(names) + 2
    assert all(line.count(" | ") == 4 for line in lines)


def test_it_prints_itself_as_a_table_without_secrets():
    text = str(config(kafka={"sasl.password": "hush"}, retry_limit=4))

    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    assert lines["retry_limit"] == ["4", "retries"]
    assert lines["state_update_interval_ms"] == ["2000", "ms"]
    assert lines["kafka"] == ["sasl.password"]
    assert "hush" not in text
    assert "hush" not in repr(config(kafka={"sasl.password": "hush"}))


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("hosts", "broker:9092", r'BrokerHosts\("host:9092"\)'),
        ("topic", 3, "text"),
        ("retry_limit", "five", "a whole number or None"),
        ("fetch_size_bytes", True, "a whole number"),
        ("retry_delay_multiplier", "2", "a number"),
        ("ignore_stored_offsets", "false", "True or False"),
        ("scheme", "raw", "a Scheme"),
        ("kafka", "security.protocol=SSL", "a dictionary"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(name, value, legal):
    given = {"hosts": BrokerHosts("broker:9092"), "topic": "orders", name: value}

    with pytest.raises(ConfigError, match=rf"option '{name}' is .*legal: {legal}"):
        SpoutConfig(**given)
