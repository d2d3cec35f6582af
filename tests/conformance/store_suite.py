"""What every Store promises, as one suite; a subclass gives ``open_store``."""

import itertools
import pickle

import pytest

from integration.promptness import promptly
from kafka_tx.errors import ConfigError, FencedError, StateError, StateLostError
from kafka_tx.model import BatchMetadata, OffsetRange, TopicPartition
from kafka_tx.transactions.layout.commit_stats import CommitStats, TaskSums
from kafka_tx.transactions.layout.records import encode
from kafka_tx.transactions.layout.txid_layout import position
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership import guarded_writes
from kafka_tx.transactions.ownership.guarded_writes import take_over
from tests.conformance.owners_suite import OwnersSuite


def record(currtx: int) -> str:
    return encode("currtx", currtx)


class StoreSuite(OwnersSuite):
    """``open_store(id="orders")`` opens the same state each time it is called."""

    large = 3_000_000
    """Characters of one value that the store takes, as large as any that occurs."""
    paths = 5_000
    """How many of them one write takes."""
    many_paths_s = 5.0
    """Generous bound for such a write on a busy machine."""

    # --- one owner ---

    def test_an_id_that_was_never_used_is_empty(self, store):
        assert store.epoch() == 0
        assert store.read() == {}
        assert store.get("currtx") is None

    def test_every_owner_gets_the_next_epoch(self, open_store):
        assert [open_store().acquire() for _ in range(3)] == [1, 2, 3]
        assert open_store().epoch() == 3

    def test_what_was_written_is_there_for_everyone(self, open_store):
        store = open_store()

        store.write(store.acquire(), {"currtx": "1", "meta/1": "a"})

        assert open_store().read() == {"currtx": "1", "meta/1": "a"}
        assert open_store().get("meta/1") == "a"

    def test_a_write_sets_and_deletes(self, store):
        epoch = store.acquire()
        store.write(epoch, {"a": "1", "b": "1", "c/d": "1"})

        store.write(epoch, {"a": "2", "e/f/g": "2"}, ["b", "c/d"])

        assert store.read() == {"a": "2", "e/f/g": "2"}
        assert store.get("b") is None

    def test_deleting_what_is_missing_is_no_error(self, store):
        epoch = store.acquire()

        store.write(epoch, {}, ["never", "was/there"])
        store.write(epoch, {"a": "1"}, ["was/there"])

        assert store.read() == {"a": "1"}

    def test_a_path_that_is_put_and_deleted_is_put(self, store):
        epoch = store.acquire()
        store.write(epoch, {"a": "1"})

        store.write(epoch, {"a": "2", "b": "2"}, ["a", "b"])

        assert store.read() == {"a": "2", "b": "2"}

    def test_doing_a_write_twice_is_harmless(self, store):
        epoch = store.acquire()
        store.write(epoch, {"old": "1"})

        for _ in range(2):
            store.write(epoch, {"a": "1", "b/c": "2"}, ["old"])

        assert store.read() == {"a": "1", "b/c": "2"}

    def test_a_path_can_have_a_value_and_paths_below_it(self, store):
        epoch = store.acquire()

        store.write(epoch, {"a/b/c": "3"})
        store.write(epoch, {"a": "1", "a/b": "2"})
        assert store.read() == {"a": "1", "a/b": "2", "a/b/c": "3"}

        store.write(epoch, {}, ["a", "a/b"])
        assert store.read() == {"a/b/c": "3"}
        assert store.get("a/b") is None

        store.write(epoch, {"a/b": "4"}, ["a/b/c"])
        assert store.read() == {"a/b": "4"}

    def test_paths_come_in_order(self, store):
        written = ["b", "a/10", "a/9", "a", "B", "a-1", "a=1", "a.1", "a/9/x"]

        store.write(store.acquire(), dict.fromkeys(written, "1"))

        assert list(store.read()) == sorted(written)

    @pytest.mark.parametrize(
        ("prefix", "found"),
        [
            ("", ["META/1", "a-b", "a_b", "axb", "meta", "meta/1", "meta/10", "meta2"]),
            ("meta", ["meta", "meta/1", "meta/10", "meta2"]),
            ("meta/", ["meta/1", "meta/10"]),
            ("meta/1", ["meta/1", "meta/10"]),
            ("M", ["META/1"]),
            ("a_", ["a_b"]),
            ("nothing/here", []),
        ],
    )
    def test_a_prefix_is_plain_text(self, store, prefix, found):
        paths = ["META/1", "a-b", "a_b", "axb", "meta", "meta/1", "meta/10", "meta2"]
        store.write(store.acquire(), dict.fromkeys(paths, "1"))

        assert list(store.read(prefix)) == found

    def test_ids_do_not_see_each_other(self, open_store):
        one, two, third = open_store("orders"), open_store("Orders"), open_store("o")
        one.write(one.acquire(), {"a": "1"})
        two.write(two.acquire(), {"a": "2"})

        assert one.read() == {"a": "1"}
        assert two.read() == {"a": "2"}
        assert third.read() == {}
        assert (two.epoch(), third.epoch()) == (1, 0)

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "7",
            "0",
            "null",
            "äöü 😀",
            "a\nb\r\n\tc",
            '{"v":1}',
            "'; --",
            "x" * 99_999,
        ],
    )
    def test_any_text_comes_back_as_it_was(self, open_store, value):
        store = open_store()

        store.write(store.acquire(), {"a": value, "b/c": value})

        assert open_store().read() == {"a": value, "b/c": value}
        assert open_store().get("a") == value

    def test_large_values_come_and_go(self, open_store):
        store = open_store()
        epoch = store.acquire()
        large, other = "ä" * self.large, "b" * (self.large + 1)

        store.write(epoch, {"a": large, "a/b": "small"})
        assert open_store().get("a") == large
        assert open_store().read() == {"a": large, "a/b": "small"}

        store.write(epoch, {"a": other})
        assert open_store().read("a") == {"a": other, "a/b": "small"}

        store.write(epoch, {"a": "small again"})
        assert open_store().read() == {"a": "small again", "a/b": "small"}

        store.write(epoch, {"a/b": other})
        store.write(epoch, {}, ["a/b"])
        assert open_store().read() == {"a": "small again"}

    def test_thousands_of_paths_are_one_write(self, open_store):
        store = open_store()
        epoch = store.acquire()
        users = itertools.count()
        value = '{"offset":123456789,"nextOffset":123556789,"partition":4711}' * 3

        def write():
            user = f"user-{next(users)}/"
            written = {f"{user}orders-{n}/17": value for n in range(self.paths)}
            store.write(epoch, written)
            return user, written

        user, written = promptly(write, self.many_paths_s)

        assert open_store().read(user) == written
        store.write(epoch, {"currtx": "18"}, open_store().read())
        assert open_store().read() == {"currtx": "18"}

    def test_what_a_transaction_held_is_stored_with_its_commit(self, open_store):
        ledger = Ledger(open_store())
        epoch, at = ledger.acquire(), TopicPartition("orders", 0)
        skipped, read = (
            {(at, "retention"): 3},
            TaskSums(records=9, bytes=90, newest_ms=7),
        )
        batch = BatchMetadata(1, (OffsetRange(at, 3, 13),), skipped=skipped, attempts=2)
        ledger.plan(epoch, batch)
        assert Ledger(open_store()).load().commit_stats == ()

        ledger.commit(epoch, 1, 5, from_tasks=read)

        found = Ledger(open_store()).load()
        assert found.planned == {1: batch}
        assert found.commit_stats == (
            CommitStats(
                txid=1,
                epoch=epoch,
                committed_ms=5,
                attempts=2,
                skipped=skipped,
                from_tasks=read,
            ),
        )

    def test_a_ledger_of_five_thousand_partitions_moves_quickly(self, store):
        ledger = Ledger(store)
        epoch = ledger.acquire()
        partitions = [TopicPartition("orders", number) for number in range(5_000)]
        ranges = tuple(OffsetRange(p, 10**9, 10**9 + 500) for p in partitions)
        txids = itertools.count(1)

        def move():
            txid = next(txids)
            ledger.plan(epoch, BatchMetadata(txid, ranges, {"orders": "id"}))
            ledger.commit(epoch, txid, 0)

        promptly(move, 5)

        committed = ledger.load().committed
        assert committed is not None
        assert committed.offsets == dict.fromkeys(partitions, 10**9 + 500)

    def test_what_no_store_can_hold_is_refused_before_anything_is_written(self, store):
        epoch = store.acquire()

        for put, delete in [
            ({"good": "1", "b ad": "1"}, []),
            ({"good": "1", "nul": "\x00"}, []),
            ({"good": "1"}, ["/bad"]),
        ]:
            with pytest.raises(ConfigError):
                store.write(epoch, put, delete)
        with pytest.raises(ConfigError):
            store.get("../other")

        assert store.read() == {}

    # --- what an owner left ---

    def test_what_follows_is_written_also_when_its_answer_was_lost(self, store):
        epoch = take_over(store)
        before = position(store.read())

        for _ in range(2):
            guarded_writes.write(
                store, epoch, {"currtx": record(2)}, ["meta/1"], before
            )

        assert store.get("currtx") == record(2)

    @pytest.mark.parametrize(
        ("found", "told"),
        [
            ({"currtx": record(2)}, "was left at txid 2 and is at txid 1 now"),
            (
                {"owner": "somebody else's under the same epoch"},
                "was left at txid 2 and is at txid 2, of another owner now",
            ),
            (
                {"meta/3": "of other records"},
                "was left at txid 2 and is at txid 2, with other planned batches now",
            ),
        ],
    )
    def test_nothing_is_written_where_the_owner_did_not_leave_it(
        self, store, found, told
    ):
        epoch = take_over(store)
        store.write(epoch, {"currtx": record(3), "meta/2": "b", "meta/3": "c"})
        left = position(store.read())
        store.write(epoch, found)
        before = store.read()

        for put in ({"meta/4": "d"}, {}):
            with pytest.raises(StateLostError, match=told):
                guarded_writes.write(store, epoch, put, ["meta/2"] if put else [], left)

        assert store.read() == before

    def test_an_epoch_that_went_back_is_told_from_an_owner_that_came(self, open_store):
        store = open_store()
        open_store().acquire()

        with pytest.raises(StateLostError):
            guarded_writes.write(store, 2, {"currtx": record(2)}, [], {"currtx": None})
        open_store().acquire()
        with pytest.raises(FencedError):
            guarded_writes.write(store, 1, {"currtx": record(2)}, [], {"currtx": None})

    # --- manners ---

    def test_closing_twice_is_harmless_and_the_state_stays(self, open_store):
        store = open_store()
        store.write(store.acquire(), {"a": "1"})

        store.close()
        store.close()

        assert open_store().read() == {"a": "1"}

    def test_closing_before_any_use_is_harmless(self, store):
        store.close()

    def test_a_store_is_never_pickled(self, store):
        store.read()

        with pytest.raises(StateError, match="each process opens its own"):
            pickle.dumps(store)

    def test_it_tells_its_address_and_id(self, store):
        assert store.id == "orders"
        assert store.url in repr(store)

    @pytest.mark.parametrize("wrong", ["", ".", "..", "a/b", "ä", "x" * 201, "a b"])
    def test_an_id_that_no_store_can_hold_is_refused(self, open_store, wrong):
        with pytest.raises(ConfigError, match="option 'tx"):
            open_store(wrong)
