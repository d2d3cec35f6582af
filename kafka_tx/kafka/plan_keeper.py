"""Storing how many parts a sink's batches have, before the first part is written."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition as ClientPartition

from kafka_tx.errors import KafkaError, StateCorruptedError
from kafka_tx.kafka.group_reader import read_group
from kafka_tx.kafka.marker_log import MarkerLog
from kafka_tx.kafka.transaction import Transaction
from kafka_tx.transactions.sink_parts import Marker, Part
from kafka_tx.transactions.sink_plan import SinkPlan, Wish, planned

_TIMEOUT_MS = 30_000


class PlanKeeper:
    """Settles and keeps the plan of a sink (driver).

    Args:
        settings: From ``client_settings(…, purpose="producer")``.
        log: The marker topic.
        reading: From ``client_settings(…, purpose="consumer")``.
    """

    def __init__(
        self, settings: Mapping[str, str], log: MarkerLog, reading: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._log = log
        self._reading = {**reading, "isolation.level": "read_committed"}

    def settle(self, wish: Wish, topic: str) -> SinkPlan:
        """The plan for a batch, stored unless it was.

        An older program that is about to store its own is fenced.

        Raises:
            ConfigError, FencedError: as ``planned``.
            StateCorruptedError: The sink was written, and its plan is gone.
            AuthenticationError, KafkaError: The brokers refuse, or do not answer.
        """
        with self._begun(wish) as transaction:
            memory = self._log.recall(wish.id, lambda n, r: self._fence(wish, n, r))
            if memory.plan is None and not memory.markers:
                self._check_new(wish, topic)
            plan = planned(memory.plan, wish)
            if plan == memory.plan:
                return plan
            with transaction.writing():
                transaction.send([self._log.plan(wish.id, plan)])
            try:
                transaction.commit()
            except KafkaError:
                with self._begun(wish):  # fences the transaction in doubt
                    if self._log.recall(wish.id).plan != plan:
                        raise
        return plan

    def _begun(self, wish: Wish) -> Transaction:
        name = f"kafka_tx.{wish.id}.plan"
        what = f"the plan of sink '{wish.id}'"
        return Transaction(self._settings, name, what, self._reading, name)

    def _fence(self, wish: Wish, name: str, run: str) -> None:
        """End what an earlier run has left open."""
        if run != str(wish.epoch) and name != f"kafka_tx.{wish.id}.plan":
            what = f"what sink '{wish.id}' left open"
            with Transaction(self._settings, name, what, self._reading, name):
                pass

    def _check_new(self, wish: Wish, topic: str) -> None:
        """A sink without any record must not have a group that knows of some."""
        part = Part(wish.id, wish.txid, 0, wish.parts)
        places = [ClientPartition(topic, 0)]
        found = read_group(self._reading, part.group, places, _TIMEOUT_MS)
        if not found:
            return
        kept = Marker.of_metadata(0, found[0].offset, found[0].metadata)
        if kept.run:
            raise StateCorruptedError(
                f"the topic '{self._log.topic}' has lost what it held of sink"
                f" '{wish.id}', which group '{part.group}' still knows at txid"
                f" {kept.txid}: the topic was deleted or is not compacted, or"
                " 'tx.markerTopic' was changed. Nothing was written. Give the former"
                " 'tx.markerTopic'. If it is gone, compare the sink's topic with the"
                " source, and go on with another tx.id of the sink, which writes an"
                " unfinished batch whole.",
                store=self._log.topic,
                path=part.group,
                reason="lost",
            )
