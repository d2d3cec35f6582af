"""What becomes of the records of a chunk: done, failed, given up, fetched again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import numpy as np

from kafka_tx.errors import (
    DeliveryError,
    KafkaTxError,
    OffsetOutOfRangeError,
    TransactionError,
)
from kafka_tx.model import OffsetRange
from kafka_tx.offsets.emitting import Emission
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager_answers import GiveUp
from kafka_tx.offsets.runs import OffsetRuns
from kafka_tx.protocols import Clock
from kafka_tx.running.at_least_once.asker import Post
from kafka_tx.running.at_least_once.dead_letters import Buried, Letter
from kafka_tx.running.at_least_once.manager_metrics import SpoutMetrics
from kafka_tx.running.at_least_once.poller import SpoutPoller
from kafka_tx.topology.run.messages import RootsFailed
from kafka_tx.topology.tracked.chunk_flights import ChunkFlight, ChunkFlights
from kafka_tx.topology.tracked.chunks import Chunk
from kafka_tx.transactions.root_blocks import BlockLedger, Roots

logger = logging.getLogger(__name__)

LETTER_AGAIN_MS = 1_000
"""Before a dead letter that could not be written is tried again."""

_TEMPORARY = ("_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN")


class ChunkAnswers:
    """Carries what jobs found out to the partition managers (the topology's thread).

    Args:
        pollers: The spouts.
        metrics: Of each spout.
        ledger: Holds the block of every flight.
        post: Has a call made on this thread.
        clock: The machine's.
    """

    def __init__(
        self,
        pollers: Mapping[str, SpoutPoller],
        metrics: Mapping[str, SpoutMetrics],
        ledger: BlockLedger,
        post: Post,
        clock: Clock,
    ) -> None:
        self.flights = ChunkFlights()
        self._pollers = pollers
        self._metrics = metrics
        self._ledger = ledger
        self._post = post
        self._clock = clock
        self._again: list[tuple[int, str, Emission, Letter]] = []

    # --- chunks ---

    def finished(self, flight: ChunkFlight, chunk: Chunk) -> int:
        """Its job has ended well; some of its records may still be open.

        Returns:
            How many of its records were given to bolts; 0 when it had timed out.
        """
        if flight not in self.flights:
            return 0  # its records were answered
        facts = chunk.facts
        names = {str(e.range.topic_partition) for e in flight.emissions}
        self._metrics[flight.spout].fetched(facts, names)
        ended = chunk.settle(self._ledger, flight.first_root)
        failed = ended.failed
        holes = _holes(facts)
        for emission, records in flight.offsets(ended.completed):
            _complete(emission, records, holes.get(str(records.topic_partition)))
        count = len(ended.completed) + len(failed) + len(ended.untried)
        self.flights.settled(flight, count)
        self._untried(flight, ended.untried)
        for told in chunk.failed:
            roots = np.intersect1d(told.roots, failed, assume_unique=True)
            failed = np.setdiff1d(failed, roots, assume_unique=True)
            if told.component == flight.spout and _is_fetch(told, facts):
                self._fetch_again(flight, roots, told.reason)
            else:
                self.fail(flight, roots, f"{told.component}: {told.reason}")
        return len(flight.roots) - len(ended.untried)

    def _untried(self, flight: ChunkFlight, roots: Roots) -> None:
        """There was no time for these; a lone record had the whole time-out."""
        if len(flight.roots) == len(roots) == 1:
            self.timed_out(flight, roots, "not worked off within the time-out")
        else:
            self._release(flight, roots)

    def failed(self, flight: ChunkFlight, reason: str) -> None:
        """All of its records failed, since user code asked for that."""
        if self._end(flight):
            self.fail(flight, flight.roots, reason)

    def unused(self, flight: ChunkFlight) -> None:
        """Its bolts were not ready: all of its records are emitted again."""
        if self._end(flight):
            self._release(flight, flight.roots)

    def lost(self, flight: ChunkFlight, reason: str) -> None:
        """Its job was lost; a record that is lost alone has failed."""
        if not self._end(flight):
            return
        if len(flight.roots) == 1:
            self.fail(flight, flight.roots, reason)
        else:
            self._release(flight, flight.roots)

    def timed_out(self, flight: ChunkFlight, roots: Roots, reason: str) -> None:
        """These of its records (ascending), which bolts were given, took too long."""
        for _, records in flight.offsets(roots):
            at = records.topic_partition
            self._metrics[flight.spout].timed_out[at] += len(records)
            logger.warning("%s: %s", records, reason)
        self.fail(flight, roots, reason)

    def wait_for(self, flight: ChunkFlight) -> None:
        """Its time is over, but its job runs and no bolt holds a row for too long."""
        logger.info("chunk %s takes its time", flight.attempt)
        self._ledger.begin(flight.first_root, flight.open)
        self.flights.add(flight)

    def silent(self, flight: ChunkFlight, reason: str) -> None:
        """Its job does not end, and nobody knows why; a lone record has failed."""
        if len(flight.roots) == 1:
            self.timed_out(flight, flight.roots, reason)
            return
        logger.warning(
            "chunk %s: %s; its %d records are emitted again in smaller ones",
            flight.attempt,
            reason,
            len(flight.roots),
        )
        self._release(flight, flight.roots)

    def hangs(self, flight: ChunkFlight, roots: Roots, reason: str) -> None:
        """A bolt does not give these of its records back; one of them is to blame."""
        if not self._end(flight):
            return
        everything = flight.roots
        roots = np.intersect1d(everything, roots)
        if len(roots) == 1:
            self.timed_out(flight, roots, reason)
            everything = np.setdiff1d(everything, roots)
        else:
            logger.warning(
                "%d records of chunk %s: %s", len(roots), flight.attempt, reason
            )
        self._release(flight, everything)

    def fail(self, flight: ChunkFlight, roots: Roots, reason: str) -> None:
        """These records failed; those without a try left are given up."""
        now_ms = self._clock.monotonic_ms()
        for emission, records in flight.offsets(roots):
            manager, generation = emission.manager, emission.generation
            for gone in manager.fail(records, now_ms, generation):
                self._give_up(flight.spout, emission, gone, reason)
            if manager.is_hopeless:
                raise TransactionError(
                    f"{manager.topic_partition}: {manager.counts.failed} failures and"
                    f" not one record completed; the last: {reason}"
                )

    def _end(self, flight: ChunkFlight) -> bool:
        """Close its block; False if it has timed out."""
        if flight not in self.flights:
            return False
        roots = flight.roots
        self._ledger.init(roots, np.ones(len(roots), np.uint64))
        self._ledger.fail(roots)
        self.flights.settled(flight, flight.open)
        return True

    def _fetch_again(self, flight: ChunkFlight, roots: Roots, reason: str) -> None:
        if not len(roots):
            return
        self._release(flight, roots)
        partitions = {r.topic_partition for _, r in flight.offsets(roots)}
        for partition in sorted(partitions):
            logger.warning("%s will be fetched again: %s", partition, reason)
            self._pollers[flight.spout].fetch_failed(partition)

    def _release(self, flight: ChunkFlight, roots: Roots) -> None:
        now_ms = self._clock.monotonic_ms()
        for emission, records in flight.offsets(roots):
            emission.manager.release(records, now_ms, emission.generation)

    # --- records without a try left ---

    def _give_up(
        self, spout: str, emission: Emission, gone: GiveUp, reason: str
    ) -> None:
        letter = Letter(gone.records, gone.attempts, reason)
        if self._pollers[spout].parts.dead_letters is not None:
            self._write(spout, emission, letter)
            return
        logger.warning(
            "%s is skipped after %d attempts: %s", gone.records, gone.attempts, reason
        )
        self._metrics[spout].skipped[gone.records.topic_partition] += len(gone.records)
        emission.manager.ack(gone.records, emission.generation)

    def _write(self, spout: str, emission: Emission, letter: Letter) -> None:
        dead_letters = self._pollers[spout].parts.dead_letters
        assert dead_letters is not None

        def answer(written: Buried, error: Exception | None) -> None:
            self._post(lambda: self._written(spout, emission, letter, written, error))

        dead_letters.write(letter, answer)

    def _written(
        self,
        spout: str,
        emission: Emission,
        letter: Letter,
        written: Buried,
        error: Exception | None,
    ) -> None:
        if error is None:
            at = letter.records.topic_partition
            self._metrics[spout].written[at] += written.written
            self._metrics[spout].cut[at] += written.cut
            emission.manager.ack(letter.records, emission.generation)
        elif isinstance(error, OffsetOutOfRangeError):
            logger.warning("%s is gone before its dead letter", letter.records)
            emission.manager.trim(letter.records.end)
        elif _may_pass(error):
            logger.warning("a dead letter will be tried again: %s", error)
            at_ms = self._clock.monotonic_ms() + LETTER_AGAIN_MS
            self._again.append((at_ms, spout, emission, letter))
        else:
            raise error

    def write_again(self) -> None:
        """Try the dead letters whose time has come."""
        now_ms = self._clock.monotonic_ms()
        due = [each for each in self._again if each[0] <= now_ms]
        self._again = [each for each in self._again if each[0] > now_ms]
        for _, spout, emission, letter in due:
            self._write(spout, emission, letter)

    def wakes(self) -> Iterator[int]:
        """When dead letters are to be tried again (monotonic)."""
        for at_ms, *_ in self._again:
            yield at_ms


def _holes(facts: Mapping[str, object]) -> dict[str, OffsetRuns]:
    """Where the partitions turned out to hold no record, by their text form."""
    return {
        name: OffsetRuns(*told["holes"])
        for name, told in facts.items()
        if isinstance(told, dict) and told.get("holes")
    }


def _complete(
    emission: Emission, records: OffsetRange, holes: OffsetRuns | None
) -> None:
    """Everything of a range has ended; only what was a record counts as one."""
    manager, generation = emission.manager, emission.generation
    if holes is None:
        manager.ack(records, generation)
        return
    present = list(holes.gaps(records.start, records.end))
    before = manager.counts.lost[LossReason.COMPACTED]
    manager.passed(records, present, generation)
    gone = manager.counts.lost[LossReason.COMPACTED] - before
    if gone:
        logger.warning("%s: compaction removed %d failed records", records, gone)
    for run in present:
        manager.ack(OffsetRange(records.topic_partition, *run), generation)


def _is_fetch(told: RootsFailed, facts: Mapping[str, object]) -> bool:
    """Whether records failed since they could not be fetched, not since of them."""
    classes = {
        name
        for fact in facts.values()
        if isinstance(fact, dict)
        for name in fact.get("errors", ())
    }
    return any(told.reason.startswith(f"[{name}]") for name in classes)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, DeliveryError):
        return error.code in _TEMPORARY
    return isinstance(error, KafkaTxError) and error.retryable
