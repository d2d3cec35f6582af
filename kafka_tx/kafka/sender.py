"""Writes records at least once, with reused producers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message

from kafka_tx.errors import AuthenticationError, BrokerUnavailableError, DeliveryError
from kafka_tx.kafka.native_producer import NativeProducer, new_client
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.producer import (
    Deliveries,
    Delivery,
    ProducerClient,
    Tell,
    is_whole,
    refused_record,
)
from kafka_tx.kafka.topic_limits import sizes_for
from kafka_tx.native.idle_clients import Idle

_Client = TypeVar("_Client", bound="NativeProducer | ProducerClient")


class Sender:
    """Sends records asynchronously and awaits every delivery (executor); one thread.

    In native code where that is built and the settings allow it, except for records
    with a callback of their own. ``settings`` are from ``client_settings(…,
    purpose="producer")``.

    1. A topic's batches have the size that ``topic_limits`` knows; topics with another
       size have a client of their own.
    2. A broker that refuses a batch refuses all of its records. Once every sent record
       is answered, those are sent again in batches of half the size, and delivered
       records behind them in their partition are sent again behind them.
    3. A record that is refused alone fails, and no other.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._sizes = sizes_for(settings)
        self._clients: dict[int, NativeProducer | ProducerClient] = {}
        self._posting: dict[int, ProducerClient] = {}
        self._at: dict[str, int] = {}
        self._deliveries = Deliveries()
        self._was_let_in = False
        self.pool = _awaited
        """The idle senders among which it was."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if error is not None:
            self.purge()

    def send(self, records: Iterable[OutRecord]) -> int:
        """Send all; returns their number once every one is delivered.

        Raises:
            DeliveryError: A record was refused; names its topic, key and size.
            AuthenticationError: Credentials, permission or TLS.
            BrokerUnavailableError: The same, if brokers accepted this sender before:
                they may accept a new one.
        """
        count = self.queue(records)
        self.flush()
        return count

    def queue(self, records: Iterable[OutRecord]) -> int:
        """Hand all to the client, for the next ``flush``; raises as ``send``."""
        count = 0
        for record in records:
            self._client(record.topic).produce(record, self._check)
            if self._deliveries.since_refusal:
                self._settle()
            count += 1
        return count

    def write(self, batch: OutBatch) -> None:
        """Hand columns to the client, for the next ``flush``; raises as ``send``."""
        left = [batch] if len(batch) else []
        while left:
            some = left.pop()
            at = {topic: self._size(topic) for topic in some.topics}
            if len(set(at.values())) > 1:
                topics = [t for t in some.topics if at[t] == at[some.topics[0]]]
                others = [t for t in some.topics if t not in topics]
                left += some.only(others), some.only(topics)
                continue
            done = self._client(some.topics[0]).write(some, self._check)
            if done < len(some):
                left.append(some.rest(done))
            if self._deliveries.since_refusal:
                self._settle()

    def post(self, record: OutRecord, tell: Tell) -> None:
        """Hand one to the client; ``tell`` gets its error or None, in a later call.

        Raises:
            DeliveryError: The client itself refuses the record; ``tell`` is not called.
            AuthenticationError: as ``send``.
        """
        self._post(record, tell)
        if self._deliveries.since_refusal:
            self._settle()

    def flush(self) -> None:
        """Wait until everything sent is delivered; raises as ``send``."""
        self._settle()
        self._check()
        self._was_let_in = True

    def poll(self) -> None:
        """Report known results, without waiting; raises as ``send``."""
        for client in self._all():
            client.poll()

    def purge(self) -> None:
        """Drop undelivered records without a report."""
        for client in self._all():
            client.purge()

    def renew(self) -> None:
        """Check the batch sizes again, before the sender is reused."""
        self._at = {topic: self._sizes.of(topic).size for topic in self._at}
        wanted = set(self._at.values())
        for clients in (self._clients, self._posting):
            for size, client in list(clients.items()):
                if size not in wanted and not len(client):
                    del clients[size]

    def give_back(self) -> None:
        """Return a borrowed sender for reuse; only after success."""
        self.pool.keep(frozenset(self._settings.items()), self)

    def __len__(self) -> int:
        """The number of in-flight records."""
        return sum(map(len, self._all()))

    def __bool__(self) -> bool:
        """True, also if there is nothing to send."""
        return True

    # --- sending --------------------------------------------------------------------

    def _all(self) -> list[NativeProducer | ProducerClient]:
        return [*self._clients.values(), *self._posting.values()]

    def _size(self, topic: str) -> int:
        at = self._at.get(topic)
        if at is None:
            at = self._at[topic] = self._sizes.of(topic).size
        return at

    def _client(self, topic: str) -> NativeProducer | ProducerClient:
        at = self._size(topic)
        if at not in self._clients:
            self._clients[at] = self._made(new_client, at)
        return self._clients[at]

    def _made(self, make: Callable[..., _Client], at: int) -> _Client:
        settings = {**self._settings, "batch.size": str(at)}
        return make(settings, self._deliveries)

    def _post(self, record: OutRecord, tell: Tell) -> None:
        def delivered(error: ClientError | None, message: Message) -> None:
            if error is not None and not is_whole(error):
                tell(refused_record(record, self._deliveries.cause(error)))
                return
            if error is None:
                tell(None)
            partition = message.partition()
            where = -1 if partition is None else partition
            again = tell if error is not None else _nobody
            self._deliveries.add(Delivery(record, where, error, again))

        at = self._size(record.topic)
        if at not in self._posting:
            self._posting[at] = self._made(ProducerClient, at)
        self._posting[at].produce(record, self._check, delivered)

    def _check(self) -> None:
        self._check_refusal()
        failed = self._deliveries.failed
        if failed is not None:
            for client in self._all():
                client.flush_for(1)  # reports other failed records, too
            raise self._deliveries.failed or failed

    def _check_refusal(self) -> None:
        try:
            for client in self._all():
                client.watch.raise_refusal()
        except AuthenticationError as error:
            if not self._was_let_in:
                raise
            raise BrokerUnavailableError(
                f"{error.message} They let this producer in before: files of"
                " certificates may have been replaced, which a new producer reads."
            ) from error

    # --- what was refused -----------------------------------------------------------

    def _settle(self) -> None:
        """Wait for all; resend records that were refused because of others."""
        shrunk: set[str] = set()
        while True:
            for client in self._all():
                client.flush(self._check)
            taken = self._deliveries.take()
            if not taken:
                break
            topics: defaultdict[str, list[Delivery]] = defaultdict(list)
            for one in taken:
                topics[one.record.topic].append(one)
            shrunk |= topics.keys()
            for topic, deliveries in topics.items():
                self._send_again(topic, deliveries)
        for topic in shrunk:
            self._at[topic] = self._sizes.of(topic).size

    def _send_again(self, topic: str, deliveries: list[Delivery]) -> None:
        size, verdict = self._sizes.settle(topic, deliveries, self._at[topic])
        self._at[topic] = verdict.size
        for place in verdict.alone:
            one = deliveries[place]
            assert one.error is not None
            failed = refused_record(one.record, one.error, limit=size.limit)
            if one.tell is None:
                self._deliveries.fail(failed)
            else:
                one.tell(failed)
        for place in verdict.again:
            one = deliveries[place]
            if one.tell is None:
                self._client(topic).produce(one.record, self._check)
            else:
                self._post(one.record, one.tell)


def _nobody(_: DeliveryError | None) -> None:
    """Ignore the result: the first delivery of the record was reported."""


KEPT_S = 600.0
"""As long as Spark keeps its own."""

_Settings = frozenset[tuple[str, str]]
_awaited: Idle[_Settings, Sender] = Idle(KEPT_S, each=4)
_forgetting: Idle[_Settings, Sender] = Idle(KEPT_S)
"""No limit: closing a sender would drop its unsent records."""


def borrow(settings: Mapping[str, str], *, is_awaited: bool = True) -> Sender:
    """Borrow a sender for exclusive use.

    ``is_awaited``: it is flushed before it is given back. Another one may hold errors
    that nobody wants to know.
    """
    pool = _awaited if is_awaited else _forgetting
    sender = pool.take(frozenset(settings.items())) or Sender(settings)
    sender.renew()
    sender.pool = pool
    return sender
