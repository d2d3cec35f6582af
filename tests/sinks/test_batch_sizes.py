"""How large batches for a topic are, and what becomes of refused records."""

import pytest

from kafka_tx.sinks.batch_sizes import DEFAULT, BatchSize, SentRecord

OK = {"is_refused": False}


@pytest.mark.parametrize(
    ("given", "is_compressed", "limit", "expected"),
    [
        (None, False, None, DEFAULT),
        (None, False, 100_000, 100_000),
        (None, False, 5_000_000, DEFAULT),
        (None, True, 100_000, 100_000),
        (50_000, False, 100_000, 50_000),
        (5_000_000, False, 2_000_000, 2_000_000),
        (5_000_000, True, 2_000_000, 5_000_000),
        (None, False, 0, 1),
    ],
)
def test_it_follows_the_limit_but_not_beyond_what_was_given(
    given, is_compressed, limit, expected
):
    size = BatchSize(given, is_compressed=is_compressed)

    size.set_limit(limit)

    assert size.size == expected


def test_a_refusal_halves_it_and_another_limit_makes_it_forget():
    size = BatchSize()
    records = [SentRecord(0, 300_000), SentRecord(0, 300_000), SentRecord(0, 300_000)]

    verdict = size.settle(records, DEFAULT)

    assert (verdict.alone, verdict.again) == ((), (0, 1, 2))
    assert verdict.size == size.size == (3 * 300_036 + 61) // 2
    size.set_limit(None)
    assert size.size == verdict.size
    size.set_limit(DEFAULT)
    assert size.size == DEFAULT


def test_a_late_refusal_of_larger_batches_does_not_halve_it_again():
    size = BatchSize()
    first = size.settle([SentRecord(0, 400_000)] * 2, 900_000).size

    late = size.settle([SentRecord(0, 300_000)] * 3, DEFAULT)

    assert late.size == size.size == first < 450_000


def test_a_record_that_is_refused_alone_fails_and_changes_nothing():
    size = BatchSize()
    records = [
        SentRecord(0, 10, **OK),
        SentRecord(0, 90),
        SentRecord(1, DEFAULT),
        SentRecord(1, 2 * DEFAULT),
    ]

    verdict = size.settle(records, DEFAULT)

    assert (verdict.alone, verdict.again) == ((1, 2, 3), ())
    assert size.size == DEFAULT


def test_two_that_cannot_have_shared_a_batch_were_both_alone():
    records = [SentRecord(0, 500_000), SentRecord(0, 500_000), SentRecord(0, 40)]

    verdict = BatchSize().settle(records, 500_000)

    assert verdict.alone == (0, 1, 2)


def test_what_was_delivered_behind_refused_records_is_sent_again_behind_them():
    records = [
        *(
            SentRecord(0, 10, **OK),
            SentRecord(0, 10),
            SentRecord(1, 10, **OK),
            SentRecord(0, 10),
        ),
        *(SentRecord(0, 10, **OK), SentRecord(1, 10, **OK)),
    ]

    assert BatchSize().settle(records, DEFAULT).again == (1, 3, 4)


def test_what_is_wrong_with_one_record_makes_later_batches_no_smaller():
    size = BatchSize()

    verdict = size.settle(
        [SentRecord(0, 10), SentRecord(0, 10)], DEFAULT, remembers=False
    )

    assert verdict.size == (2 * 46 + 61) // 2
    assert size.size == DEFAULT


def test_headers_have_lengths_too():
    assert SentRecord(0, 10, headers=3).at_most == 10 + 36 + 30
