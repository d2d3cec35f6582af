"""Storing how many parts a sink's batches have, before the first part is written."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.errors import KafkaError, StateCorruptedError
from kafka_tx.kafka.marker_log import MarkerLog
from kafka_tx.kafka.transaction import Transaction
from kafka_tx.transactions.sink_memory import Entry, Memory
from kafka_tx.transactions.sink_parts import Digest, Part, name_of
from kafka_tx.transactions.sink_plan import SinkPlan, Wish, planned


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

    def settle(self, wish: Wish) -> tuple[SinkPlan, Memory]:
        """The plan for a batch, stored unless it was; and what the tasks may know.

        An older program that is about to store its own is fenced.

        Raises:
            AnotherNumberingError, FencedError, OutOfOrderError: as ``planned``.
            ConfigError: The marker topic forgets.
            StateCorruptedError: The sink was written, and its plan is gone.
            AuthenticationError, KafkaError: The brokers refuse, or do not answer.
        """
        with self._begun(wish) as transaction:
            memory = self._recall(wish)
            if memory.plan is None and not memory.markers:
                self._check_new(wish)
            last = max((m.txid for m in memory.markers if not m.life), default=0)
            plan = planned(memory.plan, wish, last)
            if plan == memory.plan:
                return plan, memory
            entry = Entry(wish.id, plan)
            with transaction.writing():
                transaction.send([self._log.record(entry)], is_small=True)
                transaction.add_offset(self._log.offset(entry))
            try:
                transaction.commit()
            except KafkaError:
                with self._begun(wish):  # fences the transaction in doubt
                    if self._recall(wish).plan != plan:
                        raise
        return plan, memory

    def _recall(self, wish: Wish) -> Memory:
        return self._log.recall(wish.id, own=name_of(wish.id, "plan"))

    def _begun(self, wish: Wish) -> Transaction:
        name = name_of(wish.id, "plan")
        what = f"the plan of sink '{wish.id}'"
        return Transaction(self._settings, name, what, self._reading, name)

    def _check_new(self, wish: Wish) -> None:
        """A sink without any record must not have a group that knows of some."""
        part = Part(wish.id, wish.txid, 0, wish.parts)
        found = self._log.kept(Entry(wish.id, part.marker(Digest())))
        if found is not None:
            raise StateCorruptedError(
                f"the topic '{self._log.topic}' has lost what it held of sink"
                f" '{wish.id}', which group '{part.group}' still knows at txid"
                f" {found.txid}: the topic was deleted or is not compacted, or"
                " 'tx.markerTopic' was changed. Nothing was written. Give the former"
                " 'tx.markerTopic'. If it is gone, compare the sink's topic with the"
                " source, and go on with another tx.id of the sink, which writes an"
                " unfinished batch whole.",
                store=self._log.topic,
                path=part.group,
                reason="lost",
            )
