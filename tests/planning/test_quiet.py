import pytest

from kafka_tx.model import LogBounds, TopicPartition, Unavailable
from kafka_tx.planning.log_bounds import LogPoller
from kafka_tx.testing import ManualClock, MemoryLog

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
WITHIN = LogBounds(2, 7)


class Cluster(MemoryLog):
    """Notes of which partitions ends, and of which all is asked."""

    def __init__(self, **logs):
        super().__init__({"t": 3})
        self.logs = {TopicPartition("t", int(n[1:])): at for n, at in logs.items()}
        self.only_ends, self.whole = [], []

    def ends(self, partitions):
        self.only_ends += partitions
        return {
            p: (at.end, at.leader_epoch)
            for p in partitions
            if isinstance(at := self.logs[p], LogBounds)
        }

    def bounds(self, partitions):
        self.whole += partitions
        return {p: self.logs[p] for p in partitions}


def poll(cluster, partitions, quiet):
    return LogPoller(cluster, ManualClock()).poll(partitions, quiet)


def test_of_quiet_logs_only_the_end_is_asked():
    cluster = Cluster(p0=LogBounds(5, 7), p1=WITHIN)

    seen = poll(cluster, [P0, P1], {P0: WITHIN})

    assert (cluster.only_ends, cluster.whole) == ([P0], [P1])
    assert seen == {P0: WITHIN, P1: WITHIN}, "the start is as it was"


def test_what_changed_or_cannot_be_had_is_asked_in_full():
    away = Unavailable("away")
    logs = {"p0": LogBounds(5, 8), "p1": away, "p2": LogBounds(0, 3)}
    cluster = Cluster(**logs)

    seen = poll(cluster, [P0, P1, P2], dict.fromkeys([P0, P1, P2], WITHIN))

    assert cluster.whole == [P0, P1, P2]
    assert seen == {P0: LogBounds(5, 8), P1: away, P2: LogBounds(0, 3)}


def test_a_log_of_another_leader_is_asked_in_full_though_it_ends_where_it_did():
    """Other records may have the offsets of lost ones."""
    cluster = Cluster(p0=LogBounds(2, 7, "id", 1))

    seen = poll(cluster, [P0], {P0: LogBounds(2, 7, "id", 0)})

    assert cluster.whole == [P0]
    assert seen == {P0: LogBounds(2, 7, "id", 1)}


def test_what_is_quiet_but_not_wanted_is_not_asked():
    cluster = Cluster(p0=WITHIN)

    assert poll(cluster, [P0], {P0: WITHIN, P1: WITHIN}) == {P0: WITHIN}
    assert (cluster.only_ends, cluster.whole) == ([P0], [])


def test_nothing_is_asked_of_nothing():
    assert poll(Cluster(), [], {P0: WITHIN}) == {}


@pytest.mark.parametrize(
    ("now", "is_still"),
    [
        (WITHIN, True),
        (LogBounds(2, 8), False),
        (LogBounds(2, 7, None, 1), False),
        (Unavailable("away"), False),
    ],
    ids=["same", "grown", "of another leader", "away"],
)
def test_logs_are_still_while_ends_and_leaders_are_those_of_before(now, is_still):
    cluster = Cluster(p0=WITHIN, p1=WITHIN)
    poller, quiet = LogPoller(cluster, ManualClock()), {P0: WITHIN, P1: WITHIN}
    assert poller.are_still([P0, P1], quiet)

    cluster.logs[P1] = now

    assert [poller.are_still([P0, P1], quiet) for _ in range(2)] == [is_still] * 2
    assert cluster.whole == []
