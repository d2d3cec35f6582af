"""Bringing the store to where a checkpoint is, or finding that the two disagree."""

from __future__ import annotations

from kafka_tx.config import TransactionsConfig
from kafka_tx.model import Subscription, TopicPartition
from kafka_tx.offsets.discovery import is_subscribed
from kafka_tx.planning.cluster_poller import Positions
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source import agreement
from kafka_tx.source.empty_batches import is_spent
from kafka_tx.source.joint_batches import JointBatches
from kafka_tx.source.kept_batches import KeptBatches
from kafka_tx.source.logged_batches import all_of


class CheckpointSettling:
    """Judges where a checkpoint is against what the store has.

    A checkpoint may be one step ahead of the store (crash before the commit) or exactly
    with it; anything else contradicts, and ``tx.onDisagreement`` decides, but not in a
    query with several sources.

    Args:
        joint: What the batches have to do with other sources of the query.
        wanted: What the query reads; the rest of the store's positions waits there.
    """

    def __init__(
        self,
        transactions: TransactionsConfig,
        kept: KeptBatches,
        joint: JointBatches,
        wanted: Subscription,
    ) -> None:
        self._tx = transactions
        self._kept = kept
        self._joint = joint
        self._wanted = wanted

    def settle(self, start: SourceOffset) -> Positions:
        """Commit what Spark is done with; the positions to go on from.

        Args:
            start: Where the checkpoint is.

        Raises:
            CheckpointDisagreesError: And nothing says who decides.
        """
        kept = self._kept
        if start.mark is None and kept.committed is None:
            # A checkpoint from before tx.id was set: its offsets become transaction 0.
            kept.adopt(
                0, start.positions, start.topic_ids, leader_epochs=start.leader_epochs
            )
        kept.own_newest(start)
        self._joint.check_done(start)
        kept.commit_if_next(start)
        batch = kept.next()
        if batch is not None and is_spent(kept, batch, start):
            kept.commit(batch.txid)
        kept.check_mode()
        self._joint.check_start(start)
        return kept.settled(start) if kept.agrees(start) else self._disagree(start)

    def subscribed(self, offsets: Positions) -> dict[TopicPartition, int]:
        """Those that the query still wants to read; the others wait in the store."""
        return {p: at for p, at in offsets.items() if is_subscribed(self._wanted, p)}

    def _disagree(self, start: SourceOffset) -> Positions:
        kept = self._kept
        state = kept.committed
        decides = agreement.who_decides(self._tx, kept.case_of(start), kept.query)
        if decides == "store" and state is not None:
            return self.subscribed(state.offsets)
        if decides == "checkpoint":
            logged = start.mark.txid if start.mark else 0
            numbering = agreement.numbering_of(start)
            kept.adopt(
                max(logged, kept.newest(numbering)),
                all_of(start),
                start.topic_ids,
                numbering,
                start.leader_epochs,
                by_checkpoint=True,
            )
            return start.positions
        raise kept.contradiction(start)
