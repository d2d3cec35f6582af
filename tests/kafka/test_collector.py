"""When the cycle collector rests, and that it always comes back."""

from __future__ import annotations

import pytest

from kafka_tx.kafka import collector
from kafka_tx.kafka.collector import collector_paused


class Collector:
    """In place of Python's, which threads of other tests may pause, too."""

    def __init__(self) -> None:
        self._is_enabled = True

    def enable(self) -> None:
        self._is_enabled = True

    def disable(self) -> None:
        self._is_enabled = False

    def isenabled(self) -> bool:
        return self._is_enabled


@pytest.fixture
def gc(monkeypatch: pytest.MonkeyPatch) -> Collector:
    made = Collector()
    monkeypatch.setattr(collector, "gc", made)
    return made


def test_the_collector_rests_and_comes_back_also_after_an_error(gc: Collector) -> None:
    @collector_paused()
    def fail_if_it_rests() -> None:
        if not gc.isenabled():
            raise ValueError("it rests")

    with pytest.raises(ValueError, match="it rests"):
        fail_if_it_rests()

    assert gc.isenabled()


def test_a_collector_that_a_user_switched_off_stays_off(gc: Collector) -> None:
    gc.disable()

    with collector_paused():
        pass

    assert not gc.isenabled()
