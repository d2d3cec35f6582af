from typing import Any

import pytest

from kafka_tx.topology.declare.bolts import (
    BasicBolt,
    BatchBolt,
    Committer,
    DataFrameBolt,
    RichBolt,
    does_something,
    reads_arrow,
)


class Rows(BasicBolt):
    def execute(self, row, collector):
        pass


class Arrow(BatchBolt):
    def execute_arrow(self, batch):
        pass


class ArrowGrandchild(Arrow):
    pass


class Idle(BatchBolt):
    def finish_batch(self):
        pass


class Rich(RichBolt):
    def execute(self, row):
        pass


class Upper(DataFrameBolt):
    fields = "word string"

    def transform(self, *frames):
        return frames[0]


@pytest.mark.parametrize("bolt", [Rows(), Arrow(), ArrowGrandchild(), Rich(), Upper()])
def test_a_bolt_that_overrides_a_method_does_something(bolt):
    assert does_something(bolt)


@pytest.mark.parametrize("bolt", [Idle(), BasicBolt(), RichBolt(), DataFrameBolt()])
def test_a_bolt_that_is_given_no_rows_does_nothing(bolt):
    assert not does_something(bolt)


def test_a_bolt_that_overrides_execute_arrow_never_sees_rows():
    assert reads_arrow(Arrow())
    assert reads_arrow(ArrowGrandchild())
    assert not reads_arrow(Rows())


def test_a_committer_is_marked_by_attribute_or_by_class():
    class ByAttribute(BatchBolt):
        committer = True

    class ByClass(Committer, BatchBolt):
        pass

    assert ByAttribute().committer
    assert ByClass().committer
    assert not BatchBolt().committer


def test_a_dataframe_bolt_calls_its_function_with_all_frames():
    bolt = DataFrameBolt(lambda left, right: [left, right], fields="a int")

    assert bolt.transform("l", "r") == ["l", "r"]
    assert bolt.fields == "a int"


def test_what_a_bolt_must_override_is_not_there_otherwise():
    nothing: Any = None
    for call in (
        lambda: BasicBolt().execute(nothing, nothing),
        lambda: BasicBolt().execute_arrow(nothing, nothing),
        lambda: BatchBolt().execute(nothing),
        lambda: BatchBolt().execute_arrow(nothing),
        lambda: RichBolt().execute(nothing),
        lambda: DataFrameBolt().transform(),
    ):
        with pytest.raises(NotImplementedError):
            call()
