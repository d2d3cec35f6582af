"""Questions of the user's process to the planning process, in a foreachBatch.

Spark connects the two processes only by the calls of a source. ``latestOffset`` takes
an offset and returns one: question and answer are sent as offsets that hold nothing
else. Spark's own thread waits for foreachBatch meanwhile, so nobody else calls. A
question through a query's own stream reaches the query's own planner, also after other
owners have come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from kafka_tx.model import JointBatch, Mode, QueryShape
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.offset_json import MARK, SourceOffset, TransactionMark
from kafka_tx.source.agreement import logged_as
from kafka_tx.transactions.layout.batch_records import (
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
        query_id: Spark's id of the query, which belongs to its checkpoint; under Spark
            Connect, where the planner does not get this id, a substitute.
        start: Spark's offset before the batch; None for the first of a checkpoint.
        shape: Shape of the query, to store; None: only the txid is asked for.
        joint: The batch with the parts of all sources; None: there is one source.
    """

    query_id: str
    batch_id: int
    start: SourceOffset | None
    end: SourceOffset
    shape: QueryShape | None = None
    joint: JointBatch | None = None

    @property
    def spark_batch(self) -> str:
        """The key of the batch and of its replays, which differs for each checkpoint.

        Under Spark Connect the planner knows nothing else of the batch.
        """
        return f"{logged_as(self.end) or self.query_id}/{self.batch_id}"

    @property
    def query_batch(self) -> str:
        """Spark's key of the batch."""
        return f"{self.query_id}/{self.batch_id}"

    @property
    def has_records(self) -> bool:
        """Whether the source moved in this batch; each batch that moves has a txid."""
        return moves(self.start, self.end)

    def to_json(self) -> dict[str, Any]:
        """The offset that carries the question."""
        members = {
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "start": self.start.to_json() if self.start else None,
            "end": self.end.to_json(),
            "shape": shape_fields(self.shape) if self.shape is not None else None,
            "joint": joint_fields(self.joint) if self.joint else None,
        }
        return {MARK: {_QUESTION: members}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self | None:
        """The question in an offset; None for every other offset."""
        members = data.get(MARK, {}).get(_QUESTION)
        if members is None:
            return None
        start, shape = members["start"], members["shape"]
        return cls(
            members["query_id"],
            members["batch_id"],
            SourceOffset.from_json(start) if start else None,
            SourceOffset.from_json(members["end"]),
            read_shape(shape) if shape is not None else None,
            read_joint(members["joint"]),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The batch's txid, the epoch of the planner that handed it out, and its plan.

    Attributes:
        plan, numbering, mode: As of ``TransactionAttempt``.
        joint: The joint batch that a sink may have seen; None: no sink has, or there
            was one source.
        schemas: By side the schema of the plan and that of this run, where they differ.
    """

    txid: int
    epoch: int
    plan: str = field(default="", compare=False)
    numbering: str = field(default="", compare=False)
    mode: Mode = field(default="transactional", compare=False)
    joint: JointBatch | None = field(default=None, compare=False)
    schemas: Mapping[str, tuple[str, str]] = field(default_factory=dict, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The offset that carries the answer."""
        joint = joint_fields(self.joint) if self.joint else None
        return {MARK: {_ANSWER: {**asdict(replace(self, joint=None)), "joint": joint}}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the result of ``to_json``."""
        members = data[MARK][_ANSWER]
        return cls(**{**members, "joint": read_joint(members["joint"])})


def moves(start: SourceOffset | None, end: SourceOffset) -> bool:
    """Whether a transaction ends at ``end`` that did not end at ``start``.

    Compares txids if there are any: equal positions may be of another transaction. Also
    owners: an opaque txid, planned anew by another checkpoint, has other records.
    """
    if end.mark is None:  # from before tx.id was set
        return start is None or goes_on(start, end)
    if end.mark.start or not end.mark.txid:
        return False
    if start is None or start.mark is None or start.mark.start:
        return True
    return _plan(start.mark) != _plan(end.mark)


def goes_on(start: SourceOffset, end: SourceOffset) -> bool:
    """Whether positions move, or belong to another topic than before."""
    former = start.topic_ids
    anew = (is_another(former.get(t), known) for t, known in end.topic_ids.items())
    return dict(start.positions) != dict(end.positions) or any(anew)


def _plan(mark: TransactionMark) -> tuple[str, int, int]:
    return mark.numbering, mark.txid, mark.epoch
