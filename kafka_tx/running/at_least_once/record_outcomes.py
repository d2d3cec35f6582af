"""Settles the records of a chunk: done, failed, given up, or fetched again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kafka_tx.errors import KafkaTxError, TransactionError
from kafka_tx.logs import event_log
from kafka_tx.model import OffsetRange, TopicPartition
from kafka_tx.offsets.emitting import Emission
from kafka_tx.offsets.loss import LossReason
from kafka_tx.offsets.manager_answers import GiveUp
from kafka_tx.offsets.runs import OffsetRuns
from kafka_tx.protocols import Clock
from kafka_tx.running.at_least_once.dead_letters import (
    Buried,
    DeadLetter,
    LetterUnreadError,
)
from kafka_tx.running.at_least_once.in_flight_chunk import InFlightChunk
from kafka_tx.running.at_least_once.poller import SpoutPoller
from kafka_tx.running.serial_worker import Post
from kafka_tx.topology.at_least_once.chunks import Chunk
from kafka_tx.topology.run.messages import NO_ROOTS, Roots, RootsFailed

logger = event_log(__name__)

Facts = Mapping[str, Any]
"""By the text form of a partition, what the tasks report of it."""


DEAD_LETTER_AGAIN_MS = 1_000
"""Pause before a dead letter that could not be written is tried again."""

MOST_UNWRITTEN = 10_000
"""Dead letters of a spout that may wait to be written (3 to 4 kB each); with more, no
chunk of the spout begins. A letter has one record, or a run of them that failed alike.
"""

LOGGED_REASONS = 100
"""How many different reasons of failures a topology logs."""

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
"""Differ between texts of one reason: addresses, attempts, tasks of Spark."""


class RecordOutcomes:
    """Passes the results of jobs to the partition managers, on the topology's thread.

    It holds all chunks with records that are not settled, in the order of their roots.
    """

    def __init__(
        self, pollers: Mapping[str, SpoutPoller], post: Post, clock: Clock
    ) -> None:
        self._in_flight: dict[int, InFlightChunk] = {}
        self._logged: set[str] = set()
        self._pollers = pollers
        self._post = post
        self._clock = clock
        self._again: list[tuple[int, str, Emission, DeadLetter]] = []
        self._unwritten: Counter[str] = Counter()

    # --- chunks ---

    def __contains__(self, started: InFlightChunk) -> bool:
        return started.first_root in self._in_flight

    @property
    def open(self) -> int:
        """Number of in-flight records."""
        return sum(started.open for started in self._in_flight.values())

    def writes(self, spout: str) -> bool:
        """Whether dead letters of the spout are being written, or wait for that."""
        return self._unwritten[spout] > 0

    def is_crowded(self, spout: str) -> bool:
        """Whether so many dead letters wait that the spout must not read more."""
        return self._unwritten[spout] > MOST_UNWRITTEN

    def sent(self, started: InFlightChunk) -> None:
        """A chunk is sent, or its time-out begins again."""
        started.is_old = False
        self._in_flight[started.first_root] = started

    def rotate(self) -> list[InFlightChunk]:
        """Drop and return the chunks that were already here at the last rotation."""
        fallen = [started for started in self._in_flight.values() if started.is_old]
        for started in fallen:
            del self._in_flight[started.first_root]
        for started in self._in_flight.values():
            started.is_old = True
        return fallen

    def _settled(self, started: InFlightChunk, left: Roots = NO_ROOTS) -> None:
        """Settle all records but ``left``; drop the chunk if ``left`` is empty."""
        started.left = left
        if not len(left):
            self._in_flight.pop(started.first_root, None)

    def finished(self, started: InFlightChunk, chunk: Chunk) -> int:
        """The chunk's job has ended well; some of its records may still be open.

        Returns how many of its records bolts were given; 0 if the chunk had timed out.
        """
        if started not in self:
            return 0  # the time-out has settled its records
        facts = chunk.facts
        names = {str(e.range.topic_partition) for e in started.emissions}
        self._pollers[started.spout].metrics.fetched(facts, names)
        ended = chunk.settle(started.first_root, started.end)
        holes = _holes(facts)
        for emission, records in started.offsets_of(ended.done):
            gone = holes.get(str(records.topic_partition), OffsetRuns())
            _complete(emission, records, gone.gaps(records.start, records.end))
        self._settled(started, ended.open)
        self._untried(started, ended.untried)
        unread: dict[TopicPartition, str] = {}
        fetches = _fetch_errors(facts)
        for failure, roots in _once_each(chunk.failed):
            if failure.component == started.spout and failure.reason.startswith(
                fetches
            ):
                self._release(started, roots)
                runs = started.offsets(roots)
                unread |= {r.topic_partition: failure.reason for _, r in runs}
                continue
            reason = f"{failure.component}: {failure.reason}"
            if not len(failure.roots):
                self._log_once(started, "a row that comes from no record", reason)
            self.fail(started, roots, reason)
        self._fetch_again(started, unread, facts)
        left = {r.topic_partition for _, r in started.offsets(ended.untried)}
        for emission in started.emissions:
            if emission.range.topic_partition not in unread.keys() | left:
                self._pollers[started.spout].was_read(emission.range)
        return len(started) - len(ended.untried)

    def _untried(self, started: InFlightChunk, roots: Roots) -> None:
        """Emit records again that bolts were not given in time; fail a lone record."""
        if len(started) == len(roots) == 1:
            self.timed_out(started, roots, "not worked off within the time-out")
        else:
            self._release(started, roots)

    def unused(self, started: InFlightChunk) -> None:
        """Emit the whole chunk again, and count no failure.

        A stop cancelled it, bolts were not prepared, or no schema could be had.
        """
        if self._end(started):
            self._release(started, started.roots)

    def lost(self, started: InFlightChunk, reason: str) -> None:
        """The chunk's job was lost; the record of a chunk of one has failed."""
        if not self._end(started):
            return
        if len(started) == 1:
            self.fail(started, started.roots, reason)
        else:
            self._release(started, started.roots)

    def timed_out(self, started: InFlightChunk, roots: Roots, reason: str) -> None:
        """These records (ascending), which bolts were given, have timed out."""
        for _, records in started.offsets(roots):
            at = records.topic_partition
            self._pollers[started.spout].metrics.timed_out[at] += len(records)
            logger.warning("%s: %s", records, reason, attempt=started.attempt)
        self._logged.add(_without_numbers(reason))
        self.fail(started, roots, reason)

    def wait_for(self, started: InFlightChunk) -> None:
        """Begin the time-out again: the job runs, and no bolt has reported a hang."""
        logger.info("the chunk takes its time", attempt=started.attempt)
        self.sent(started)

    def silent(self, started: InFlightChunk, reason: str) -> None:
        """The job does not end, for an unknown reason; a lone record has failed."""
        if len(started) == 1:
            self.timed_out(started, started.roots, reason)
            return
        again = "%s; its %d records are emitted again in smaller chunks"
        logger.warning(again, reason, len(started), attempt=started.attempt)
        self._release(started, started.roots)

    def hangs(self, started: InFlightChunk, roots: Roots, reason: str) -> None:
        """A bolt hangs with these records of the chunk; one of them is the cause.

        None of them: it hangs with a row that comes from no record.
        """
        if not self._end(started):
            return
        everything = started.roots
        roots = np.intersect1d(everything, roots)
        if not len(roots):
            self.silent(started, reason)
            return
        if len(roots) == 1:
            self.timed_out(started, roots, reason)
            everything = np.setdiff1d(everything, roots)
        else:
            count = len(roots)
            logger.warning("%d records: %s", count, reason, attempt=started.attempt)
        self._release(started, everything)

    def fail(self, started: InFlightChunk, roots: Roots, reason: str) -> None:
        """These records failed; give up those without a retry left."""
        now_ms = self._clock.monotonic_ms()
        for emission, records in started.offsets(roots):
            manager, generation = emission.manager, emission.generation
            self._log_once(started, records, reason)
            for gone in manager.fail(records, now_ms, generation):
                self._give_up(started.spout, emission, gone, reason)
            if manager.is_hopeless:
                raise TransactionError(
                    f"{manager.topic_partition}: {manager.counts.failed} failures and"
                    f" not one record completed; the last: {reason}"
                )

    def _log_once(self, started: InFlightChunk, failed: object, reason: str) -> None:
        if len(self._logged) >= LOGGED_REASONS:
            return
        kind = _without_numbers(reason)
        if kind not in self._logged:
            self._logged.add(kind)
            once = "%s failed: %s (logged once for this reason)"
            logger.warning(once, failed, reason, attempt=started.attempt)

    def _end(self, started: InFlightChunk) -> bool:
        """Drop the chunk; False if it has timed out before."""
        if started not in self:
            return False
        self._settled(started)
        return True

    def _fetch_again(
        self, started: InFlightChunk, unread: Mapping[TopicPartition, str], facts: Facts
    ) -> None:
        """Once for each partition, however many of its fetches have failed."""
        for partition, reason in sorted(unread.items()):
            damaged = facts.get(str(partition), {}).get("damaged", [])
            first = min(damaged, key=lambda each: each.position, default=None)
            if first is None:
                again = "%s will be fetched again: %s"
                logger.warning(again, partition, reason, attempt=started.attempt)
            self._pollers[started.spout].fetch_failed(partition, first)

    def _release(self, started: InFlightChunk, roots: Roots) -> None:
        now_ms = self._clock.monotonic_ms()
        for emission, records in started.offsets(roots):
            emission.manager.release(records, now_ms, emission.generation)

    # --- records without a try left ---

    def _give_up(
        self, spout: str, emission: Emission, gone: GiveUp, reason: str
    ) -> None:
        dead_letter = DeadLetter(gone.records, gone.attempts, reason)
        poller, records = self._pollers[spout], gone.records
        if poller.parts.dead_letters is not None:
            self._write(spout, emission, dead_letter)
            return
        skipped = "%s is skipped after %d attempts: %s"
        logger.warning(skipped, records, gone.attempts, reason)
        poller.metrics.skipped[records.topic_partition] += len(records)
        emission.manager.ack(records, emission.generation)

    def _write(self, spout: str, emission: Emission, dead_letter: DeadLetter) -> None:
        dead_letters = self._pollers[spout].parts.dead_letters
        assert dead_letters is not None

        left = len(dead_letter.records)

        def settle(part: OffsetRange, result: Buried | Exception) -> None:
            nonlocal left
            left -= len(part)
            self._unwritten[spout] -= len(part) > 0 and not left
            some = replace(dead_letter, records=part)
            self._written(spout, emission, some, result)

        def answer(part: OffsetRange, result: Buried | Exception) -> None:
            self._post(lambda: settle(part, result))

        self._unwritten[spout] += 1
        dead_letters.write(dead_letter, answer)

    def _written(
        self,
        spout: str,
        emission: Emission,
        dead_letter: DeadLetter,
        result: Buried | Exception,
    ) -> None:
        """Settle a part of a dead letter."""
        poller, records = self._pollers[spout], dead_letter.records
        if isinstance(result, Buried):
            at = records.topic_partition
            poller.metrics.written[at] += result.written
            poller.metrics.cut[at] += result.cut
            _complete(emission, records, result.present)
            poller.was_read(records)
            return
        if not poller.unburied(emission, records):
            return  # no record needs the letter any more
        if not (isinstance(result, KafkaTxError) and result.retryable):
            raise result
        logger.warning("a dead letter will be tried again: %s", result)
        at_ms = self._clock.monotonic_ms() + DEAD_LETTER_AGAIN_MS
        if isinstance(result, LetterUnreadError):
            opens_ms = poller.fetch_failed(records.topic_partition, result.damage)
            at_ms = max(at_ms, opens_ms)
        self._unwritten[spout] += 1
        self._again.append((at_ms, spout, emission, dead_letter))

    def write_again(self) -> None:
        """Try to write the dead letters that are due, as far as they are needed.

        Raises:
            DataLossError: Records of one are gone, and the policy is to fail.
        """
        now_ms = self._clock.monotonic_ms()
        due = [each for each in self._again if each[0] <= now_ms]
        self._again = [each for each in self._again if each[0] > now_ms]
        for _, spout, emission, dead_letter in due:
            self._unwritten[spout] -= 1
            for run in self._pollers[spout].unburied(emission, dead_letter.records):
                self._write(spout, emission, replace(dead_letter, records=run))

    def wakes(self) -> Iterator[int]:
        """When dead letters are due to be tried again (monotonic ms)."""
        for at_ms, *_ in self._again:
            yield at_ms


def _without_numbers(reason: str) -> str:
    return _NUMBERS.sub("#", reason)


def _holes(facts: Mapping[str, object]) -> dict[str, OffsetRuns]:
    """Runs of offsets without a record, by the text form of their partitions."""
    return {
        name: OffsetRuns(*read["holes"])
        for name, read in facts.items()
        if isinstance(read, dict) and read.get("holes")
    }


def _complete(
    emission: Emission, records: OffsetRange, present: Iterable[tuple[int, int]]
) -> None:
    """Complete all offsets of a range; those not present do not count as records."""
    manager, generation = emission.manager, emission.generation
    present = list(present)
    if present != [(records.start, records.end)]:
        before = manager.counts.lost[LossReason.COMPACTED]
        manager.passed(records, present, generation)
        gone = manager.counts.lost[LossReason.COMPACTED] - before
        if gone:
            logger.warning("%s: compaction removed %d failed records", records, gone)
    for run in present:
        manager.ack(OffsetRange(records.topic_partition, *run), generation)


def _once_each(
    failures: Sequence[RootsFailed],
) -> Iterator[tuple[RootsFailed, Roots]]:
    """The failures, each with those of its roots that no failure before it has."""
    if not failures:
        return
    sizes = [len(failure.roots) for failure in failures]
    of_all = np.concatenate([NO_ROOTS, *(failure.roots for failure in failures)])
    roots, firsts = np.unique(of_all, return_index=True)
    owners = np.repeat(np.arange(len(failures)), sizes)[firsts]
    order = np.argsort(owners, kind="stable")
    ends = np.searchsorted(owners[order], np.arange(len(failures)), side="right")
    yield from zip(failures, np.split(roots[order], ends[:-1]), strict=True)


def _fetch_errors(facts: Mapping[str, object]) -> tuple[str, ...]:
    """How reasons begin whose cause is a failed fetch, and not the records."""
    classes = {
        name
        for fact in facts.values()
        if isinstance(fact, dict)
        for name in fact.get("errors", ())
    }
    return tuple(f"[{name}]" for name in classes)
