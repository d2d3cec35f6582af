"""Who waits until everything is processed that was there when they asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_tx.running.at_least_once.poller import Looks, SpoutPoller
from kafka_tx.running.waiters import Waiters


class IdleWaits:
    """Looks may be under way that began before the asker's records were there.

    So only an idleness counts that was seen by looks which begin after the question.

    Args:
        pollers: The spouts.
        want_looks: Have all of them look as soon as they can (any thread).
    """

    def __init__(
        self, pollers: Mapping[str, SpoutPoller], want_looks: Callable[[], None]
    ) -> None:
        self._pollers = pollers
        self._want_looks = want_looks
        self._idle_since: dict[str, Looks] = {}
        self.waiters = Waiters()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait (a user's thread); False when the time was over before."""
        return self.waiters.wait(self._ask, timeout_s)

    def _ask(self) -> Callable[[], bool]:
        wanted = {name: p.next_looks() for name, p in self._pollers.items()}
        self._want_looks()
        return lambda: all(
            name in self._idle_since and self._idle_since[name].include(looks)
            for name, looks in wanted.items()
        )

    def found(self, idle: Mapping[str, Looks]) -> None:
        """Spouts are idle, as of these looks (the topology's thread)."""
        if idle:
            with self.waiters.changing():
                self._idle_since |= idle
