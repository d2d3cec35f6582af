"""People, time and neighbours around all that runs: nothing is lost or doubled."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from kafka_tx.errors import KafkaTxError
from kafka_tx.sinks import admission
from kafka_tx.source import agreement
from kafka_tx.source.stored_batches import StoredBatches
from kafka_tx.source.transactional import TransactionalMicroBatches
from kafka_tx.transactions.layout.batch_records import read_batch
from kafka_tx.transactions.ledger import ledger_reading
from tests.properties import simulated_databases
from tests.properties.people_advice import WAYS, follow
from tests.properties.people_operations import (
    AROUND_FILES,
    OPERATIONS,
    subscribe_otherwise,
)
from tests.properties.rounds import SIMULATED_STEPS, is_enough
from tests.properties.simulated_people import (
    KAFKA,
    KINDS,
    OFF,
    SETTLED_AFTER,
    Job,
    World,
    is_off,
)

Script = list[tuple[str, int]]

seen: Counter[str] = Counter()


def script(seed: int, length: int = 60, names: Iterable[str] = ()) -> Script:
    """What happens in a walk: names of operations, each with a number of its own."""
    chance = random.Random(f"script {seed}")
    kind = World(seed).job.kind
    names = [n for n in names or OPERATIONS if not is_off(n, kind)]
    weights = [OPERATIONS[name][0] for name in names]
    drawn = chance.choices(names, weights, k=chance.randint(length // 4, length))
    return [(name, chance.randrange(1_000)) for name in drawn]


def seeds() -> Iterator[int]:
    """Those whose job is played, without end."""
    return (n for n in itertools.count() if World(n).job.kind not in OFF)


def play(seed: int, what: Script, *, remembers: bool = False) -> World:
    """Live through it, then let the job read all that is left."""
    world = World(seed, remembers=remembers)
    for name, number in what:
        world.seen[name] += 1
        OPERATIONS[name][1](world, number)
        world.check()
        if world.refusal:
            return world
    settle(world)
    return world


def settle(world: World) -> None:
    world.stop()
    world.rivals.clear()
    for topic in world.brokers.topics_.values():
        topic.is_hidden = False
    for _ in range(SETTLED_AFTER):
        if world.refusal:
            return
        if world.step():
            follow(world)
        elif world.run is not None and world.run.is_idle and not world.once:
            if world.reads_all():
                break
            subscribe_otherwise(world, 0)
    else:
        raise AssertionError(f"never settled: {world.seen}")
    world.check_all()


def shortest(seed: int, what: Script) -> Script:
    """The same failure with fewer operations, each left out that is not needed."""
    size = max(1, len(what) // 2)
    while True:
        for at in range(0, len(what), size):
            fewer = what[:at] + what[at + size :]
            if fewer != what and _fails(seed, fewer):
                what = fewer
                break
        else:
            if size == 1:
                return what
            size = max(1, size // 2)


def _fails(seed: int, what: Script) -> bool:
    try:
        play(seed, what)
    except Exception:  # noqa: BLE001 - any failure
        return True
    return False


def walk(seed: int) -> World:
    what = script(seed)
    try:
        return play(seed, what)
    except Exception as error:
        error.add_note(f"play({seed}, {shortest(seed, what)})")
        raise


@pytest.fixture(autouse=True)
def quiet():
    """Warnings by the ten thousand are half of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(max(900, SIMULATED_STEPS // 500))
def test_whatever_people_do_nothing_is_lost_or_doubled():
    """A failure names the operations that lead to it, and ``play`` repeats them."""
    began = time.monotonic()
    seen.clear()

    for seed in seeds():
        seen.update(walk(seed).seen)
        if is_enough(seen, SIMULATED_STEPS, WHAT_MUST_HAPPEN):
            break

    print(f"\n{time.monotonic() - began:.0f} s", dict(seen.most_common()))
    assert not [what for what in seen if what.startswith("in a circle")]


def play_with_files(seeds: Iterable[int]) -> Counter[str]:
    """Walks of a query into a sink that remembers Spark's batch ids."""
    happened = Counter[str]()
    for seed in seeds:
        what = script(seed, names=AROUND_FILES)
        try:
            happened.update(play(seed, what, remembers=True).seen)
        except Exception as error:
            error.add_note(f"play({seed}, {what}, remembers=True)")
            raise
    return happened


def test_a_sink_that_remembers_batch_ids_gets_every_record():
    """What it drops, nobody has committed: a text stops the query before it is lost."""
    happened = play_with_files(range(SIMULATED_STEPS // 250))

    print(happened)
    for what in (
        "BatchIdsAgainError",
        "did: a new folder",
        "did: the sink's newest checkpoint",
        "did: store",
        "batches dropped by their id",
    ):
        assert happened[what], f"the simulation is blind: {what}"
    assert not [what for what in happened if what.startswith("refused")]


def test_the_simulation_notices_a_batch_that_the_sink_has_dropped(monkeypatch):
    monkeypatch.setattr(StoredBatches, "ids_start_again", lambda *_, **__: None)

    with pytest.raises(AssertionError, match="lost"):
        play_with_files(range(200))


WHAT_MUST_HAPPEN = (
    "CheckpointDisagreesError behind",
    "AnotherNumberingError",
    "CheckpointDisagreesError empty",
    "CheckpointDisagreesError undecided",
    "DataLossError",
    "DiedError",
    "FencedError",
    "ReplayImpossibleError",
    "StateLostError",
    "did: begin anew",
    "did: checkpoint",
    "did: new checkpoint",
    "did: new sink",
    "did: set tx.id back",
    "did: speculation off",
    "did: start again",
    "did: offsets set",
    "leaders moved",
    "did: remove the store that was left",
    "did: store",
    "rival: FencedError",
    "starts refused beside others",
    "answers too late",
    "bounded runs refused",
    "bounded runs after a crash",
    "strangers refused",
    "positions met another cluster",
)


KNOWN = {
    5: "run 770, produce 590, run 461, elect 478, produce 65",
    139: "run 875, deploy twice 849, produce 412, run a rival 872, use another sink 56",
    198: "produce 752, run 388, remove the database 571, produce 811, run 167,"
    " produce 281, leave checkpoint 735, change the mode 36, run 144,"
    " make anew under way 873",
    293: "run 137, produce 474, replicate 623, run 162, leave checkpoint 222,"
    " fail over 481, run 997, leave checkpoint 690, hide 54, run 551",
    399: "produce 250, run 219, copy checkpoint 153, remove the database 150,"
    " leave checkpoint 526, make anew under way 118, run 246, put checkpoint back 344",
    824: "run 946, replicate 662, fail over 160, produce 450, run 862,"
    " use another store 230, run 209, remove the database 600, run 547",
    1328: "deploy twice 963, run 66, produce 522, run a rival 698, rename id 311,"
    " leave checkpoint 461",
    2391: "produce 713, run 582, change the mode 761, deploy twice 310,"
    " run a rival 921",
    2676: "produce 76, run 649, replicate 225, run 680, make anew under way 913,"
    " run 807, fail over 995, run 470",
    7992: "run 378, produce 481, remove the database 248, run 878,"
    " leave checkpoint 689, deploy twice 752, run a rival 236, use another store 334",
    11461: "run 1, produce 648, make anew under way 437, run 456, run 949, run 198,"
    " replicate 981, subscribe otherwise 441, run 242, fail over 868",
}
"""Walks that lost or doubled once: a seed, and what happened."""


@pytest.mark.parametrize("seed", KNOWN)
def test_walks_that_lost_or_doubled_once_do_not(seed):
    play(seed, _parsed(KNOWN[seed]))


CIRCLES = {
    577: "run 368, rename id 336, run 972, leave checkpoint 990, use another store 637",
    2805: "run 354, remove the database 536, produce 542, run 730,"
    " use another store 296",
}
"""Walks whose texts led round in a circle once."""


@pytest.mark.parametrize("seed", CIRCLES)
def test_texts_that_led_round_in_a_circle_once_do_not(seed):
    assert not play(seed, _parsed(CIRCLES[seed])).refusal


def _parsed(walk: str) -> Script:
    happened = [text.rpartition(" ") for text in walk.split(", ")]
    return [(name, int(number)) for name, _, number in happened]


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_checkpoint_and_store_of_one_time_beside_a_newer_sink_double_nothing(kind):
    """They agree, and the epochs of owners come again; only the sink knows better."""
    runs: Script = [("run", 11)] * 3
    before: Script = [("produce", 0), *runs, ("copy checkpoint", 0), ("replicate", 0)]
    after: Script = [("put checkpoint back", 0), ("put store back", 0), ("produce", 7)]
    happened = Counter[str]()

    for seed in itertools.islice((n for n in seeds() if _is_of(World(n).job, kind)), 9):
        for batches in range(1, 4):
            later: Script = [("produce", 0), *runs] * batches
            world = play(seed, [*before, *later, ("kill", 0), *after, *runs])
            happened.update(world.seen)

    assert {"OutOfOrderError", "ReplayDiffersError"} & happened.keys(), happened


def _is_of(job: Job, mode: str) -> bool:
    is_elsewhere = job.sink[0] not in (job.store, KAFKA)
    return job.kind == "one source" and is_elsewhere and job.streams[0].mode == mode


@pytest.mark.parametrize("anew", [0, 1])
def test_half_a_batch_in_a_kafka_sink_is_neither_there_nor_not(anew):
    """The driver died between two parts, and one of two topics was made anew."""
    kafka = (n for n in seeds() if is_with_a_kafka_sink(World(n).job))
    begins: Script = [("run", 11), ("produce", 28), ("produce", 29)]
    dies: Script = [("change the parts", 2), ("die between parts", 1), ("run", 3)]

    happened = Counter[str]()
    for seed in itertools.islice(kafka, 5):
        world = play(seed, [*begins, *dies, ("make anew", anew), ("run", 11)])
        happened.update(world.seen)

    assert happened["DiedError"] == 5
    assert happened["did: begin anew"], happened


def is_with_a_kafka_sink(job: Job) -> bool:
    is_fixed = job.streams[0].mode == "transactional"
    return job.kind == "one source" and job.sink[0] == KAFKA and is_fixed


def test_all_that_is_switched_off_exists():
    """An entry that nobody reads would hide nothing, and look as if it did."""
    names = {*OPERATIONS, *KINDS, *(way.name for way in WAYS)}

    for entry in OFF:
        assert {*entry.split(": ")} <= names, entry


# --- a simulation that finds nothing proves nothing ---


def without_topic_ids(payload):
    batch = read_batch(payload)
    ranges = tuple(each.of_topic(None) for each in batch.ranges)
    return replace(batch, ranges=ranges)


def any_plan_of_these_ends(*given):
    *_, batch, end = given
    return not batch.spark_batch and batch.logged_ends() == dict(end.positions)


def play_some():
    for seed in itertools.islice(seeds(), 1_000):
        play(seed, script(seed))


def put_a_store_back_that_is_one_txid_behind_its_sink():
    """The topology plans that txid again, with the records that have come since."""
    seed = next(n for n in seeds() if is_with_a_sink_elsewhere(World(n).job))
    runs: Script = [("run", 11)] * 3
    before: Script = [("produce", 0), *runs, ("replicate", 0), ("produce", 7), *runs]
    play(seed, [*before, ("kill", 0), ("produce", 0), ("put store back", 0)])


def is_with_a_sink_elsewhere(job: Job) -> bool:
    is_elsewhere = job.sink[0] not in (job.store, KAFKA)
    return job.door == "topology" and is_elsewhere and not job.is_opaque


@pytest.mark.all
@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (simulated_databases, "is_written", lambda *_, **__: False),
        (agreement, "fits", any_plan_of_these_ends),
        (ledger_reading, "read_batch", without_topic_ids),
        (TransactionalMicroBatches, "_ids", lambda self: {}),
        (TransactionalMicroBatches, "_remembered", lambda self, partition: None),
    ],
)
def test_the_simulation_notices(monkeypatch, where, name, broken):
    """Within walks that find nothing else, also of databases that go back."""
    monkeypatch.setattr(where, name, broken)

    with pytest.raises((AssertionError, KafkaTxError)):
        play_some()


def test_the_simulation_notices_a_sink_that_compares_no_plans(monkeypatch):
    put_a_store_back_that_is_one_txid_behind_its_sink()
    monkeypatch.setattr(admission, "_check_plan", lambda *_: None)

    with pytest.raises(AssertionError, match="lost"):
        put_a_store_back_that_is_one_txid_behind_its_sink()


def test_the_simulation_notices_a_checkpoint_that_counts_in_no_numbering(monkeypatch):
    what: Script = [
        *(("produce", 990), ("run", 675), ("remove the database", 703)),
        *(("produce", 717), ("produce", 83), ("run", 455), ("leave checkpoint", 871)),
        *(("run", 946), ("subscribe otherwise", 246), ("remove the database", 994)),
    ]
    play(5703, what)
    monkeypatch.setattr(agreement, "numbering_of", lambda _: "")

    with pytest.raises((AssertionError, KafkaTxError)):
        play(5703, what)
