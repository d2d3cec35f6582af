"""The worked example of a sink for Redis, on a Redis."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from integration.cluster.redis import RedisServer
from integration.cluster.running import running
from integration.sizes import size
from kafka_tx.testing import TransactionalSinkSuite
from tests.conformance.sink_suite import attempt

redis = pytest.importorskip("redis")

EXAMPLE = Path(__file__).parents[2] / "examples" / "redis_counts.py"
MANY = size(20_000, 100_000)
"""Keys of one step: ``unpack`` in a script takes 8,000 values at most."""
_names = itertools.count()


def loaded():
    spec = spec_from_file_location("redis_counts", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RedisCounts = loaded().RedisCounts


@pytest.fixture(scope="module")
def server():
    with running(RedisServer()) as made:
        yield made


@pytest.fixture
def open_counts(server):
    name = f"orders{next(_names)}"
    return lambda: RedisCounts(server.url, name)


class TestRedis(TransactionalSinkSuite):
    @pytest.fixture(autouse=True)
    def empty(self, open_counts):
        self.make = open_counts

    def open(self):
        return self.make()

    def batch(self, rows):
        return [(row, 1) for row in rows]

    def found(self):
        return [row for row, n in self.make().counts().items() for _ in range(n)]


@pytest.mark.parametrize("odd", ["a lot", "1.5", 2**53, -(2**64)])
def test_a_count_that_cannot_be_added_leaves_nothing_of_its_batch(
    server, open_counts, odd
):
    sink = open_counts()
    sink([("a", 1), ("b", 1)], attempt(1))
    with redis.Redis.from_url(server.url) as other:
        other.hset(sink._keys[1], "b", odd)
    for number in (1, 2):
        with pytest.raises(
            redis.ResponseError, match=f"count of b is {odd}, and 1 cannot"
        ):
            sink([("a", 1), ("b", 1)], attempt(2, number=number))

    with redis.Redis.from_url(server.url) as other:
        assert other.hget(sink._keys[1], "a") == b"1"
        other.hset(sink._keys[1], "b", 1)
    assert sink([("a", 1), ("b", 1)], attempt(2, number=3))
    assert sink.counts() == {"a": 2, "b": 2}


def test_counts_and_attempt_outlive_a_server_that_is_killed(server, open_counts):
    """The sink waits meanwhile, and looks before it writes again."""
    sink = open_counts()

    def count():
        for txid in range(1, 201):
            assert sink([("a", 1), (f"k{txid}", 1)], attempt(txid))

    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(count)
        for _ in range(2):
            time.sleep(0.3)
            server.kill()
            server.start()
        counting.result(timeout=120)

    assert open_counts().counts()["a"] == 200
    assert len(open_counts().counts()) == 201


def test_a_batch_of_many_keys_is_one_step(open_counts):
    sink = open_counts()

    assert sink([(f"k{n}", 1) for n in range(MANY)], attempt(1))

    assert len(sink.counts()) == MANY
