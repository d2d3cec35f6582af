"""Counts the orders of each customer in Redis, each order once.

Run it: python examples/redis_counts.py localhost:9092 orders redis://localhost:6379/0

It needs ``pip install redis``. The counts of a batch and its attempt are written by one
Lua script, which Redis runs as a whole. Redis takes nothing back if a script fails in
the middle, so this one checks all counts before it writes the first. All keys have one
hash tag, so a cluster keeps them on one node. Redis serves nobody else meanwhile: a
batch of 100,000 keys was tried.

Redis keeps what its persistence promises. Set ``appendonly yes`` and ``appendfsync
always``: with ``everysec``, a crash may lose the batches of the last second. Their
orders then stay out, because the query has committed them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import redis
from pyspark.sql import SparkSession

import kafka_tx
from kafka_tx import OvertakenError, TransactionalSink, TransactionAttempt

SCRIPT = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
for n = 3, #ARGV, 2 do
  local key, more = ARGV[n], ARGV[n + 1]
  local count = redis.call('HGET', KEYS[2], key) or '0'
  local is_whole = count == '0' or count:match('^-?[1-9]%d*$')
  if not (is_whole and more:match('^%d+$') and math.abs(count + more) < 2^53) then
    local text = 'ERR the count of %s is %s, and %s cannot be added: no row is written'
    text = text:format(key, count, more):gsub('%c', ' ')
    return redis.error_reply(text)
  end
end
for n = 3, #ARGV, 2 do redis.call('HINCRBY', KEYS[2], ARGV[n], ARGV[n + 1]) end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


class RedisCounts(TransactionalSink):
    """A hash with a count for each key, and the attempt beside it.

    A batch is a DataFrame with the column ``key``, or a list of pairs.
    """

    unavailable = (redis.ConnectionError, redis.TimeoutError)

    def __init__(self, url: str, name: str) -> None:
        self.name = f"Redis counts {name}"
        self._redis = redis.Redis.from_url(url, socket_timeout=60)
        self._keys = [f"{{{name}}}:attempt", f"{{{name}}}:counts"]
        self._script = self._redis.register_script(SCRIPT)

    def read_attempt(self) -> TransactionAttempt | None:
        stored = self._redis.get(self._keys[0])
        return None if stored is None else TransactionAttempt.of_json(stored.decode())

    def stage(self, rows, attempt: TransactionAttempt) -> Iterable[tuple[str, int]]:
        """Count on executors; only the counts come to the driver."""
        if isinstance(rows, list):
            return rows
        return [
            (row["key"], row["count"]) for row in rows.groupBy("key").count().collect()
        ]

    def write(self, staged, attempt, former) -> None:
        known = "" if former is None else former.as_json()
        values = (value for pair in staged for value in pair)
        if not self._script(self._keys, [known, attempt.as_json(), *values]):
            raise OvertakenError("another attempt is stored")

    def counts(self) -> dict[str, int]:
        found = self._redis.hgetall(self._keys[1])
        return {key.decode(): int(count) for key, count in found.items()}


def main(servers: str, topic: str, url: str) -> None:
    """Count what is there now; the next run counts what came since."""
    print("starting Spark …", flush=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    place = Path(tempfile.gettempdir(), f"{topic}-in-redis")
    place.mkdir(exist_ok=True)
    spark = SparkSession.builder.appName("redis counts").getOrCreate()
    kafka_tx.attach(spark, metrics_port=None)
    sink = RedisCounts(url, topic)
    query = (
        spark.readStream.format("kafka_tx")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("tx.id", f"{topic}-in-redis")
        .option("tx.store", f"sqlite:///{place}/store.db")
        .load()
        .selectExpr("coalesce(string(key), '') AS key")
        .writeStream.foreachBatch(kafka_tx.for_each_transaction(sink))
        .option("checkpointLocation", f"{place}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(dict(sorted(sink.counts().items())))


if __name__ == "__main__":
    main(*sys.argv[1:])
