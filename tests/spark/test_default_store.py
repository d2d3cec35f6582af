"""Drivers on a cluster's node name their store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.spark.default_store import refuse_default_store


def session(**config: str) -> Any:
    given = {name.replace("__", "."): value for name, value in config.items()}
    context = SimpleNamespace(getConf=lambda: given)
    return SimpleNamespace(_jsparkSession=object(), sparkContext=context)


ON_NODES = [
    session(spark__submit__deployMode="cluster"),
    session(spark__kubernetes__submitInDriver="true"),
]


@pytest.mark.parametrize("spark", ON_NODES)
@pytest.mark.parametrize("options", [None, {}, {"tx.id": "job"}])
def test_a_driver_on_a_node_refuses_the_default(spark, options):
    with pytest.raises(ConfigError, match="runs on a node of a cluster"):
        refuse_default_store(spark, options)


def test_others_and_those_that_name_a_store_go_on():
    refuse_default_store(session(spark__submit__deployMode="client"), {})
    refuse_default_store(SimpleNamespace(), {})  # Spark Connect: its server decides
    for spark in ON_NODES:
        refuse_default_store(spark, {"tx.store": "memory:"})
        refuse_default_store(spark, {"transactional.zookeeper.servers": ["a"]})
