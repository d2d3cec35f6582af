"""What Kafka spouts read, and how much at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_tx.model import Earliest, Position, Subscription
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.planning.limits import BatchLimits
from kafka_tx.topology.rows.schemes import RawScheme, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBatches:
    """What a Kafka spout reads, and how much at a time.

    Attributes:
        subscription: Topics, a pattern, or partitions.
        start: Where the partitions of the very first batch start; None: the spout
            overrides ``first_offsets``. Partitions that come later start at the
            earliest offset.
        limits: Of a batch.
        scheme: From records to rows.
        out_of_range: What to do, when a batch is planned, with a partition whose next
            offset is not in the log any more. None: a transactional spout fails, an
            opaque one goes on at the earliest offset and counts what it skipped.
        poll_ms: While there is nothing to read, ask the brokers this often.
        refresh_ms: While there is nothing to read, look for new partitions this often.
    """

    subscription: Subscription
    start: Position | None = field(default_factory=Earliest)
    limits: BatchLimits = field(default_factory=BatchLimits)
    scheme: Scheme = field(default_factory=RawScheme)
    out_of_range: OutOfRange | None = None
    poll_ms: int = 100
    refresh_ms: int = 5_000
