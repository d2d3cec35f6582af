"""Who may store the offsets of an id."""

import json

import pytest

from kafka_tx.errors import FencedError, StateLostError
from kafka_tx.offsets.owners import Claim, Owners


def check(owners, claim):
    owners.check(claim, store="memory:", id="orders")


def test_the_newest_owner_passes_and_the_former_does_not():
    owners, former = Owners().claimed(0, 1)
    check(owners, former)

    owners, newest = owners.claimed(0, 1)

    check(owners, newest)
    with pytest.raises(FencedError, match="another owner took over"):
        check(owners, former)


def test_epochs_rise_also_when_the_number_of_tasks_changes():
    owners, first = Owners().claimed(0, 1)
    owners, second = owners.claimed(1, 3)
    owners, third = owners.claimed(0, 1)

    assert (first.epoch, second.epoch, third.epoch) == (1, 2, 3)
    check(owners, third)
    for claim in (first, second):
        with pytest.raises(FencedError):
            check(owners, claim)


def test_tasks_do_not_fence_each_other():
    owners, left = Owners().claimed(0, 2)
    owners, right = owners.claimed(1, 2)

    check(owners, left)
    check(owners, right)


def test_an_emptied_store_is_told_from_another_owner():
    with pytest.raises(StateLostError, match="was emptied"):
        check(Owners(), Claim(0, 1, 7, ("a",)))


def test_an_owner_finds_the_word_of_its_last_write_or_of_one_that_may_have_landed():
    before, claim = Owners().claimed(0, 1)
    claim.words += ("second",)
    after = before.wrote(claim)

    check(before, claim)
    check(after, claim)
    claim.words = ("second",)
    check(after, claim)
    with pytest.raises(StateLostError, match="went back"):
        check(before, claim)


def test_an_owner_of_the_same_epoch_in_a_store_that_went_back_is_another_one():
    _, ours = Owners().claimed(0, 1)
    theirs, _ = Owners().claimed(0, 1)

    with pytest.raises(StateLostError):
        check(theirs, ours)


def test_they_come_back_from_json():
    owners, _ = Owners().claimed(1, 3)
    owners, _ = owners.claimed(2, 3)

    assert Owners.of(json.loads(json.dumps(owners.payload()))) == owners
