"""A store is at one place, whatever folder a process works in."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kafka_tx import assembly
from kafka_tx.cli.stores import url_or_file
from kafka_tx.errors import ConfigError
from kafka_tx.options.source import parse_source
from kafka_tx.options.topology import parse_settings
from kafka_tx.store_place import default_store, store_url

SOURCE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "tx.id": "job"}


def of_source(**given: str) -> str:
    config = parse_source(SOURCE | given, streaming=True)
    assert config.transactions is not None
    return config.transactions.store


def of_topology(**given: str) -> str:
    return parse_settings(given).store


@pytest.mark.parametrize("of", [of_source, of_topology])
def test_the_default_is_the_same_from_every_folder(tmp_path, monkeypatch, of):
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/states")
    found = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.add(of())

    assert found == {f"sqlite:///{tmp_path}/states/kafka_tx/kafka_tx.db"}
    assert url_or_file("") == default_store()


@pytest.mark.parametrize("of", [of_source, of_topology])
def test_a_relative_path_is_resolved_where_it_is_given(tmp_path, monkeypatch, of):
    monkeypatch.chdir(tmp_path)

    url = of(**{"tx.store": "sqlite:///jobs/state.db?timeout=3"})

    assert url == f"sqlite:///{tmp_path}/jobs/state.db?timeout=3"
    assert url_or_file("sqlite:///x.db") == f"sqlite:///{tmp_path}/x.db"
    assert store_url("sqlite:///x.db", "/jvm") == "sqlite:////jvm/x.db"


@pytest.mark.parametrize(
    "url",
    [
        "memory:x",
        "sqlite:////absolute/x.db",
        "sqlite:///file:x?uri=true",
        "sqlite:///:memory:",
        "postgresql+psycopg://host/jobs",
        "zookeeper://a:1,b:2/root",
    ],
)
def test_other_urls_stay_as_they_are(url):
    assert store_url(f" {url} ") == url


def test_without_a_place_for_states_it_is_below_the_home():
    assert default_store({"HOME": "/home/me"}) == (
        "sqlite:////home/me/.local/state/kafka_tx/kafka_tx.db"
    )
    with_odd_one = {"HOME": "/home/me", "XDG_STATE_HOME": "relative"}
    assert default_store(with_odd_one) == default_store({"HOME": "/home/me"})


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"HOME": "/root", "CONTAINER_ID": "1", "SPARK_YARN_STAGING_DIR": "hdfs://x"},
        {
            "HOME": "/opt/spark",
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.2",
        },
    ],
    ids=["no home", "yarn", "kubernetes"],
)
def test_where_the_next_start_would_not_find_it_the_default_is_refused(environment):
    with pytest.raises(ConfigError, match=r"'tx.store' is not set, .*Set tx.store"):
        default_store(environment)


def test_the_folder_of_the_default_is_made_for_its_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/states")

    store = assembly.open_store(default_store(), "job")
    store.acquire()
    store.close()

    folder = Path(f"{tmp_path}/states/kafka_tx")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "kafka_tx.db").exists()
