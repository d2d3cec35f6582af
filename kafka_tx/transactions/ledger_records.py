"""The records of the ledger: what they are called and how they are written.

Compact on purpose: ``{"topic":{"0":[start,end]}}`` takes a few dozen bytes for a
partition, so that 5,000 partitions are one record of a quarter of a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from kafka_tx.model import (
    BatchMetadata,
    JointBatch,
    OffsetRange,
    QueryShape,
    TopicPartition,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.transactions import records
from kafka_tx.transactions.txid_layout import COMMITTED, CURRENT, METADATA

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Committed:
    """The last transaction that is committed; ``txid`` 0 is a start position.

    ``offsets`` has the next offset of every partition that ever took part, also of
    those without a range in the last batch. ``completed_ms``: wall clock, Unix epoch.
    ``empty``: how many of the last txids were batches without new records.
    """

    txid: int
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    completed_ms: int = 0
    empty: int = 0

    @property
    def carried(self) -> int:
        """The txid that Spark's offsets carry here: they do not move without records.

        What a checkpoint says is compared with this one, never with ``txid``.
        """
        return self.txid - self.empty


def metadata_path(txid: int) -> str:
    """Where the ranges of a txid are. Not padded: list them by number, not by text."""
    return f"{METADATA}{txid}"


def after(
    former: Committed | None, metadata: BatchMetadata, completed_ms: int
) -> Committed:
    """The position once ``metadata`` is committed on top of ``former``.

    Partitions that the batch left out keep their offsets, but not those of a topic that
    is another one since: its log is gone.
    """
    before = former or Committed(0, {})
    ids = {**before.topic_ids, **metadata.topic_ids}
    kept = {
        partition: offset
        for partition, offset in before.offsets.items()
        if not is_another(
            before.topic_ids.get(partition.topic), ids.get(partition.topic)
        )
    }
    empty = before.empty + 1 if metadata.spark_batch else 0
    offsets = {**kept, **metadata.ends()}
    return Committed(metadata.txid, offsets, ids, completed_ms, empty)


def position_records(committed: Committed) -> dict[str, str]:
    """Where the next transaction stands: the two records that move together."""
    payload = {
        "txid": committed.txid,
        "offsets": _by_topic(committed.offsets.items()),
        "topic_ids": dict(committed.topic_ids),
        "completed_ms": committed.completed_ms,
        **({"empty": committed.empty} if committed.empty else {}),
    }
    return {
        COMMITTED: records.encode(COMMITTED, payload),
        CURRENT: records.encode(CURRENT, committed.txid + 1),
    }


def batch_record(metadata: BatchMetadata) -> str:
    """The ranges of a txid. The same ranges in any order give the same text."""
    ranges = ((r.topic_partition, [r.start, r.end]) for r in metadata.ranges)
    payload: dict[str, Any] = {
        "txid": metadata.txid,
        "ranges": _by_topic(ranges),
        "topic_ids": dict(metadata.topic_ids),
        **({"spark_batch": metadata.spark_batch} if metadata.spark_batch else {}),
    }
    if metadata.logged:
        payload["logged"] = _by_topic(metadata.logged.items())
    if metadata.logged_as:
        payload["logged_as"] = metadata.logged_as
    if metadata.joint is not None:
        payload["joint"] = joint_fields(metadata.joint)
    return records.encode("batch", payload)


def read_committed(payload: Any) -> Committed:  # noqa: ANN401 - any JSON
    """The position that a payload says; KeyError and the like when it says none."""
    return Committed(
        txid=int(payload["txid"]),
        offsets=_offsets(payload["offsets"]),
        topic_ids=dict(payload["topic_ids"]),
        completed_ms=int(payload["completed_ms"]),
        empty=int(payload.get("empty", 0)),
    )


def read_batch(payload: Any) -> BatchMetadata:  # noqa: ANN401 - any JSON
    """The ranges that a payload says; KeyError and the like when it says none."""
    ranges = tuple(
        OffsetRange(TopicPartition(topic, int(number)), int(start), int(end))
        for topic, by_number in payload["ranges"].items()
        for number, (start, end) in by_number.items()
    )
    return BatchMetadata(
        int(payload["txid"]),
        ranges,
        dict(payload["topic_ids"]),
        str(payload.get("spark_batch", "")),
        _offsets(payload.get("logged", {})),
        str(payload.get("logged_as", "")),
        read_joint(payload.get("joint")),
    )


def joint_fields(joint: JointBatch) -> dict[str, Any]:
    """A joint batch for JSON."""
    parts = {name: list(part) for name, part in sorted(joint.parts.items())}
    return {"numbers": joint.numbers, "parts": parts}


def read_joint(payload: Any) -> JointBatch | None:  # noqa: ANN401 - any JSON
    """What ``joint_fields`` made; None of None."""
    if payload is None:
        return None
    parts = {n: (int(txid), str(end)) for n, (txid, end) in payload["parts"].items()}
    return JointBatch(str(payload["numbers"]), parts)


def shape_fields(shape: QueryShape) -> dict[str, list[str]]:
    """A query's shape for JSON."""
    return {name: list(values) for name, values in asdict(shape).items()}


def read_shape(payload: Any) -> QueryShape:  # noqa: ANN401 - any JSON
    """What ``shape_fields`` made."""
    return QueryShape(**{name: tuple(values) for name, values in payload.items()})


def _offsets(nested: Any) -> dict[TopicPartition, int]:  # noqa: ANN401 - any JSON
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, by_number in nested.items()
        for number, offset in by_number.items()
    }


def _by_topic(values: Iterable[tuple[TopicPartition, _T]]) -> dict[str, dict[str, _T]]:
    """``{"topic": {"0": …}}``, by topic, then partition number."""
    nested: dict[str, dict[str, _T]] = {}
    for (topic, number), value in sorted(values, key=lambda item: item[0]):
        nested.setdefault(topic, {})[str(number)] = value
    return nested
