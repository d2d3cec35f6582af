"""What Python prints of an error that leaves for Spark."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import PySparkException

from kafka_tx.errors import ConfigError, FencedError, KafkaTxError
from kafka_tx.errors_first import raises_own_error_first


@raises_own_error_first("plain", "caused", "steps", "theirs", "of_a_task")
class Door:
    """Raises in all the ways that there are."""

    def plain(self) -> None:
        raise FencedError("another one owns it", id="orders")

    def caused(self) -> None:
        try:
            _ = dict[str, str]()["key"]
        except KeyError as error:
            raise ConfigError.illegal("topic", "", "a name") from error

    def steps(self):
        yield 1
        raise FencedError("another one owns it", id="orders")

    def theirs(self) -> None:
        raise ValueError("the user's own")

    def of_a_task(self) -> None:
        lines = ["thrown from a worker:", str(FencedError("gone")), "", "Traceback"]
        lines[1] = f"kafka_tx.errors.FencedError: {lines[1]}"
        raise PySparkException("\n".join(lines)) from None


@pytest.mark.parametrize("name", ["plain", "caused", "steps"])
def test_the_first_line_and_the_last_one_are_the_error(name):
    with pytest.raises(KafkaTxError) as raised:
        list(getattr(Door(), name)() or ())

    lines = "".join(traceback.format_exception(raised.value)).strip().splitlines()
    assert lines[0] == lines[-1]
    assert str(raised.value) in lines[0]
    assert "Traceback" in "".join(lines)


@pytest.mark.parametrize("name", ["plain", "caused", "steps"])
def test_a_worker_of_spark_that_shortens_tracebacks_shows_it_first_too(name):
    with pytest.raises(KafkaTxError) as raised:
        list(getattr(Door(), name)() or ())
    error = raised.value
    error.__cause__ = None  # as pyspark.util.handle_worker_exception

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))

    assert str(error) in text.splitlines()[0]


def test_an_error_that_passes_two_doors_is_told_once():
    @raises_own_error_first("call")
    class Outer:
        def call(self) -> None:
            Door().plain()

    with pytest.raises(FencedError) as raised:
        Outer().call()

    text = "".join(traceback.format_exception(raised.value))
    assert text.count("[KAFKA_TX_FENCED]") == 2


def test_an_error_of_a_task_is_shown_before_the_one_that_spark_makes_of_it():
    with pytest.raises(PySparkException) as raised:
        Door().of_a_task()

    first, *_ = traceback.format_exception(raised.value)
    assert first == "kafka_tx.errors.KafkaTxError: [KAFKA_TX_FENCED] gone\n"


def test_errors_of_users_stay_as_they_are():
    with pytest.raises(ValueError, match="the user's own") as raised:
        Door().theirs()

    assert "".join(traceback.format_exception(raised.value)).startswith("Traceback")
