"""Who may store the offsets of an id."""

import json

import pytest

from kafka_tx.errors import FencedError
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
    with pytest.raises(FencedError, match="emptied or put back") as caught:
        check(Owners(), Claim(0, 1, 7))

    assert caught.value.fields["held"] == 7
    assert caught.value.fields["stored"] == 0


def test_they_come_back_from_json():
    owners, _ = Owners().claimed(1, 3)
    owners, _ = owners.claimed(2, 3)

    assert Owners.of(json.loads(json.dumps(owners.payload()))) == owners
