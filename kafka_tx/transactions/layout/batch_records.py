"""The records of numbered batches: their paths and their text form.

Compact on purpose: ``{"topic":{"0":[start,end]}}`` takes about 20 bytes for a
partition, and leader epochs take few; see ``offsets/leader_epochs``. A range whose
topic had another id than ``topic_ids`` says has this id as a third member.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from kafka_tx.model import (
    BatchMetadata,
    JointBatch,
    JointPart,
    LogPosition,
    OffsetRange,
    QueryShape,
    Skipped,
    SpoutBatch,
    TopicPartition,
    located,
)
from kafka_tx.offsets.discovery import is_another
from kafka_tx.offsets.leader_epochs import packed, unpacked
from kafka_tx.planning.offset_json import flat, nested
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.txid_layout import COMMITTED, CURRENT


@dataclass(frozen=True, slots=True)
class Committed:
    """The last committed transaction; ``txid`` 0 is a start position.

    ``offsets`` has the next offset of every partition that was ever read and may still
    exist, also of those without a range in the last batch. ``completed_ms``: wall
    clock, Unix epoch. ``empty``: number of consecutive last txids without new records.
    ``by_checkpoint``: a checkpoint set the position; nothing was committed since.
    ``leader_epochs``: epochs of the leaders that held the offsets, if known.
    """

    txid: int
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    completed_ms: int = 0
    empty: int = 0
    by_checkpoint: bool = False
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    def epochs_of(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Leader epochs of some of the partitions; unknown ones are left out."""
        known = self.leader_epochs
        return {p: known[p] for p in partitions if p in known}

    def positions(self) -> dict[TopicPartition, LogPosition]:
        """The next offsets, each with its log."""
        return located(self.offsets, self.topic_ids, self.leader_epochs)

    def moved(
        self,
        offsets: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
        leader_epochs: Mapping[TopicPartition, int],
    ) -> Committed:
        """These offsets instead; other partitions of the same topics keep theirs.

        The offsets are valid for topics of these ids; without an id, for the topic that
        exists when they are used.
        """
        ids, given = self.topic_ids, {partition.topic for partition in offsets}
        same = {
            p: at
            for p, at in self.offsets.items()
            if not is_another(ids.get(p.topic), topic_ids.get(p.topic))
        }
        kept = {topic: id_ for topic, id_ in ids.items() if topic not in given}
        return replace(
            self,
            offsets={**same, **offsets},
            topic_ids={**kept, **topic_ids},
            empty=0,
            leader_epochs={**self.epochs_of(same.keys() - offsets), **leader_epochs},
        )

    @property
    def carried(self) -> int:
        """The txid in Spark's offsets: these do not change without new records.

        A checkpoint's txid is compared with this txid, never with ``txid``.
        """
        return self.txid - self.empty


def first_stored(planned: Mapping[int, BatchMetadata], txid: int) -> int:
    """The lowest txid whose metadata stays when ``txid`` is committed.

    It identifies a replay of this batch. If two batches in a row hold no new records,
    the second may be another checkpoint's: the first may still be replayed.
    """
    two = planned.get(txid - 1), planned.get(txid)
    return txid - all(batch is not None and batch.spark_batch for batch in two)


def after(
    former: Committed | None, metadata: BatchMetadata, completed_ms: int
) -> Committed:
    """The position once ``metadata`` is committed on top of ``former``.

    Partitions without a range keep their offsets. Partitions of a topic that was
    deleted or created anew lose theirs: the log is gone.
    """
    before = former or Committed(0, {})
    ids = {**before.topic_ids, **metadata.topic_ids}
    gone = {t for t, id_ in before.topic_ids.items() if is_another(id_, ids.get(t))}
    kept = {p: offset for p, offset in before.offsets.items() if p.topic not in gone}
    empty = before.empty + 1 if metadata.spark_batch else 0
    ends = metadata.ends()
    epochs = {**before.epochs_of(kept.keys() - ends.keys()), **metadata.leader_epochs()}
    offsets = {**kept, **ends}
    topics = {partition.topic for partition in offsets}
    ids = {topic: id_ for topic, id_ in ids.items() if topic in topics}
    return Committed(
        metadata.txid, offsets, ids, completed_ms, empty, leader_epochs=epochs
    )


def position_records(committed: Committed) -> dict[str, str]:
    """The two records of the position, which change together."""
    payload: dict[str, Any] = {
        "txid": committed.txid,
        "offsets": nested(committed.offsets),
        "topic_ids": dict(committed.topic_ids),
        "completed_ms": committed.completed_ms,
        **({"empty": committed.empty} if committed.empty else {}),
        **({"by_checkpoint": True} if committed.by_checkpoint else {}),
    }
    if committed.leader_epochs:
        payload["leader_epochs"] = packed(committed.leader_epochs)
    return {
        COMMITTED: records.encode(COMMITTED, payload),
        CURRENT: records.encode(CURRENT, committed.txid + 1),
    }


def batch_record(metadata: BatchMetadata) -> str:
    """The record of a txid. The same ranges in any order give the same text."""
    if isinstance(metadata, SpoutBatch):
        said = {"txid": metadata.txid, "metadata": metadata.json}
        return records.encode("batch", said)
    ids = metadata.topic_ids
    ranges = {
        r.topic_partition: [r.start, r.end, *_own_id(r, ids)] for r in metadata.ranges
    }
    payload: dict[str, Any] = {
        "txid": metadata.txid,
        "ranges": nested(ranges),
        "topic_ids": dict(ids),
    }
    if epochs := metadata.leader_epochs():
        payload["leader_epochs"] = packed(epochs)
    if metadata.logged:
        payload["logged"] = nested(metadata.logged)
    flat = ("spark_batch", "logged_as", "was_opaque")
    payload |= {name: value for name in flat if (value := getattr(metadata, name))}
    if metadata.joint is not None:
        payload["joint"] = joint_fields(metadata.joint)
    if metadata.mode == "opaque":
        payload["mode"] = metadata.mode
    lists = {
        "skipped": skipped_fields(metadata.skipped),
        "awaited": [list(partition) for partition in metadata.awaited],
        "unproven": list(metadata.unproven),
    }
    payload |= {name: value for name, value in lists.items() if value}
    if metadata.schemas:
        payload["schemas"] = dict(metadata.schemas)
    if metadata.attempts > 1:
        payload["attempts"] = metadata.attempts
    return records.encode("batch", payload)


def read_txid(payload: object) -> int:
    """The txid in a payload; ValueError if it is no txid."""
    if not isinstance(payload, int) or isinstance(payload, bool) or payload < 1:
        msg = f"{payload!r} is no txid"
        raise ValueError(msg)
    return payload


def read_committed(payload: Any) -> Committed:  # noqa: ANN401 - any JSON
    """The position in a payload; KeyError or the like if it holds none."""
    return Committed(
        txid=int(payload["txid"]),
        offsets=flat(payload["offsets"]),
        topic_ids=dict(payload["topic_ids"]),
        completed_ms=int(payload["completed_ms"]),
        empty=int(payload.get("empty", 0)),
        by_checkpoint=bool(payload.get("by_checkpoint")),
        leader_epochs=unpacked(payload.get("leader_epochs", {})),
    )


def read_batch(payload: Any) -> BatchMetadata:  # noqa: ANN401 - any JSON
    """The metadata in a payload; KeyError or the like if it holds none."""
    if "metadata" in payload:
        return SpoutBatch(int(payload["txid"]), (), json=payload["metadata"])
    epochs = unpacked(payload.get("leader_epochs", {}))
    ids = dict(payload["topic_ids"])
    ranges = tuple(
        OffsetRange(
            at, int(start), int(end), own[0] if own else ids.get(topic), epochs.get(at)
        )
        for topic, by_number in payload["ranges"].items()
        for number, (start, end, *own) in by_number.items()
        for at in (TopicPartition(topic, int(number)),)
    )
    return BatchMetadata(
        int(payload["txid"]),
        ranges,
        ids,
        str(payload.get("spark_batch", "")),
        flat(payload.get("logged", {})),
        str(payload.get("logged_as", "")),
        read_joint(payload.get("joint")),
        payload.get("mode", "transactional"),
        read_skipped(payload.get("skipped", {})),
        int(payload.get("attempts", 1)),
        bool(payload.get("was_opaque")),
        tuple(TopicPartition(str(t), int(n)) for t, n in payload.get("awaited", ())),
        tuple(map(int, payload.get("unproven", ()))),
        dict(payload.get("schemas", {})),
    )


def _own_id(wanted: OffsetRange, ids: Mapping[str, str]) -> list[str]:
    own = wanted.topic_id
    return [] if own in (None, ids.get(wanted.topic_partition.topic)) else [own]


def skipped_fields(skipped: Skipped) -> dict[str, Any]:
    """Skipped offsets for JSON: ``{"retention": {"topic": {"0": 7}}}``."""
    reasons = sorted({str(reason) for _, reason in skipped})
    return {
        reason: nested({p: n for (p, why), n in skipped.items() if why == reason})
        for reason in reasons
    }


def read_skipped(payload: Any) -> dict[tuple[TopicPartition, str], int]:  # noqa: ANN401 - any JSON
    """Decode ``skipped_fields``."""
    return {
        (partition, str(reason)): n
        for reason, offsets in payload.items()
        for partition, n in flat(offsets).items()
    }


def joint_fields(joint: JointBatch) -> dict[str, Any]:
    """A joint batch for JSON."""
    parts = {name: list(part) for name, part in sorted(joint.parts.items())}
    return {"numbers": joint.numbers, "parts": parts}


def read_joint(payload: Any) -> JointBatch | None:  # noqa: ANN401 - any JSON
    """Decode ``joint_fields``; None for None."""
    if payload is None:
        return None
    parts = {name: JointPart(*part[:3]) for name, part in payload["parts"].items()}
    return JointBatch(str(payload["numbers"]), parts)


def shape_fields(shape: QueryShape) -> dict[str, list[str]]:
    """A query's shape for JSON."""
    return {name: list(values) for name, values in asdict(shape).items()}


def read_shape(payload: Any) -> QueryShape:  # noqa: ANN401 - any JSON
    """Decode ``shape_fields``."""
    known = {each.name for each in fields(QueryShape)} & payload.keys()
    return QueryShape(**{name: tuple(payload[name]) for name in known})
