"""Finds out which topics were deleted, and which are only hidden."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from kafka_tx.offsets.discovery import is_another
from kafka_tx.protocols import Clock, ClusterView

CONFIRMED_AFTER_MS = 60_000
"""How long brokers must report a topic as deleted before its positions are dropped.

Also the interval between two such requests.
"""

_WITNESSES = 10


class DeletedTopics:
    """Asks brokers by name for topics that a subscription no longer finds.

    A hidden topic (the user lacks permission) is not deleted, nor is one without an
    answer. A topic with another id was created anew: the old one is deleted. Methods
    raise as ``ClusterView.topic_ids``.
    """

    def __init__(self, cluster: ClusterView, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._since_ms: dict[str, int] = {}
        self._next_ms = 0

    def now(self, ids: Mapping[str, str | None]) -> set[str]:
        """The topics among ``ids`` that do not exist now under their ids."""
        return _gone(ids, self._cluster.topic_ids(ids)) if ids else set()

    def for_good(
        self, missing: Mapping[str, str | None], found: Mapping[str, str | None]
    ) -> set[str]:
        """The missing topics that were deleted ``CONFIRMED_AFTER_MS`` ago, or earlier.

        Empty while the same brokers do not know one of the found topics under its id:
        they may belong to another cluster, or may not have loaded their topics yet. All
        topics come with their ids, and have positions.
        """
        now_ms = self._clock.monotonic_ms()
        self._since_ms = {t: at for t, at in self._since_ms.items() if t in missing}
        if missing and now_ms >= self._next_ms:
            self._poll(missing, found, now_ms)
        return {
            t for t, at in self._since_ms.items() if now_ms - at >= CONFIRMED_AFTER_MS
        }

    def _poll(
        self,
        missing: Mapping[str, str | None],
        found: Mapping[str, str | None],
        now_ms: int,
    ) -> None:
        known = ((topic, id_) for topic, id_ in found.items() if id_ is not None)
        witnesses = dict(islice(known, _WITNESSES))
        ids = self._cluster.topic_ids([*missing, *witnesses])
        is_same_cluster = any(ids.get(t) == id_ for t, id_ in witnesses.items())
        gone = _gone(missing, ids) if is_same_cluster else set()
        self._since_ms = {t: self._since_ms.get(t, now_ms) for t in gone}
        self._next_ms = now_ms + CONFIRMED_AFTER_MS


def _gone(ids: Mapping[str, str | None], ids_now: Mapping[str, str | None]) -> set[str]:
    return {
        topic
        for topic, id_ in ids.items()
        if topic in ids_now
        and (ids_now[topic] is None or is_another(id_, ids_now[topic]))
    }
