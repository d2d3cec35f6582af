"""Typed columns of the source, as Spark's processes make and read them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from kafka_tx.errors import ReplayDiffersError
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.schemas.defaults import number
from kafka_tx.source.questions import Answer, Question
from kafka_tx.spark.queries.foreach import _ForEach, _Tries
from kafka_tx.spark.source.data_source import KafkaTxDataSource
from kafka_tx.spark.source.stream import KafkaTxStreamReader
from kafka_tx.spark.versions.streams import ReadAllAvailable
from tests.schemas.told import Told
from tests.told_registry import told as told

OLD: Any = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
NEW: Any = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "b", "type": "string", "default": "none"}],
}
OTHER: Any = {**OLD, "fields": [{"name": "a", "type": "string", "default": ""}]}

WITHOUT: Any = {
    **OLD,
    "fields": [{"name": "c", "type": ["null", "int"], "default": None}],
}


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


@pytest.fixture
def name(topic, told: Told) -> str:
    """A topic with two records of the older schema, which is the latest one."""
    made: str = topic(framed(1, number(7)), framed(1, number(8)))
    told.schema(1, json.dumps(OLD))
    told.schema(2, json.dumps(NEW))
    told.version(f"{made}-value", "latest", 1, json.dumps(OLD))
    return made


@pytest.fixture
def options(cluster, told: Told, name: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": name,
        "startingoffsets": "earliest",
        "value.format": "avro",
        "schema.registry.url": told.url,
    }


def loaded(options: dict[str, str]) -> tuple[KafkaTxDataSource, Any]:
    """The source as it travels from where Spark has made it; and its columns."""
    made = KafkaTxDataSource(options)
    schema = made.schema()
    return pickle.loads(pickle.dumps(made)), schema


def test_a_batch_has_the_types_that_spark_was_told(options) -> None:
    source, schema = loaded(options)
    reader = pickle.loads(pickle.dumps(source.reader(schema)))

    batches = [b for part in reader.partitions() for b in reader.read(part)]

    assert batches[0].schema == to_arrow_schema(schema, timezone="UTC")
    rows = [row["value"] for batch in batches for row in batch.to_pylist()]
    assert rows == [{"a": 7}, {"a": 8}]


def test_the_schema_is_that_of_load(options, told: Told, name: str) -> None:
    """Whatever is registered before a task begins."""
    source, schema = loaded(options)
    told.version(f"{name}-value", "latest", 2, json.dumps(NEW))

    reader = source.reader(schema)

    (batch,) = [b for part in reader.partitions() for b in reader.read(part)]
    assert batch.column("value").to_pylist() == [{"a": 7}, {"a": 8}]
    assert told.paths().count(f"/subjects/{name}-value/versions/latest") == 1


def test_columns_that_the_user_gives_leave_the_schema_to_the_reader(options) -> None:
    """``schema()`` is not asked for then."""
    _, schema = loaded(options)

    reader = KafkaTxDataSource(options).reader(schema)

    (batch,) = [b for part in reader.partitions() for b in reader.read(part)]
    assert batch.column("value").to_pylist() == [{"a": 7}, {"a": 8}]


def test_tasks_get_no_settings_of_the_registry_with_their_partitions(options) -> None:
    source, schema = loaded(
        options | {"schema.registry.basic.auth.user.info": "me:hunter2"}
    )
    reader = source.reader(schema)

    assert b"hunter2" not in pickle.dumps(reader.partitions())
    assert "hunter2" not in repr(reader.__dict__)


class Query:
    """The planner and the tasks of one run of a query with ``tx.id``."""

    def __init__(self, options: dict[str, str]) -> None:
        source, self.schema = loaded(options)
        self.reader = KafkaTxStreamReader(source._all_options())

    def plan(self, start: Any = None) -> Any:
        begin = start or self.reader.initialOffset()
        end = self.reader.latestOffset(begin, ReadAllAvailable())
        return begin, end

    def rows(self, begin: Any, end: Any) -> list[Any]:
        found = []
        for part in self.reader.partitions(begin, end):
            for batch in self.reader.read(pickle.loads(pickle.dumps(part))):
                assert batch.schema == to_arrow_schema(self.schema, timezone="UTC")
                found += batch.column("value").to_pylist()
        return found


@pytest.fixture
def query(options, name: str, tmp_path):
    """Make runs of a query, each with the options of its start."""
    made: list[Query] = []

    def make(**more: str) -> Query:
        given = {"tx.id": name, "tx.store": f"sqlite:///{tmp_path}/store.db"}
        made.append(Query({**options, **given, **more}))
        return made[-1]

    yield make
    for each in made:
        each.reader.stop()


def test_a_replay_is_decoded_with_the_schema_of_its_plan(
    query, told: Told, name: str
) -> None:
    begin, end = query().plan()
    told.version(f"{name}-value", "latest", 2, json.dumps(NEW))

    found = query().rows(begin, end)

    assert end["_kafka_tx"]["schemas"] == {"value": "1"}
    assert found == [{"a": 7, "b": None}, {"a": 8, "b": None}]


def test_a_batch_with_a_field_dropped_ends_under_the_newer_schema(
    query, told: Told, name: str, cluster
) -> None:
    told.schema(4, json.dumps(WITHOUT))
    cluster.produce(name, framed(4, b"\2\x0a"))
    cluster.flush()
    first = query()
    begin, end = first.plan()
    with pytest.raises(Exception, match=r"start again with it, such as value\.schema="):
        first.rows(begin, end)
    told.version(f"{name}-value", "latest", 4, json.dumps(WITHOUT))

    found = query().rows(begin, end)

    assert found == [{"c": None}, {"c": None}, {"c": 5}]


def test_the_store_alone_tells_the_schema_of_a_plan(
    query, told: Told, name: str
) -> None:
    """The checkpoint was deleted before Spark had logged the plan, or after."""
    query().plan()
    told.version(f"{name}-value", "latest", 2, json.dumps(NEW))
    later = query()

    begin, end = later.plan()

    assert later.rows(begin, end) == [{"a": 7, "b": None}, {"a": 8, "b": None}]


def test_the_next_batch_has_the_newer_schema(
    query, told: Told, name: str, cluster
) -> None:
    begin, end = query().plan()
    told.version(f"{name}-value", "latest", 2, json.dumps(NEW))
    later = query()
    later.rows(begin, end)
    cluster.produce(name, framed(2, number(9) + b"\2x"))
    cluster.flush()

    later.reader.commit(end)

    assert later.rows(*later.plan(end)) == [{"a": 9, "b": "x"}]


def test_columns_that_cannot_hold_the_plans_are_refused_and_the_text_helps(
    query, told: Told, name: str
) -> None:
    begin, end = query().plan()
    told.version(f"{name}-value", "latest", 3, json.dumps(OTHER))

    with pytest.raises(
        Exception, match="planned with schema 1 for 'value', .* schema 3"
    ):
        query().rows(begin, end)

    once = query(**{"value.schema": "id:1"})
    assert once.rows(begin, end) == [{"a": 7}, {"a": 8}]


def test_a_plan_under_another_text_is_refused(query, told: Told) -> None:
    begin, end = query(**{"value.schema": json.dumps(OLD)}).plan()

    with pytest.raises(Exception, match="the former text in 'value.schema'"):
        query(**{"value.schema": json.dumps(NEW)}).rows(begin, end)


def test_a_sink_that_refuses_a_replay_names_both_schemas_and_the_way_out(
    query, told: Told, name: str
) -> None:
    begin, end = query().plan()
    told.version(f"{name}-value", "latest", 2, json.dumps(NEW))
    later = query()
    later.rows(begin, end)
    asked = Question("query", 0, None, SourceOffset.from_json(end))
    answer = Answer.from_json(later.reader._planner().number(asked).to_json())

    def refuse(df: Any, attempt: Any) -> None:
        raise ReplayDiffersError("other rows.", txid=attempt.txid)

    made = _ForEach(refuse, name)
    made._beside = _Tries(lambda batch: answer, name)
    with pytest.raises(ReplayDiffersError) as raised:
        made(None, 0)

    text = str(raised.value)
    assert "schema 1 for 'value', and this start reads with schema 2" in text
    assert "Start once with value.schema=id:1" in text
    assert query(**{"value.schema": "id:1"}).rows(begin, end) == [{"a": 7}, {"a": 8}]
