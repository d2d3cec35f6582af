"""What was written and acknowledged, and how often each number reached each sink."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from integration.chaos.job import COPY, MAP, TOPIC
from integration.chaos.schedule import ONCE, TABLES
from integration.chaos.world import PARTITIONS, World

EVERY_S = 0.05


class Numbers:
    """Writes 0, 1, 2 … into the topic, past the proxies, and notes what was taken."""

    def __init__(self, world: World) -> None:
        self.acknowledged: set[int] = set()
        self.newest = -1
        """The greatest number that was acknowledged."""
        self._producer = Producer(
            {
                "bootstrap.servers": world.kafka.cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._next = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more, and wait for the last answers."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.flush(70)

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            number, self._next = self._next, self._next + 1
            self._producer.produce(
                TOPIC,
                str(number),
                str(number),
                partition=number % PARTITIONS,
                on_delivery=self._answered,
            )
            self._producer.poll(0)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            number = int(message.value() or b"")
            self.acknowledged.add(number)
            self.newest = max(self.newest, number)


class Copies:
    """Reads what the job ``kafka`` has committed, past the proxies."""

    def __init__(self, world: World) -> None:
        self.counts: Counter[int] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": world.kafka.cluster.bootstrap_servers,
                "group.id": "chaos-count",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(COPY, n, 0) for n in range(PARTITIONS)])

    def read(self) -> Counter[int]:
        """How often each number is there now."""
        while messages := self._consumer.consume(1_000, 0.2):
            self.counts.update(
                int(m.value() or b"") for m in messages if m.error() is None
            )
        return self.counts

    def close(self) -> None:
        """Release connections."""
        self._consumer.close()


class Sinks:
    """How often each number is in each sink."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._copies = Copies(world)
        self._last: dict[str, Counter[int]] = {}

    def read(self, kind: str) -> Counter[int]:
        """The newest that can be had; what was seen last where the server is down."""
        if kind == "kafka":
            return self._copies.read()
        if kind in TABLES:
            return self._world.lake.count(kind)
        with contextlib.suppress(psycopg.Error):
            self._last[kind] = self._table(MAP.format(kind))
        return self._last.get(kind, Counter())

    def close(self) -> None:
        """Release connections."""
        self._copies.close()

    def _table(self, name: str) -> Counter[int]:
        url = self._world.postgresql.url().replace("+psycopg", "")
        with psycopg.connect(
            url, connect_timeout=2, options="-c statement_timeout=2000"
        ) as connection:
            rows = connection.execute(f"SELECT key, value FROM {name}")
            return Counter({int(key): value for key, value in rows})


@dataclass(slots=True)
class Count:
    """The end of a run for one job.

    Attributes:
        lost: Acknowledged numbers that are not in the sink.
        doubled: Numbers that are there more than once; at least once may do that.
    """

    kind: str
    counted: int
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, kind: str, acknowledged: set[int], counts: Counter[int]) -> Count:
        """Compare."""
        return cls(
            kind,
            sum(counts.values()),
            sorted(n for n in acknowledged if not counts[n]),
            sorted(n for n, times in counts.items() if times > 1 and kind in ONCE),
        )

    @property
    def is_good(self) -> bool:
        """Nothing lost, nothing doubled."""
        return not self.lost and not self.doubled


def wait_for_all(
    kinds: tuple[str, ...], acknowledged: set[int], sinks: Sinks, timeout_s: float
) -> list[Count]:
    """Wait until every sink has every number, or the time is up; then count."""
    deadline = time.monotonic() + timeout_s
    counts: dict[str, Count] = {}
    while len(counts) < len(kinds) and time.monotonic() < deadline:
        for kind in kinds:
            count = Count.of(kind, acknowledged, sinks.read(kind))
            if not count.lost:
                counts[kind] = count
        time.sleep(0.5)
    return [Count.of(kind, acknowledged, sinks.read(kind)) for kind in kinds]
