"""Lines in logs: what they are of, and the form that machines read."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest

import kafka_tx
from kafka_tx.logs import about, event_log, same_events
from kafka_tx.model import TransactionAttempt

NAME = "kafka_tx.tests.logs"
ATTEMPT = TransactionAttempt(12, 3_000_000_000_001, source="orders")
logger = event_log(NAME)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """What is logged during a test."""
    handler = logging.Handler()
    found: list[logging.LogRecord] = []
    handler.emit = found.append  # type: ignore[assignment,method-assign]
    own = logging.getLogger(NAME)
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    yield found
    own.removeHandler(handler)


def fields(record: logging.LogRecord) -> tuple[object, ...]:
    return tuple(getattr(record, name) for name in ("id", "txid", "attempt"))


def test_a_line_tells_what_it_is_of(records):
    logger.info("%d of %s", 3, "4%", attempt=ATTEMPT)
    logger.info("99 % done", id="orders", txid=7)
    logger.info("99 % done")

    assert [each.getMessage() for each in records] == [
        "3 of 4% [id=orders txid=12 attempt=12:3000000000001]",
        "99 % done [id=orders txid=7]",
        "99 % done",
    ]
    assert [fields(each) for each in records] == [
        ("orders", 12, "12:3000000000001"),
        ("orders", 7, None),
        (None, None, None),
    ]


def test_a_line_names_the_module_that_wrote_it(records):
    logger.warning("here")

    assert (records[0].name, records[0].filename) == (NAME, "test_logs.py")
    assert records[0].funcName == "test_a_line_names_the_module_that_wrote_it"


def test_it_is_of_what_its_thread_does(records):
    with about(id="orders"):
        logger.info("inside", txid=1)
        for run in (
            lambda: logger.info("alone"),
            same_events(lambda: logger.info("x")),
        ):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        with about(id="others", attempt=None):
            logger.info("nearer")
    logger.info("outside")

    assert [fields(each)[:2] for each in records] == [
        ("orders", 1),
        (None, None),
        ("orders", None),
        ("others", None),
        (None, None),
    ]


def test_an_event_is_one_line(records):
    logger.info("lost: %s", RuntimeError("first\n\n  second\n"), id="orders")

    assert records[0].getMessage() == "lost: first | second [id=orders]"


def test_a_machine_reads_each_line(records):
    written = logging.Formatter()
    form = kafka_tx.JsonFormatter()
    error = ValueError("two\nlines")
    logger.error("failed", attempt=ATTEMPT, exc_info=error)
    logging.getLogger(NAME).info("of %s", "another logger")

    texts = [form.format(each) for each in records]
    assert not any("\n" in text for text in texts)
    ours, other = map(json.loads, texts)
    assert ours.pop("error").endswith("ValueError: two\nlines")
    assert ours.pop("time").endswith("+00:00")
    assert ours == {
        "level": "ERROR",
        "logger": NAME,
        "message": "failed [id=orders txid=12 attempt=12:3000000000001]",
        "id": "orders",
        "txid": 12,
        "attempt": "12:3000000000001",
    }
    assert {"time", "level", "logger", "message"} == set(other)
    assert written.format(records[1]) == "of another logger"


def test_nothing_is_made_of_a_level_that_is_off(records):
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("made into text")

    logger.debug("%s", Costly())

    assert not records


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("bad\x1b[2J\x07\x00", "bad\\x1b[2J\\x07\\x00"),
        ("a\r\nFORGED\u2028b\x85c", "a | FORGED | b | c"),
        ("\x9b31m \u202eevil\ud800", "\\x9b31m \\u202eevil\\ud800"),
        ("Köln, 5 € → ok", "Köln, 5 € → ok"),
    ],
)
def test_a_record_writes_neither_lines_nor_escapes_into_the_log(records, given, line):
    logger.warning("it failed: %s", ValueError(given))

    (record,) = records
    assert record.getMessage() == f"it failed: {line}"
