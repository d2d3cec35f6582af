"""When the cycle collector rests, and that it always comes back."""

from __future__ import annotations

import gc

import pytest

from kafka_tx.kafka.collector import collector_paused


@collector_paused()
def fail_if_it_rests() -> None:
    if not gc.isenabled():
        raise ValueError("it rests")


def test_the_collector_rests_and_comes_back_also_after_an_error() -> None:
    with pytest.raises(ValueError, match="it rests"):
        fail_if_it_rests()

    assert gc.isenabled()


def test_a_collector_that_a_user_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        is_enabled = gc.isenabled()
    finally:
        gc.enable()

    assert not is_enabled
