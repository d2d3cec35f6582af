"""What is kept of the last committed transactions."""

from dataclasses import replace

from kafka_tx.model import TopicPartition
from kafka_tx.transactions.layout.commit_stats import (
    LEAST_HISTORY,
    STATS,
    CommitStats,
    TableWrite,
    TaskSums,
    history_of,
    last_writes,
    newest_ms,
    stats_in,
    stats_record,
    with_task_sums,
)


def held(txid, *, skips=0, newest_ms=None):
    return CommitStats(
        txid=txid,
        epoch=2,
        committed_ms=1_000,
        attempts=3,
        skipped={(TopicPartition("t", n), "retention"): 5 for n in range(skips)},
        from_tasks=TaskSums(records=4, newest_ms=newest_ms),
    )


def kept(*each):
    texts: dict[str, str] = {}
    for one in each:
        texts |= stats_record(texts, one)
    return stats_in(texts)


def test_it_comes_back_as_it_was_and_unknown_stays_unknown():
    phases_ms = {"planning": 3, "processing": 40, "waiting": 0, "committing": 2}
    skipped = {(TopicPartition("t", 0), "cut"): 2}
    sums = TaskSums(skipped=skipped, phases_ms=phases_ms)
    other = CommitStats(txid=1, epoch=1, committed_ms=5, from_tasks=sums)

    assert kept(other, held(2, skips=2)) == (other, held(2, skips=2))
    assert kept(other)[0].from_tasks.records is None


def test_only_the_last_ones_are_kept():
    assert [each.txid for each in kept(*map(held, range(1, 40)))] == list(range(32, 40))


def test_people_may_want_more_of_them_and_zookeeper_keeps_few():
    texts: dict[str, str] = {}
    for txid in range(1, 40):
        texts |= stats_record(texts, held(txid), history_of("sqlite:///s.db", 20))
    assert [each.txid for each in stats_in(texts)] == list(range(20, 40))

    assert (
        history_of("zookeeper://z:2181/", 20)
        == LEAST_HISTORY
        == history_of("sqlite:///s.db", 0)
    )


def test_many_skips_leave_room_for_fewer():
    assert kept(held(1, skips=600), held(2, skips=600), held(3, skips=2_000)) == (
        held(2, skips=600),
        held(3, skips=2_000),
    )


def test_a_txid_that_is_given_again_replaces_what_came_after_it():
    assert kept(held(1), held(2), held(3), held(2)) == (held(1), held(2))


def test_a_record_that_cannot_be_read_is_as_good_as_none():
    assert stats_in({STATS: "?"}) == ()
    assert stats_in(stats_record({STATS: "?"}, held(1))) == (held(1),)


def test_what_plan_and_tasks_skipped_are_added_up():
    at = TopicPartition("t", 0), "retention"

    assert held(1, skips=2).all_skipped(TaskSums(skipped={at: 2})) == {
        at: 7,
        (TopicPartition("t", 1), "retention"): 5,
    }


def test_a_record_from_the_future_is_no_newer_than_its_commit():
    assert (
        newest_ms((held(1, newest_ms=900), held(2), held(3, newest_ms=5_000))) == 1_000
    )
    assert newest_ms((held(1),)) is None


def test_nothing_is_the_newest_where_nobody_told_what_the_last_one_held():
    last = replace(held(2), from_tasks=TaskSums())

    assert newest_ms((held(1, newest_ms=900), last)) is None


def written(txid, *tables):
    writes = tuple(
        TableWrite(txid=txid, table=name, sink="s", version=f"{txid}")
        for name in tables
    )
    return replace(held(txid), from_tasks=TaskSums(records=4, tables=writes))


def stored(*each):
    texts: dict[str, str] = {}
    for one in each:
        texts |= stats_record(texts, one)
    return texts


def test_the_last_write_of_each_table_is_kept_however_long_ago_it_was():
    texts = stored(written(1, "a", "b"), written(2, "b"), *map(held, range(3, 40)))

    assert [(one.table, one.txid) for one in last_writes(stats_in(texts))] == [
        ("a", 1),
        ("b", 2),
    ]
    assert len(stats_in(texts)) == 8

    again = texts | stats_record(texts, written(40, "a"))
    assert [(one.table, one.txid) for one in last_writes(stats_in(again))] == [
        ("a", 40),
        ("b", 2),
    ]


def test_a_write_comes_back_as_it_was():
    write = TableWrite(
        txid=1, table="t", sink="s", version="7", files=2, rows=9, seconds=0.5
    )
    one = replace(held(1), from_tasks=TaskSums(records=4, tables=(write,)))

    assert last_writes(kept(one)) == (write,)


def test_of_very_many_tables_the_last_ones_are_kept():
    texts = stored(*(written(n, f"t{n:03}") for n in range(1, 200)))

    assert [one.txid for one in last_writes(stats_in(texts))] == list(range(100, 200))


def test_what_tasks_reported_is_added_where_it_is_unknown_and_never_replaced():
    unknown = replace(held(2), from_tasks=TaskSums())
    texts = stats_record(stats_record({}, held(1), 10), unknown, 10)
    late = TaskSums(records=9)

    added = with_task_sums(texts, {(2, 1): late, (2, 2): late})

    assert [each.from_tasks for each in stats_in(added)] == [held(1).from_tasks, late]
    assert with_task_sums(added, {(2, 1): late, (2, 2): late}) == {}
