from __future__ import annotations

from collections import Counter

from kafka_tx.cli.demo_job import compare

PRODUCED = Counter(spark=5, kafka=3)


def test_equal_counts_are_exact():
    found = compare(PRODUCED, Counter(PRODUCED))

    assert found.is_exact
    assert (found.produced, found.counted) == (8, 8)


def test_a_word_too_few_is_lost():
    found = compare(PRODUCED, {"spark": 5, "kafka": 1})

    assert (found.lost, found.duplicated, found.is_exact) == (2, 0, False)


def test_a_word_too_many_is_duplicated():
    found = compare(PRODUCED, {"spark": 5, "kafka": 3, "ghost": 4})

    assert (found.lost, found.duplicated, found.is_exact) == (0, 4, False)


def test_one_lost_and_one_doubled_do_not_make_up_for_each_other():
    found = compare(PRODUCED, {"spark": 6, "kafka": 2})

    assert found.produced == found.counted
    assert (found.lost, found.duplicated, found.is_exact) == (1, 1, False)
