"""The settings of partition managers."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_tx.errors import ConfigError
from kafka_tx.offsets.loss import OutOfRange
from kafka_tx.offsets.retry import BackOff


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """How partition managers behave; the same for all partitions of a spout.

    Attributes:
        back_off: When and how often failed records are tried again.
        max_uncommitted_offsets: No fresh records while this many, per partition, are
            emitted beyond the commit (holes not counted). Retries always go through:
            they are inside. None: no bound.
        max_offset_behind: What is unfinished and further than this below an offset that
            is acknowledged is given up; so is an offset that fails further than this
            below the last emitted one. None: never.
        out_of_range: What to do when the log was cut below what was emitted.
        topology_id: Stored with every offset.
        topology_name: Stored with every offset.

    Raises:
        ConfigError: A bound is below 1.
    """

    back_off: BackOff = field(default_factory=BackOff)
    max_uncommitted_offsets: int | None = 10_000_000
    max_offset_behind: int | None = None
    out_of_range: OutOfRange = OutOfRange.EARLIEST
    topology_id: str = ""
    topology_name: str = ""

    def __post_init__(self) -> None:
        for option in ("max_uncommitted_offsets", "max_offset_behind"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ConfigError.illegal(
                    option, value, "an integer of 1 or more, or None for no bound"
                )
