import logging

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.options.topology import STORMS, TOPOLOGY, parse_settings
from kafka_tx.store_place import default_store
from kafka_tx.transactions.coordinator.pacing import Pacing
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings


def test_nothing_given_is_one_batch_at_a_time_in_sqlite():
    settings = parse_settings(None)

    assert settings.store == default_store()
    assert settings.pacing == Pacing(max_pending=1, timeout_ms=30_000)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("topology.max.spout.pending", 4, Pacing(max_pending=4)),
        ("tx.maxPending", "4", Pacing(max_pending=4)),
        ("topology.message.timeout.secs", "60", Pacing(timeout_ms=60_000)),
        ("tx.timeoutMs", 1500, Pacing(timeout_ms=1500)),
        ("topology.enable.message.timeouts", "false", Pacing(timeout_ms=None)),
        (
            "topology.trident.batch.emit.interval.millis",
            500,
            Pacing(emit_interval_ms=500),
        ),
        ("tx.idlePauseMs", 5, Pacing(idle_pause_ms=5)),
        ("tx.retryMs", 5, Pacing(retry_ms=5)),
    ],
)
def test_pacing_is_set_by_our_names_and_by_storms(name, value, expected):
    assert parse_settings({name: value}).pacing == expected


def test_our_name_wins_over_storms():
    settings = parse_settings({"tx.maxPending": 2, "topology.max.spout.pending": 9})
    times_out = parse_settings(
        {"topology.enable.message.timeouts": False, "tx.timeoutMs": 5_000}
    )

    assert settings.pacing.max_pending == 2
    assert times_out.pacing.timeout_ms == 5_000


@pytest.mark.parametrize(
    "servers", ["z1, z2:2200", ["z1", "z2:2200"], '["z1","z2:2200"]']
)
def test_storms_zookeeper_becomes_the_store(servers):
    settings = parse_settings(
        {
            "transactional.zookeeper.servers": servers,
            "transactional.zookeeper.port": 2182,
            "transactional.zookeeper.root": "/tx/jobs",
            "storm.zookeeper.session.timeout": 9000,
        }
    )

    assert settings.store == (
        "zookeeper://z1:2182,z2:2200/tx/jobs?session_timeout_ms=9000"
    )
    assert ZooKeeperSettings.parse(settings.store).root == "/tx/jobs"


def test_an_ipv6_address_of_zookeeper_gets_the_port_unless_it_has_one():
    settings = parse_settings(
        {
            "transactional.zookeeper.servers": ["[fd00::1]", "fd00::2", "[::1]:2200"],
            "transactional.zookeeper.port": 2182,
        }
    )

    hosts = "[fd00::1]:2182,[fd00::2]:2182,[::1]:2200"
    assert settings.store == f"zookeeper://{hosts}/transactional"
    assert ZooKeeperSettings.parse(settings.store).hosts == hosts


def test_servers_and_port_fall_back_independently():
    settings = parse_settings(
        {
            "storm.zookeeper.servers": "z1",
            "storm.zookeeper.port": 1111,
            "transactional.zookeeper.port": 2222,
        }
    )

    assert settings.store == "zookeeper://z1:2222/transactional"


def test_a_store_that_is_named_wins_over_zookeeper():
    settings = parse_settings(
        {"tx.store": "memory:", "transactional.zookeeper.servers": "z1"}
    )

    assert settings.store == "memory:"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("topology.max.spout.pendign", "topology.max.spout.pending"),
        ("tx.maxpending", "tx.maxPending"),
        ("transactional.zookeeper.server", "transactional.zookeeper.servers"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name, nearest):
    with pytest.raises(ConfigError, match=f"Did you mean '{nearest}'"):
        parse_settings({name: 1})


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("tx.maxPending", 0, "whole number from 1"),
        ("tx.maxPending", "many", "whole number from 1"),
        ("topology.message.timeout.secs", True, "whole number from 1"),
        ("topology.enable.message.timeouts", "no", "true or false"),
        ("transactional.zookeeper.servers", [], "list of host names"),
        ("storm.zookeeper.servers", "[zk1,zk2]", "list of host names"),
        ("tx.store", " ", "not empty"),
    ],
)
def test_an_illegal_value_is_refused_with_the_legal_ones(name, value, legal):
    with pytest.raises(ConfigError, match=legal) as raised:
        parse_settings({name: value})
    assert name in str(raised.value)


def test_what_has_no_effect_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        parse_settings({"topology.workers": 4})

    assert "'topology.workers' of Storm has no effect" in caplog.text


def test_the_users_own_settings_are_kept():
    assert parse_settings({"user.limit": 7}).own == {"user.limit": 7}


def test_every_setting_has_its_sentence():
    assert all(setting.sentence.endswith(".") for setting in (*TOPOLOGY, *STORMS))
