"""Maps in a database against plain dicts: replays, overtaken owners, crashes."""

import tempfile
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kafka_tx.errors import (
    AnotherNumberingError,
    ConfigError,
    FencedError,
    OutOfOrderError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from tests.properties.rounds import SIMULATED_STEPS, play_round

KEYS = st.sampled_from("abcdef")
ROWS = st.lists(st.tuples(KEYS, st.integers(-5, 5) | st.none()), max_size=6)
REDUCERS = st.sampled_from(["sum", "count", "max", "min", "last", "parity"])
WRITES = st.lists(
    st.tuples(REDUCERS, ROWS) | st.tuples(st.just("remove"), st.lists(KEYS)),
    max_size=4,
)


class DeadError(Exception):
    """The driver died in the middle of a batch."""


def parity(old, new):
    """A function as reducer: sums, and removes what is odd."""
    total = (old or 0) + (new or 0)
    return None if total % 2 else total


def modelled(before, writes):
    """What a dict holds after ``writes``, row by row."""
    after = dict(before)
    for name, rows in writes:
        for row in rows:
            key, given = row if name != "remove" else (row, None)
            old = after.pop(key, None)
            new = modelled_row(name, old, given)
            if new is not None:
                after[key] = new
    return after


def modelled_row(name, old, given):
    if name in {"remove", "last"}:
        return given
    if name == "parity":
        return parity(old, given)
    if name == "count":
        return (old or 0) + 1
    if given is None:
        return old
    if old is None:
        return given
    return {"sum": old + given, "max": max(old, given), "min": min(old, given)}[name]


def write(batch, writes):
    for name, rows in writes:
        if name == "remove":
            batch.remove(rows)
            continue
        table = pa.table(
            {
                "key": pa.array([key for key, _ in rows], pa.string()),
                "value": pa.array([value for _, value in rows], pa.int64()),
            }
        )
        batch.update(table, parity if name == "parity" else name)


class Maps(RuleBasedStateMachine):
    """One map, one dict; ``before`` is the dict without the newest transaction.

    Owners take over from each other, and any of them may be frozen for a while and
    wake with a txid that it planned: older, the newest or a later one.
    """

    kind: type[TransactionalMap]

    def __init__(self):
        super().__init__()
        self.work = tempfile.TemporaryDirectory()
        self.before: dict[str, int] = {}
        self.now: dict[str, int] = {}
        self.newest = TransactionAttempt(0, 0)
        self.attempts = 10
        self.owners = self.newest_owner = 1
        """How many there have been, and the newest that the map has heard of."""

    @initialize()
    def open(self):
        self.map = self.kind(f"sqlite:///{self.work.name}/maps.db", "counts")

    def teardown(self):
        self.ask()
        self.map.close()
        self.work.cleanup()

    @property
    def is_opaque(self):
        return self.kind is OpaqueMap

    @property
    def mode(self):
        return "opaque" if self.is_opaque else "transactional"

    def next_attempt(self, txid):
        self.attempts += 1
        made = TransactionAttempt.of(txid, epoch=self.owners, number=self.attempts)
        return replace(made, numbering="one", mode=self.mode)

    def die_in(self, attempt, writes):
        with self.map.batch(attempt) as batch:
            write(batch, writes)
            raise DeadError

    def apply(self, attempt, writes):
        with self.map.batch(attempt) as batch:
            write(batch, writes)
            if not batch.is_counted:
                seen = batch.get("abcdef")
                assert seen == modelled(self.before, writes)
        self.newest_owner = max(self.newest_owner, attempt.epoch)

    @rule(writes=WRITES, gap=st.integers(0, 2))
    def a_new_transaction(self, writes, gap):
        self.go_on(self.next_attempt(self.newest.txid + 1 + gap), writes)

    @rule(gap=st.integers(0, 2))
    def a_batch_without_records(self, gap):
        self.go_on(self.next_attempt(self.newest.txid + 1 + gap), [])

    @rule()
    def another_owner_takes_over(self):
        self.owners += 1

    @rule(writes=WRITES, back=st.integers(1, 3), step=st.integers(-1, 2))
    def a_frozen_owner_wakes(self, writes, back, step):
        """It counts where no newer one has written yet; the planner fences it soon."""
        owner, txid = max(1, self.owners - back), max(1, self.newest.txid + step)
        self.attempts += 1
        made = TransactionAttempt.of(txid, epoch=owner, number=self.attempts)
        attempt = replace(made, numbering="one", mode=self.mode)
        if owner < self.newest_owner:
            with pytest.raises(FencedError):
                self.apply(attempt, writes)
        elif txid > self.newest.txid:
            self.go_on(attempt, writes)

    def go_on(self, attempt, writes):
        self.before = self.now
        self.apply(attempt, writes)
        self.now = modelled(self.before, writes)
        self.newest = attempt

    @precondition(lambda self: self.newest.txid)
    @rule(writes=WRITES)
    def a_replay(self, writes):
        attempt = self.next_attempt(self.newest.txid)
        self.apply(attempt, writes)
        if self.is_opaque:
            self.now = modelled(self.before, writes)
            self.newest = attempt

    @precondition(lambda self: self.newest.txid and not self.is_opaque)
    @rule()
    def the_same_attempt_looks_before_it_writes(self):
        """A try whose answer was lost comes again."""
        if self.newest.epoch >= self.newest_owner:
            with self.map.batch(self.newest) as batch:
                assert batch.is_counted

    @precondition(lambda self: self.newest.txid)
    @rule(writes=WRITES, older=st.integers(1, 9))
    def an_overtaken_attempt(self, writes, older):
        attempt = TransactionAttempt(self.newest.txid, self.newest.attempt_id - older)
        if self.is_opaque or attempt.epoch < self.newest_owner:
            with pytest.raises(FencedError):
                self.apply(attempt, writes)
        else:
            self.apply(attempt, writes)

    @precondition(lambda self: self.newest.txid > 1)
    @rule(writes=WRITES)
    def an_older_transaction(self, writes):
        with pytest.raises(OutOfOrderError):
            self.apply(self.next_attempt(self.newest.txid - 1), writes)

    @precondition(lambda self: self.newest.txid)
    @rule(writes=WRITES, txid=st.integers(1, 40), epoch=st.integers(1, 9))
    def a_store_that_begins_anew(self, writes, txid, epoch):
        """Or another one, or another job: its txids and owners begin with 1."""
        attempt = TransactionAttempt.of(txid, epoch=epoch, number=1)
        with pytest.raises(AnotherNumberingError):
            self.apply(replace(attempt, numbering="two", mode=self.mode), writes)

    @precondition(lambda self: not self.is_opaque)
    @rule(writes=WRITES, step=st.integers(0, 2))
    def an_opaque_attempt(self, writes, step):
        attempt = self.next_attempt(max(1, self.newest.txid + step))
        with pytest.raises(ConfigError, match="opaque"):
            self.apply(replace(attempt, mode="opaque"), writes)

    @rule(writes=WRITES, is_replay=st.booleans())
    def a_crash_in_the_middle(self, writes, is_replay):
        txid = self.newest.txid + (not (is_replay and self.newest.txid))
        with pytest.raises(DeadError):
            self.die_in(self.next_attempt(txid), writes)

    @rule()
    def a_restart(self):
        self.ask()
        self.map.close()
        self.open()
        self.ask()

    def ask(self):
        """In the other ways; each is asked for in SQL, so not after every step."""
        assert self.map.get("abcdef") == self.now
        assert self.map.last_attempt().txid == self.newest.txid

    @invariant()
    def the_map_is_the_dict(self):
        table = self.map.to_arrow()
        keys, values = table["key"].to_pylist(), table["value"].to_pylist()
        assert dict(zip(keys, values, strict=True)) == self.now
        assert keys == sorted(keys)


class TransactionalMaps(Maps):
    kind = TransactionalMap


class OpaqueMaps(Maps):
    kind = OpaqueMap


@pytest.mark.timeout(max(900, SIMULATED_STEPS // 500))
@pytest.mark.parametrize("machine", [TransactionalMaps, OpaqueMaps])
def test_a_map_is_the_dict_whatever_is_replayed_refused_or_lost(machine):
    play_round(0, machine, steps=20, examples=SIMULATED_STEPS // 500)
