"""Settings of at-least-once topologies."""

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.options.topology import RunnerLimits, parse_at_least_once_settings
from kafka_tx.store_place import default_store


def test_nothing_set_means_the_defaults():
    settings = parse_at_least_once_settings(None)

    assert settings.limits == RunnerLimits()
    assert settings.limits.timeout_ms == 30_000
    assert settings.topology.store == default_store()
    assert settings.deployment == ""


def test_limits_are_read_under_ours_and_storms_names():
    settings = parse_at_least_once_settings(
        {
            "tx.chunkRecords": "500",
            "tx.maxPending": 3,
            "topology.max.spout.pending": 2_000,
            "topology.message.timeout.secs": 5,
            "tx.deployment": "release-2",
            "tx.store": "memory:",
        }
    )

    assert settings.limits.chunk_records == 500
    assert settings.limits.chunks == 3
    assert settings.limits.max_pending == 2_000
    assert settings.limits.timeout_ms == 5_000
    assert settings.deployment == "release-2"
    assert settings.topology.store == "memory:"


def test_time_outs_can_be_switched_off():
    settings = parse_at_least_once_settings({"topology.enable.message.timeouts": False})
    assert settings.limits.silent_timeouts == RunnerLimits.silent_timeouts

    assert settings.limits.timeout_ms is None


@pytest.mark.parametrize("value", ["0", "-1", "many", True])
def test_a_limit_that_is_no_number_is_refused(value):
    with pytest.raises(ConfigError, match="whole number"):
        parse_at_least_once_settings({"tx.chunkRecords": value})


def test_an_unknown_setting_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"tx\.maxPending"):
        parse_at_least_once_settings({"tx.maxPendin": 3})


@pytest.mark.parametrize(("timeout_ms", "timeouts"), [(30_000, 4), (500, 120)])
def test_jobs_may_say_nothing_for_a_minute_at_least(timeout_ms, timeouts):
    limits = parse_at_least_once_settings({"tx.timeoutMs": timeout_ms}).limits

    assert limits.silent_timeouts == timeouts
