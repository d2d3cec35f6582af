"""The servers of a run: a broker, a database with a standby that is behind, files."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from sqlalchemy import create_engine, inspect, text

from integration.chaos.lake import HERE
from integration.cluster import provider
from integration.cluster.child import WorkDirectory
from integration.cluster.interface import KafkaCluster
from integration.cluster.postgresql import PostgresServer
from integration.cluster.processes.iceberg_rest import IcebergRest
from integration.cluster.proxy import Proxy
from integration.cluster.running import running

PARTITIONS = 2
EVERY_S = 0.1


class Database:
    """PostgreSQL behind one address, with an asynchronous standby."""

    def __init__(self) -> None:
        self._primary, self._standby = PostgresServer(), PostgresServer()
        self._line: Proxy | None = None
        self._front: Proxy | None = None

    def start(self) -> None:
        self._primary.start()
        self._front = Proxy(self._primary.port)
        self._front.start()
        self._follow()

    def stop(self) -> None:
        for part in (self._front, self._line, self._standby, self._primary):
            if part is not None:
                part.stop()

    @property
    def url(self) -> str:
        return self._primary.url(proxy=self._front)

    def fall_behind(self) -> None:
        """From now on the standby hears of nothing."""
        assert self._line is not None
        self._line.cut()

    def fail_over(self) -> None:
        """The primary dies; the standby, as far as it came, has its address."""
        assert self._front is not None
        assert self._line is not None
        self._primary.stop()
        self._standby.promote()
        self._front.cut()
        self._front.target = self._standby.port
        self._front.heal()
        self._line.stop()
        self._primary, self._standby = self._standby, PostgresServer()
        self._follow()

    def _follow(self) -> None:
        self._line = Proxy(self._primary.port)
        self._line.start()
        self._standby.follow(self._line.port)


class Numbers:
    """Writes numbers into a topic, and knows which were acknowledged and still are."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._kafka = kafka
        self.topics: tuple[str, ...] = ()
        self.acknowledged: set[int] = set()
        self.forgone: set[int] = set()
        """What was in topics that were made anew."""
        self._next = 0
        self._topic_of: dict[int, str] = {}
        self._is_paused = threading.Event()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._producer = self._new_producer()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _new_producer(self) -> Producer:
        servers = self._kafka.bootstrap_servers
        return Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def begin(self, topics: tuple[str, ...]) -> None:
        """A new job, with topics of its own."""
        for topic in topics:
            self._kafka.create_topic(topic, PARTITIONS)
        with self._lock:
            self._producer.flush(30)
            self.topics = topics
            self.acknowledged, self.forgone = set(), set()
            self._topic_of = {}

    def in_first(self) -> set[int]:
        """What the first of its topics has now."""
        there = self.acknowledged - self.forgone
        return {n for n in there if self._topic_of[n] == self.topics[0]}

    def make_anew(self, records: int) -> None:
        """The first topic, with so many new records in a moment."""
        with self._lock:
            self._producer.flush(30)
            self._kafka.delete_topic(self.topics[0])
            self._kafka.create_topic(self.topics[0], PARTITIONS)
            self._producer = self._new_producer()
            self.forgone |= self.in_first()
            for _ in range(records):
                self._send(self.topics[0])
            self._producer.flush(30)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """All that was sent is acknowledged, and nothing more comes."""
        with self._lock:
            self._producer.flush(30)
            yield

    def _run(self) -> None:
        while not self._is_over.wait(EVERY_S):
            with self._lock:
                if self.topics:
                    self._send(self.topics[self._next // PARTITIONS % len(self.topics)])
                    self._producer.poll(0)

    def _send(self, topic: str) -> None:
        number, self._next = self._next, self._next + 1
        self._topic_of[number] = topic
        self._producer.produce(
            topic,
            key=str(number),
            value=str(number),
            partition=number % PARTITIONS,
            on_delivery=self._answered,
        )

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(int(message.value() or b""))


class Parts:
    """Everything that a job needs, and the files that people copy and remove."""

    def __init__(self, kafka: KafkaCluster, database: Database, work: Path) -> None:
        self.kafka = kafka
        self.database = database
        self.work = work
        self.numbers = Numbers(kafka)
        self.catalog = IcebergRest(work / "iceberg")
        """Runs where this Spark has Iceberg's jars."""

    def copy(self, place: Path, to: Path) -> bool:
        """A file or folder; False where there is none."""
        if not place.exists():
            return False
        if place.is_dir():
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(place, to)
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place, to)
        return True

    def counted(self, name: str) -> Counter[int]:
        """How often each number is in a map or table of the database."""
        engine = create_engine(self.database.url)
        try:
            if not inspect(engine).has_table(name):
                return Counter()
            with engine.connect() as connection:
                rows = connection.execute(text(f'SELECT * FROM "{name}"'))
                return Counter(
                    {int(row[0]): int(row[1]) for row in rows}
                    if "value" in rows.keys()  # noqa: SIM118 - no mapping
                    else [int(row[0]) for row in rows]
                )
        finally:
            engine.dispose()

    def newest(self, name: str, source: str = "") -> int:
        """The txid, of this source if one is named, that a map or table holds; or 0."""
        engine = create_engine(self.database.url)
        try:
            with engine.connect() as connection:
                columns = "SELECT txid FROM kafka_tx_progress WHERE name = :name"
                query = text(f"{columns} AND :source IN ('', source)")
                given = {"name": name, "source": source}
                return int(connection.scalar(query, given) or 0)
        finally:
            engine.dispose()

    def numbering(self, name: str) -> str:
        """Which one a map or table counts in; empty without any."""
        engine = create_engine(self.database.url)
        try:
            with engine.connect() as connection:
                if not inspect(connection).has_table("kafka_tx_progress"):
                    return ""
                query = text(
                    "SELECT numbering FROM kafka_tx_progress WHERE name = :name"
                )
                return str(connection.scalar(query, {"name": name}) or "")
        finally:
            engine.dispose()

    def empty(self, name: str) -> None:
        """A map or table, and what is known of it."""
        engine = create_engine(self.database.url)
        try:
            with engine.begin() as connection:
                known = [t for t in inspect(engine).get_table_names() if t != name]
                connection.execute(text(f'DROP TABLE IF EXISTS "{name}"'))
                if "kafka_tx_progress" in known:
                    connection.execute(
                        text("DELETE FROM kafka_tx_progress WHERE name = :name"),
                        {"name": name},
                    )
        finally:
            engine.dispose()

    def copied(self, topic: str) -> Counter[int]:
        """How often each number is in a topic, as far as it is committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": "people-count",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        found: Counter[int] = Counter()
        try:
            left = set(range(PARTITIONS))
            consumer.assign([TopicPartition(topic, n, 0) for n in left])
            while left:
                for message in consumer.consume(1_000, 0.2):
                    if message.error() is not None:
                        left.discard(message.partition() or 0)
                    else:
                        found[int(message.value() or b"")] += 1
        finally:
            consumer.close()
        return found


@contextmanager
def parts() -> Iterator[Parts]:
    """All of them, for the time of a block."""
    work = WorkDirectory("people")
    try:
        with (
            running(provider.chosen().kafka(brokers=1)) as kafka,
            running(Database()) as database,
        ):
            made = Parts(kafka, database, work.path)
            made.numbers.start()
            if HERE["iceberg"]:
                made.catalog.start()
            try:
                yield made
            finally:
                made.catalog.stop()
                made.numbers.stop()
    finally:
        work.delete()
