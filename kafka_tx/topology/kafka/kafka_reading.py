"""The executor's side of Kafka spouts: reads the ranges of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_tx.errors import (
    FailedException,
    KafkaTxError,
    OffsetOutOfRangeError,
    OtherTopicError,
    ReplayImpossibleError,
)
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.offsets.discovery import is_another
from kafka_tx.planning.impossible_replays import replay_impossible
from kafka_tx.protocols import RangeReader
from kafka_tx.topology.declare.spouts import Json
from kafka_tx.topology.kafka.fingerprints import Fingerprint
from kafka_tx.topology.rows.blocks import Block
from kafka_tx.topology.rows.schemes import Scheme


@dataclass(frozen=True, slots=True)
class KafkaEmitter:
    """Reads ranges in a task.

    Attributes:
        reader: Reads one range.
        scheme: From records to rows.
        txid: Named in errors.
        is_exact: Whether the same records must be read as last time.
        seen: By partition, what was read the last time, if it is known.
    """

    reader: RangeReader
    scheme: Scheme
    txid: int
    is_exact: bool
    seen: Mapping[str, Json]

    def read(
        self, partition: str, metadata: Json, facts: dict[str, Json]
    ) -> Iterator[Block]:
        """Yield the rows of one range.

        Raises:
            ReplayImpossibleError: Exact, and the records are gone or other ones, or
                the topic was made anew.
            FailedException: Not exact, and the records are gone, or the topic was made
                anew.
            FetchError: No progress in time.
            AuthenticationError: Credentials, permission or TLS.
        """
        start, end = metadata["start"], metadata["end"]
        wanted = OffsetRange(partition_of(partition), start, end, metadata.get("id"))
        read = Fingerprint()
        if len(wanted):
            try:
                for batch in self.reader.read(wanted):
                    read.add(batch)
                    yield self.scheme.decode(batch).rows
            except OffsetOutOfRangeError as error:
                raise self._gone(wanted, error) from error
        facts.update(read.facts())
        self._check(wanted, facts, self.seen.get(partition))

    def _gone(self, wanted: OffsetRange, error: OffsetOutOfRangeError) -> KafkaTxError:
        if not self.is_exact:
            return FailedException(f"{wanted} cannot be read any more: {error.message}")
        if isinstance(error, OtherTopicError):
            return _cannot_be_replayed(self.txid, wanted, None, f"{error.message}.")
        available = (error.fields.get("log_start"), error.fields.get("log_end"))
        reason = f"The log holds {available}."
        return _cannot_be_replayed(self.txid, wanted, available, reason)

    def _check(self, wanted: OffsetRange, read: Json, seen: Json | None) -> None:
        if seen is not None and read != seen:
            reason = f"It held {seen} the last time and holds {read} now."
            available = (wanted.start, wanted.end)
            raise _cannot_be_replayed(self.txid, wanted, available, reason)


def _cannot_be_replayed(
    txid: int,
    wanted: OffsetRange,
    available: tuple[object, object] | None,
    reason: str,
) -> ReplayImpossibleError:
    """The error for a batch that cannot be read again as it was."""
    return replay_impossible(
        f"txid {txid} holds {wanted}, and these records cannot be read as they were."
        f" {reason}",
        wanted,
        txid=txid,
        available=available,
        advice="Where all sinks are opaque, an opaque spout under the same id goes on"
        " with what is left. Otherwise begin anew: a new id, the option startingOffsets"
        " of the spout where it shall begin, and empty sinks.",
    )


def check_topics(
    txid: int, metadata: Mapping[str, Json], ids: Mapping[str, str]
) -> None:
    """Compare the topics that a planned batch reads with those of today.

    A range without offsets reads nothing, whatever became of its topic; the next batch
    begins where that one has to.

    Raises:
        ReplayImpossibleError: One was deleted and made again under its name.
    """
    for name, part in metadata.items():
        partition = partition_of(name)
        was, now = part.get("id"), ids.get(partition.topic)
        wanted = OffsetRange(partition, part["start"], part["end"])
        if len(wanted) and is_another(was, now):
            reason = f"The topic was re-created: its id was {was}, now {now}."
            raise _cannot_be_replayed(txid, wanted, None, reason)


def kafka_parts(metadata: object) -> dict[TopicPartition, Mapping[str, Any]]:
    """What a Kafka spout planned for each partition; nothing for other spouts."""
    if not isinstance(metadata, Mapping):
        return {}
    return {
        partition_of(name): part
        for name, part in metadata.items()
        if isinstance(part, Mapping) and {"start", "end"} <= part.keys()
    }


def partition_of(name: str) -> TopicPartition:
    """Read the text form ``topic-3``."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))
