"""Sessions whose writes Iceberg takes aside; with stand-ins for session and table."""

from types import SimpleNamespace

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.spark.sinks.iceberg import IcebergAppend


class Append(IcebergAppend):
    what = "table lake.db.t (sink 'default')"

    def __init__(self, **conf):
        self._spark = SimpleNamespace(conf=conf)


@pytest.mark.parametrize("word", ["true", "True", "TRUE"])
@pytest.mark.parametrize("option", ["spark.wap.id", "spark.wap.branch"])
def test_a_session_that_stages_its_writes_is_refused_as_iceberg_reads_it(word, option):
    properties = {"write.wap.enabled": word}
    with pytest.raises(ConfigError, match=f"{option}=mine: Iceberg would keep"):
        Append(**{option: "mine"})._check_main(properties)

    Append()._check_main(properties)


@pytest.mark.parametrize("properties", [{}, {"write.wap.enabled": "false"}])
def test_without_staging_a_session_may_have_the_settings(properties):
    Append(**{"spark.wap.id": "mine"})._check_main(properties)
