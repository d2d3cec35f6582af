"""What the user's process asks the planning process, inside of a foreachBatch.

Spark gives the two no way to talk, except the calls of a source. ``latestOffset`` takes
an offset and gives one back: a question is an offset that holds nothing but one, and so
is its answer. Spark's own thread waits for foreachBatch meanwhile, so that nobody else
calls. Whoever asks through a query's own stream hears its own planner, whatever other
owners have come since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from kafka_tx.model import JointBatch, Mode, QueryShape
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.offset_json import MARK, SourceOffset, TransactionMark
from kafka_tx.source.agreement import logged_as
from kafka_tx.transactions.ledger_records import (
    joint_fields,
    read_joint,
    read_shape,
    shape_fields,
)

_QUESTION, _ANSWER = "question", "answer"


@dataclass(frozen=True, slots=True)
class Question:
    """Which transaction is this batch of Spark?

    Attributes:
        query_id: Spark's id of the query, which goes with its checkpoint; under Spark
            Connect, where the planner does not hear it, what stands for it.
        batch_id: Spark's number of the batch.
        start: Spark's offset before the batch; None for the first of a checkpoint.
        end: Its offset after the batch.
        shape: What else the query keeps, to be stored; None: only the number is asked.
        joint: The batch as all sources of the query have it; None: there is one.
    """

    query_id: str
    batch_id: int
    start: SourceOffset | None
    end: SourceOffset
    shape: QueryShape | None = None
    joint: JointBatch | None = None

    @property
    def spark_batch(self) -> str:
        """What a replay of the batch is known by: its end, and its number.

        Each checkpoint has its own name for where it is. Under Spark Connect the
        planner knows nothing else of it.
        """
        return f"{logged_as(self.end) or self.query_id}/{self.batch_id}"

    @property
    def query_batch(self) -> str:
        """What Spark knows the batch by."""
        return f"{self.query_id}/{self.batch_id}"

    @property
    def has_records(self) -> bool:
        """Whether the source moved in this batch; each batch that moves has a txid."""
        return moves(self.start, self.end)

    def to_json(self) -> dict[str, Any]:
        """The offset that asks it."""
        asked = {
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "start": self.start.to_json() if self.start else None,
            "end": self.end.to_json(),
            "shape": shape_fields(self.shape) if self.shape is not None else None,
            "joint": joint_fields(self.joint) if self.joint else None,
        }
        return {MARK: {_QUESTION: asked}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self | None:
        """The question that an offset asks; None for every other offset."""
        asked = data.get(MARK, {}).get(_QUESTION)
        if asked is None:
            return None
        start, shape = asked["start"], asked["shape"]
        return cls(
            asked["query_id"],
            asked["batch_id"],
            SourceOffset.from_json(start) if start else None,
            SourceOffset.from_json(asked["end"]),
            read_shape(shape) if shape is not None else None,
            read_joint(asked["joint"]),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The batch's txid, the epoch of the planner that handed it out, and its plan.

    Attributes:
        plan, numbering, mode: As of ``TransactionAttempt``.
        joint: The batch as all sources had it when a sink may have seen it; None: none
            has, or there was one source.
    """

    txid: int
    epoch: int
    plan: str = field(default="", compare=False)
    numbering: str = field(default="", compare=False)
    mode: Mode = field(default="transactional", compare=False)
    joint: JointBatch | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The offset that tells it."""
        joint = joint_fields(self.joint) if self.joint else None
        return {MARK: {_ANSWER: {**asdict(replace(self, joint=None)), "joint": joint}}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What ``to_json`` wrote."""
        reported = data[MARK][_ANSWER]
        return cls(**{**reported, "joint": read_joint(reported["joint"])})


def moves(start: SourceOffset | None, end: SourceOffset) -> bool:
    """Whether a transaction ends at ``end`` that did not end at ``start``.

    By txid where there is one: positions may stay where they are, and be another's. By
    owner too: an opaque txid that another checkpoint has planned anew holds others.
    """
    if end.mark is None:  # from before tx.id was set
        return start is None or goes_on(start, end)
    if end.mark.start or not end.mark.txid:
        return False
    if start is None or start.mark is None or start.mark.start:
        return True
    return _plan(start.mark) != _plan(end.mark)


def goes_on(start: SourceOffset, end: SourceOffset) -> bool:
    """Whether positions move, or are of another topic than before."""
    former = start.topic_ids
    anew = (is_another(former.get(t), known) for t, known in end.topic_ids.items())
    return dict(start.positions) != dict(end.positions) or any(anew)


def _plan(mark: TransactionMark) -> tuple[str, int, int]:
    return mark.numbering, mark.txid, mark.epoch
