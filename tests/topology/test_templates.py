import pickle
import threading
from typing import Any

import pytest
from pyspark import cloudpickle

from kafka_tx.errors import ConfigError
from kafka_tx.topology.declare.bolts import BatchBolt
from kafka_tx.topology.declare.templates import template_of


class Counting(BatchBolt):
    def __init__(self, start=0):
        self.count = start
        self.seen = []

    def execute(self, row):
        self.seen.append(row)


def starts_at_seven():
    return Counting(7)


def makes_a_number():
    return 7


@pytest.mark.parametrize(
    ("given", "count"), [(Counting, 0), (starts_at_seven, 7), (Counting(3), 3)]
)
def test_every_instance_is_a_new_one(given, count):
    template = template_of("count", given, pickle.dumps)

    first, second = template.new(), template.new()
    assert isinstance(first, Counting)
    assert isinstance(second, Counting)
    first.execute(1)

    assert (first.count, second.count) == (count, count)
    assert (first.seen, second.seen) == ([1], [])


def test_a_given_bolt_stays_as_it_was_at_build():
    bolt = Counting(3)
    template = template_of("count", bolt, pickle.dumps)

    bolt.count = 99

    copy = template.new()
    assert isinstance(copy, Counting)
    assert copy.count == 3


@pytest.mark.parametrize("given", [Counting, starts_at_seven, Counting(3)])
def test_a_template_makes_bolts_after_travelling(given):
    template = pickle.loads(pickle.dumps(template_of("count", given, pickle.dumps)))

    assert isinstance(template.new(), Counting)
    assert template.new() is not template.new()


def test_where_it_was_built_the_users_own_function_is_called():
    made = []

    def make():
        made.append(Counting())
        return made[-1]

    template = template_of("count", make, cloudpickle.dumps)

    assert template.new() is made[-1]


def test_local_classes_travel_with_a_pickler_that_can():
    class Local(BatchBolt):
        def finish_batch(self):
            return "mine"

    template = template_of("local", Local, cloudpickle.dumps)

    assert pickle.loads(pickle.dumps(template)).new().finish_batch() == "mine"


def test_what_cannot_be_pickled_is_refused_with_the_components_name():
    class Holding(BatchBolt):
        def __init__(self):
            self.lock = threading.Lock()

    with pytest.raises(ConfigError, match="component 'sum' cannot be sent") as refused:
        template_of("sum", Holding(), cloudpickle.dumps)

    assert "Open connections, files and locks in 'prepare'" in str(refused.value)


def test_what_cannot_be_copied_is_refused_too():
    class Holding(BatchBolt):
        def __init__(self):
            self.module = pickle

    with pytest.raises(ConfigError, match="component 'sum' cannot be sent") as refused:
        template_of("sum", Holding(), cloudpickle.dumps)

    assert "cannot be copied" in str(refused.value)


results: list = []


@pytest.mark.parametrize("as_instance", [True, False])
def test_bolts_of_the_driver_refer_to_what_the_user_sees(as_instance):
    """As in a script: the class is pickled by value, and has globals of its own."""
    script: dict[str, Any] = {
        "BatchBolt": BatchBolt,
        "results": results,
        "__name__": "__main__",
    }
    exec(
        "class Collecting(BatchBolt):\n"
        "    def finish_batch(self):\n"
        "        results.append('seen')\n",
        script,
    )
    kind = script["Collecting"]
    results.clear()

    template = template_of("sum", kind() if as_instance else kind, cloudpickle.dumps)
    for _ in range(2):
        bolt = template.new()
        assert isinstance(bolt, BatchBolt)
        bolt.finish_batch()

    assert results == ["seen", "seen"]


@pytest.mark.parametrize("given", [makes_a_number, 7, "bolt"])
def test_what_makes_no_bolt_is_refused(given):
    template = template_of("sum", given, pickle.dumps)

    with pytest.raises(ConfigError, match="is no bolt; legal: a bolt class"):
        template.new()
