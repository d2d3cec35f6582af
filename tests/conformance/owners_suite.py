"""What every Store promises its owners: one at a time, whatever they try."""

import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_tx.errors import FencedError, StateConflictError, StateLostError


class OwnersSuite:
    """``open_store(id="orders")`` opens the same state each time it is called."""

    @pytest.fixture
    def open_store(self):
        raise NotImplementedError

    @pytest.fixture
    def store(self, open_store):
        return open_store()

    def test_a_former_owner_changes_nothing(self, open_store):
        former, owner = open_store(), open_store()
        old = former.acquire()
        former.write(old, {"a": "1", "b": "1"})
        new = owner.acquire()

        with pytest.raises(FencedError, match="another owner"):
            former.write(old, {"a": "2", "c": "2"}, ["b"])

        assert owner.read() == {"a": "1", "b": "1"}
        owner.write(new, {"a": "3"})
        assert former.read() == {"a": "3", "b": "1"}

    def test_a_former_owner_is_fenced_also_when_it_has_nothing_to_say(self, open_store):
        former = open_store()
        old = former.acquire()
        open_store().acquire()

        with pytest.raises(FencedError):
            former.write(old, {})

    def test_an_owner_brings_its_first_records_with_it(self, open_store):
        former, owner = open_store(), open_store()
        former.write(former.acquire(), {"a": "1", "b": "1"})

        epoch = owner.acquire({"a": "2", "c/d": "2"}, expect={"a": "1", "c/d": None})

        assert (epoch, open_store().epoch()) == (2, 2)
        assert open_store().read() == {"a": "2", "b": "1", "c/d": "2"}

    @pytest.mark.parametrize("is_new", [True, False])
    def test_who_expects_what_is_not_there_fences_nobody(self, open_store, is_new):
        former = open_store()
        held = 0 if is_new else former.acquire({"a": "1"})

        with pytest.raises(StateConflictError, match="'a'"):
            open_store().acquire({"a": "2"}, expect={"a": "another"})

        assert open_store().epoch() == held
        assert open_store().get("a") == (None if is_new else "1")
        if held:
            former.write(held, {"b": "1"})

    def test_an_epoch_above_a_given_one_is_taken_in_one_step(self, open_store):
        assert open_store().acquire(above=5_000) == 5_001
        assert open_store().acquire(above=7) == 5_002
        assert open_store().epoch() == 5_002

    @pytest.mark.parametrize("epoch", [0, 2, 99])
    def test_an_epoch_that_was_never_given_writes_nothing(self, open_store, epoch):
        store = open_store()
        if epoch:
            store.acquire()

        with pytest.raises(StateLostError if epoch else FencedError):
            store.write(epoch, {"a": "1"})

        assert open_store().read() == {}

    def test_another_process_of_the_owner_writes_under_its_epoch(self, open_store):
        planner, listener = open_store(), open_store()
        epoch = planner.acquire()

        listener.write(epoch, {"a": "1"})
        planner.write(epoch, {"b": "2"})
        listener.write(epoch, {"a": "3"}, ["b"])

        assert planner.read() == {"a": "3"}

    def test_an_expectation_that_holds_lets_the_write_through(self, store):
        epoch = store.acquire()

        store.write(epoch, {"a": "1"}, expect={"a": None})
        store.write(epoch, {"a": "2"}, expect={"a": "1", "b": None})

        assert store.read() == {"a": "2"}

    @pytest.mark.parametrize("expected", [None, "", "0", "11"])
    def test_an_expectation_that_does_not_hold_stops_the_write(self, store, expected):
        epoch = store.acquire()
        store.write(epoch, {"a": "1", "b": "1"})

        with pytest.raises(StateConflictError, match="'a'"):
            store.write(epoch, {"b": "2"}, ["a"], expect={"a": expected})

        assert store.read() == {"a": "1", "b": "1"}

    def test_a_former_owner_is_told_that_it_is_fenced_before_anything_else(
        self, open_store
    ):
        former = open_store()
        old = former.acquire()
        open_store().acquire()

        with pytest.raises(FencedError):
            former.write(old, {"a": "1"}, expect={"a": "other"})

    def test_concurrent_owners_never_mix(self, open_store):
        """Each writes its epoch to three paths until the next one fences it."""
        paths = ["a", "b/c", "d"]
        torn, done = [], threading.Event()

        def poll():
            store = open_store()
            while not done.is_set():
                values = set(store.read().values())
                if len(values) > 1:
                    torn.append(values)

        def own(_):
            store = open_store()
            epoch = store.acquire()
            counts = itertools.count() if epoch < 6 else range(7)
            with contextlib.suppress(FencedError):
                for count in counts:
                    store.write(epoch, dict.fromkeys(paths, f"{epoch}.{count}"))
            return epoch

        with ThreadPoolExecutor(4) as pool:
            looking = pool.submit(poll)
            epochs = list(pool.map(own, range(6), timeout=300))
            done.set()
            looking.result()

        assert sorted(epochs) == [1, 2, 3, 4, 5, 6]
        assert torn == []
        assert set(open_store().read().values()) == {"6.6"}

    def test_first_owners_at_the_same_moment_get_different_epochs(self, open_store):
        stores = [open_store() for _ in range(4)]
        together = threading.Barrier(4)

        def take(store):
            together.wait()
            return store.acquire()

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(take, stores)) == [1, 2, 3, 4]

    def test_no_step_is_lost_between_writers_that_expect(self, open_store):
        epoch = open_store().acquire()
        steps = 15

        def count(_):
            store, landed = open_store(), 0
            while landed < steps:
                before = store.get("count")
                after = str(int(before or 0) + 1)
                try:
                    store.write(epoch, {"count": after}, expect={"count": before})
                except StateConflictError:
                    continue
                landed += 1

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(count, range(3), timeout=300))

        assert open_store().get("count") == str(3 * steps)
