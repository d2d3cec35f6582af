"""Texts of records that a client would cut or cannot write."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.out_record import checked_headers, checked_topic


def test_headers_of_an_iterator_are_read_once():
    given = iter([("a", b"1"), ("b", None)])

    assert checked_headers(given) == (("a", b"1"), ("b", None))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a\ud83d", b"a", 7])
def test_names_that_are_no_text_of_utf_8_are_refused(name):
    with pytest.raises(ConfigError, match="'headers' is"):
        checked_headers([(name, b"1")])
    with pytest.raises(ConfigError, match="'topic' is"):
        checked_topic(name)
