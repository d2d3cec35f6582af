"""Collects measurements and gives them to scrapes."""

from __future__ import annotations

import math
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import product
from threading import RLock

from kafka_tx.clock import now_ms
from kafka_tx.logs import event_log
from kafka_tx.metrics import catalogue
from kafka_tx.metrics.activity import Activity, BatchEnded, Failure
from kafka_tx.metrics.events import (
    BatchCommitted,
    InFlight,
    OffsetsCommitted,
    OffsetsStored,
    stop_reason,
)
from kafka_tx.metrics.lag import PartitionLags, partition_key
from kafka_tx.metrics.metric import PER_ID, Fed, Metric, MetricKind
from kafka_tx.metrics.series import Changes, Key, Samples, Series
from kafka_tx.model import LogBounds, LogPosition, TopicPartition, Unavailable
from kafka_tx.stored import VERSION

logger = event_log(__name__)

ENDED_AFTER_MS = 60_000
"""How long a process must outlive a run until the end counts as meant.

A process that is told to end stops its runs first, without an error.
"""

LONGEST_ERROR = 2_000
"""Most characters of an error's text."""


class MetricsRegistry:
    """The measurements of one process (the driver); implements ``protocols.Meter``.

    Progress moves in one call per commit, ``record_commit`` or ``record_offsets``, made
    after the store has recorded it: a scrape shows all of a commit or nothing of it. No
    method ever raises: a failed measurement is logged once by name, counted in
    ``kafka_tx_metric_failures_total``, and otherwise left out. ``tx_id`` is the
    ``tx.id``, topology id or consumer id.

    Source: Storm, kafkaOffset metric (deviates: reports the partitions whose bounds are
    known instead of all or nothing, and keeps the last bounds instead of showing 0).
    """

    def __init__(
        self,
        *,
        spark_version: str = "",
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._now_ms = now_ms
        self._activities: defaultdict[str, Activity] = defaultdict(Activity)
        self._monotonic_ms = monotonic_ms
        self._lock = RLock()
        self._series = {metric.name: Series(metric) for metric in catalogue.ALL}
        self._lags = PartitionLags(self._of)
        self._silent: set[str] = set()
        self._begun: set[tuple[Fed, Key]] = set()
        self._complained: set[str] = set()
        self._of(catalogue.METRIC_FAILURES).add((), 0)
        build = (VERSION, platform.python_version(), spark_version)
        self._of(catalogue.BUILD_INFO).show(build)

    # --- Meter ----------------------------------------------------------------------

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter of the catalogue."""
        with self._measuring(name):
            self._of_name(name).add(self._key(name, labels), amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge of the catalogue."""
        with self._measuring(name):
            self._of_name(name).set(self._key(name, labels), value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Record one value, in seconds, in a histogram of the catalogue."""
        with self._measuring(name):
            self._of_name(name).observe(self._key(name, labels), value)

    # --- what happened --------------------------------------------------------------

    def record_commit(self, batch: BatchCommitted) -> None:
        """A numbered batch has committed and the store has recorded it."""
        with self._measuring("record_commit"):
            self._commit(batch, Fed.COMMIT, Fed.BATCH)
            self._batch(batch)
            self._ranges(batch)
            self._activities[batch.id].batches.append(
                BatchEnded(
                    number=batch.txid,
                    ended_ms=batch.committed_at_ms,
                    duration_ms=batch.duration_ms
                    or sum(batch.from_tasks.phases_ms.values()),
                    outcome="committed",
                    tries=batch.replays + 1,
                    records=batch.from_tasks.records,
                    phases_ms=batch.from_tasks.phases_ms,
                )
            )
            self._dead_letters(batch)
            self._tables(batch)

    def record_offsets(self, offsets: OffsetsCommitted) -> None:
        """A store has recorded offsets that belong to no numbered batch."""
        with self._measuring("record_offsets"):
            self._commit(offsets, Fed.COMMIT)

    def record_log(
        self, tx_id: str, bounds: Mapping[TopicPartition, LogBounds | Unavailable]
    ) -> None:
        """The log bounds were polled outside a commit, for a plan or while idle.

        Moves only metrics of the log (end, log start, lag, headroom), so that the lag
        of a job that hangs or waits stays true.
        """
        with self._measuring("record_log"):
            self._silent.discard(tx_id)
            self._lags.polled(tx_id, bounds, self._monotonic_ms())
            self._keep_lag(tx_id)

    def record_silence(self, tx_id: str) -> None:
        """No broker answered a poll of the log bounds, until ``record_log``."""
        with self._measuring("record_silence"):
            self._silent.add(tx_id)

    def record_start(
        self,
        tx_id: str,
        door: str = "",
        options: Mapping[str, str] | None = None,
        *,
        is_bounded: bool = False,
        waits_ms: int = 0,
        task: str = "",
    ) -> None:
        """A query or topology was started: show that it is there, and never failed.

        ``door`` is the kind of job in words; ``options`` are without secrets;
        ``is_bounded``: the run ends by itself; ``waits_ms``: how long its records may
        wait until there are enough for a batch; ``task``: which one of several jobs
        that share the partitions of the id, such as ``0 of 2``; empty: it is alone.
        """
        with self._measuring("record_start"):
            self._begin((Fed.COMMIT,), (tx_id,))
            activity = self._activities[tx_id]
            activity.door, activity.options = door, dict(options or {})
            activity.waits_ms, activity.task = waits_ms, task
            activity.started_ms, activity.ended_ms = self._now_ms(), 0
            activity.has_failed, activity.moved_to = False, ""
            run = "bounded" if is_bounded else "unbounded"
            self._runs(tx_id, run, activity.started_ms)

    def record_option(self, tx_id: str, name: str, value: str) -> None:
        """Replace the shown value of an option."""
        with self._measuring("record_option"):
            self._activities[tx_id].options[name] = value

    def record_end(self, tx_id: str) -> None:
        """A query or topology has ended: it has no in-flight batches."""
        self.record_in_flight(tx_id, [])
        with self._measuring("record_end"):
            activity = self._activities[tx_id]
            activity.ended_ms = self._now_ms()
            if activity.has_failed:
                self._runs(tx_id, "")

    def record_attempt(self, tx_id: str, attempt: BatchEnded) -> None:
        """An attempt at a batch failed, or a chunk ended; for the status page only."""
        with self._measuring("record_attempt"):
            self._activities[tx_id].batches.append(attempt)

    def record_stored(self, stored: OffsetsStored) -> None:
        """A store was read as a job started: show it until the job commits.

        So a job that hangs in its first batch has a lag and a last commit. No counter
        moves. Commits of this process since then are newer, and stay.
        """
        with self._measuring("record_stored"):
            key, txid = (stored.id,), stored.txid
            shown = self._of(catalogue.COMMITTED_TXID).get(key)
            if txid is not None and shown is not None and shown > txid:
                return
            gone = self.positions_of(stored.id).keys() - stored.committed.keys()
            if gone and stored.is_all:
                self.forget(stored.id, gone)
            fed = (Fed.COMMIT,) if txid is None else (Fed.COMMIT, Fed.BATCH)
            self._begin(fed, key)
            if txid is not None:
                self._of(catalogue.CURRENT_TXID).set(key, txid + 1)
            if txid:  # 0 is where the first one begins
                self._of(catalogue.COMMITTED_TXID).set(key, txid)
            if stored.committed_at_ms is not None:
                last = self._of(catalogue.LAST_COMMIT)
                at_s = stored.committed_at_ms / 1000
                # Offsets are also read while a job runs, of some partitions.
                last.set(key, at_s if txid else max(at_s, last.get(key) or at_s))
            if stored.newest_timestamp_ms is not None:
                self._newest(key, stored.newest_timestamp_ms)
            self._positions(stored, fed, {})

    def record_bounded(self, stored: OffsetsStored) -> None:
        """Show whether the stored last commit is that of a run that ends by itself.

        For a process that runs no job: one that does shows its own run.
        """
        with self._measuring("record_bounded"):
            series, key = self._of(catalogue.BOUNDED_COMMIT), (stored.id,)
            if stored.is_bounded and stored.committed_at_ms is not None:
                series.set(key, stored.committed_at_ms / 1000)
            else:
                series.drop_one(key)

    def record_in_flight(
        self, tx_id: str, batches: Sequence[InFlight], since_ms: int | None = None
    ) -> None:
        """Exactly these batches, in the order of their numbers, are in-flight now.

        ``since_ms``: Unix time since which nothing was committed although there was
        something in-flight; None: since the oldest of ``batches`` was planned.
        """
        with self._measuring("record_in_flight"):
            self._begin((Fed.PHASE,), (tx_id,))
            phases = Counter(each.phase for each in batches)
            for phase in catalogue.PHASE.values:
                self._of(catalogue.IN_FLIGHT_BATCHES).set((tx_id, phase), phases[phase])
            if since_ms is None:
                since_ms = min((each.since_ms for each in batches), default=0)
            self._of(catalogue.IN_FLIGHT_SINCE).set((tx_id,), since_ms / 1000)
            self._activities[tx_id].in_flight = tuple(batches)

    def record_stop(
        self, tx_id: str, error: BaseException, at_ms: int, *, goes_on: bool = False
    ) -> None:
        """A query or topology ended with this error, now.

        One that was fenced leaves its id to the newer owner: its figures are dropped
        here (see ``forget``), or both would be shown side by side. ``goes_on``: another
        query of this process has the id, so its run and its figures stay.
        """
        with self._measuring("record_stop"):
            reason = stop_reason(error)
            self._begin((Fed.COMMIT,), (tx_id,))
            self._of(catalogue.STOPS).add((tx_id, reason), 1)
            activity = self._activities[tx_id]
            if reason == "fenced" and not goes_on:
                self.forget(tx_id)
                self._activities[tx_id] = activity
            if not goes_on:
                activity.ended_ms, activity.moved_to = at_ms, ""
                self._runs(tx_id, "")
            self.record_last_stop(tx_id, reason, at_ms, str(error))
            activity.has_failed |= not goes_on

    def record_moved(self, tx_id: str, moved_to: str) -> None:
        """A tool has copied a stopped id to this store; empty: not that we know."""
        with self._measuring("record_moved"):
            self._activities[tx_id].moved_to = moved_to

    def record_last_stop(
        self, tx_id: str, reason: str, at_ms: int, text: str = ""
    ) -> None:
        """A store holds the time of the last error of this kind."""
        with self._measuring("record_last_stop"):
            name = catalogue.LAST_STOP.name
            self.set(name, at_ms / 1000, id=tx_id, reason=reason)
            one_line = " ".join(text.split())[:LONGEST_ERROR]
            self._activities[tx_id].failed(Failure(at_ms, reason, one_line))

    def record_failure(self, what: str, error: Exception) -> None:
        """A measurement failed by a defect; it is logged once by its name."""
        with self._lock:
            self._of(catalogue.METRIC_FAILURES).add((), 1)
            is_new = what not in self._complained
            self._complained.add(what)
        if is_new:
            logger.warning("not measured: %s: %r (logged once)", what, error)

    def forget(
        self, tx_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Drop the label sets of partitions that ``tx_id`` no longer owns.

        Without ``partitions`` the id has left this process: all its partitions and its
        gauges go. Its own counters and histograms stay, as they count events here, and
        so does the time of an end without an error.
        """
        with self._measuring("forget"):
            if partitions is None:
                self._show_ends(0)
                for series in self._series.values():
                    if series.metric is catalogue.RUN_SINCE:
                        series.drop(lambda key: key[0] == tx_id and key[1] != "ended")
                        continue
                    metric = series.metric
                    if metric.kind is MetricKind.GAUGE and metric.labels[:1] == PER_ID:
                        series.drop(lambda key: key[0] == tx_id)
                self._drop(lambda key: key[0] == tx_id)
                self._activities.pop(tx_id, None)
                self._silent.discard(tx_id)
            else:
                gone = {partition_key(tx_id, each) for each in partitions}
                self._drop(lambda key: key[:3] in gone)

    def lag_of(self, tx_id: str) -> int | None:
        """Lag in records of all partitions of an id; None where one is not known.

        That is so too if the last question had no answer.
        """
        with self._lock:
            return None if tx_id in self._silent else self._lags.lag(tx_id)

    def current_txid(self, tx_id: str) -> int | None:
        """The next txid to commit; None where it is not known here."""
        with self._lock:
            txid = self._of(catalogue.CURRENT_TXID).get((tx_id,))
            return None if txid is None else int(txid)

    def positions_of(self, tx_id: str) -> dict[TopicPartition, LogPosition]:
        """The stored positions of an id that are shown."""
        with self._lock:
            return self._lags.positions_of(tx_id)

    def waits_for_brokers(self, tx_id: str) -> bool:
        """Whether brokers did not answer the last poll of an id's logs."""
        with self._lock:
            return tx_id in self._silent or self._lags.waits_for_brokers(tx_id)

    def near_loss(self) -> dict[str, int]:
        """As ``PartitionLags.near_loss``."""
        with self._lock:
            return self._lags.near_loss()

    # --- scrape ---------------------------------------------------------------------

    def samples(self) -> dict[str, Samples]:
        """A copy of everything at one moment, by metric name."""
        with self._lock:
            self._summarise()
            return {name: series.samples() for name, series in self._series.items()}

    def samples_of(self, metric: Metric) -> Samples:
        """A copy of the samples of one metric."""
        with self._lock:
            return self._of(metric).samples()

    def changes(self) -> dict[str, Changes]:
        """Changes since the last call, by metric name; for the exposition only."""
        with self._lock:
            self._summarise()
            return {name: series.changes() for name, series in self._series.items()}

    def all_changed(self) -> None:
        """Let the next ``changes`` return everything."""
        with self._lock:
            for series in self._series.values():
                series.all_changed()

    def activities(self) -> dict[str, Activity]:
        """A copy of the recent activity of each id."""
        with self._lock:
            return deepcopy(dict(self._activities))

    # --- inside the lock ------------------------------------------------------------

    def _summarise(self) -> None:
        self._lags.summarise()
        self._show_ends(ENDED_AFTER_MS)

    def _show_ends(self, after_ms: int) -> None:
        """Show ends without an error that are so old: the process has outlived them."""
        now_ms = self._now_ms()
        for id_, activity in self._activities.items():
            if activity.has_ended_well and now_ms - activity.ended_ms >= after_ms:
                self._runs(id_, "ended", activity.ended_ms)

    def _runs(self, tx_id: str, run: str, since_ms: int = 0) -> None:
        """Show this run of an id and no other one; empty: none."""
        series = self._of(catalogue.RUN_SINCE)
        task, _, tasks = self._activities[tx_id].task.partition(" of ")
        key = (tx_id, run, task, tasks)
        series.drop(lambda each: each[0] == tx_id and each != key)
        if run:
            series.set(key, since_ms / 1000)

    def _commit(self, offsets: OffsetsCommitted, *fed: Fed) -> None:
        key = (offsets.id,)
        self._begin(fed, key)
        self._of(catalogue.LAST_COMMIT).set(key, offsets.committed_at_ms / 1000)
        if offsets.commit_ms is not None:
            self._of(catalogue.COMMIT_LATENCY).observe(key, offsets.commit_ms / 1000)
        self._positions(offsets, fed, offsets.bounds)
        for (partition, reason), count in offsets.skipped.items():
            self.add(
                catalogue.SKIPPED_OFFSETS.name,
                count,
                id=offsets.id,
                topic=partition.topic,
                partition=str(partition.partition),
                reason=reason,
            )

    def _positions(
        self,
        offsets: OffsetsCommitted | OffsetsStored,
        fed: tuple[Fed, ...],
        bounds: Mapping[TopicPartition, LogBounds | Unavailable],
    ) -> None:
        for partition in offsets.committed:
            self._begin(fed, partition_key(offsets.id, partition))
        now_ms = self._monotonic_ms()
        self._lags.committed(offsets.id, offsets.committed, bounds, now_ms)
        self._keep_lag(offsets.id)

    def _keep_lag(self, tx_id: str) -> None:
        activity, now_ms = self._activities[tx_id], self._now_ms()
        if activity.wants_lag(now_ms):
            lag, behind_s = self._lags.lag_now(tx_id)
            if lag is not None:
                activity.lags.append((now_ms, lag, behind_s))

    def _batch(self, batch: BatchCommitted) -> None:
        key, from_tasks = (batch.id,), batch.from_tasks
        self._of(catalogue.BATCHES).add((batch.id, "committed"), 1)
        self._of(catalogue.COMMITTED_TXID).set(key, batch.txid)
        self._of(catalogue.CURRENT_TXID).set(key, batch.txid + 1)
        self._of(catalogue.REPLAYS).add(key, batch.replays)
        if batch.duration_ms is not None:
            self._of(catalogue.BATCH_DURATION).observe(key, batch.duration_ms / 1000)
        if from_tasks.records is None:
            self._of(catalogue.UNMEASURED).add(key, 1)
        else:
            self._of(catalogue.RECORDS).add(key, from_tasks.records)
        if from_tasks.bytes is not None:
            self._of(catalogue.BYTES).add(key, from_tasks.bytes)
        if from_tasks.newest_ms is not None:
            # A record from the future says nothing about those that come after it.
            self._newest(key, min(from_tasks.newest_ms, batch.committed_at_ms))
        for phase, took_ms in from_tasks.phases_ms.items():
            name = catalogue.PHASE_DURATION.name
            self.observe(name, took_ms / 1000, id=batch.id, phase=phase)

    def _newest(self, key: Key, timestamp_ms: int) -> None:
        newest = self._of(catalogue.NEWEST_RECORD)
        newest.set(key, max(timestamp_ms / 1000, newest.get(key) or -math.inf))

    def _ranges(self, batch: BatchCommitted) -> None:
        starts = self._of(catalogue.START_OFFSET)
        passed = self._of(catalogue.OFFSETS)
        for partition, start in batch.starts.items():
            key = partition_key(batch.id, partition)
            starts.set(key, start)
            end = batch.committed.get(partition)
            passed.add(key, max(0, end.offset - start) if end else 0)

    def _dead_letters(self, batch: BatchCommitted) -> None:
        dead_letters = batch.from_tasks.dead_letters
        if dead_letters is None:
            return
        for partition in batch.committed:
            self._begin((Fed.DEAD_LETTER,), partition_key(batch.id, partition))
        for partition, count in dead_letters.items():
            key = partition_key(batch.id, partition)
            self._of(catalogue.DEAD_LETTERS).add(key, count)

    def _tables(self, batch: BatchCommitted) -> None:
        key = (batch.id,)
        for write in batch.from_tasks.tables:
            self._begin((Fed.TABLE,), key)
            if write.seconds is not None:  # else an earlier try has written it
                self._of(catalogue.TABLE_COMMIT).observe(key, write.seconds)
                self._of(catalogue.TABLE_FILES).add(key, write.files or 0)
                self._of(catalogue.TABLE_ROWS).add(key, write.rows or 0)
            self._activities[batch.id].tables[write.table, write.sink] = write

    def _begin(self, fed: tuple[Fed, ...], key: Key) -> None:
        """Show metrics that begin at 0 when an id or a partition first appears."""
        for group in fed:
            if (group, key) in self._begun:
                continue
            self._begun.add((group, key))
            for metric, endings in _ZEROS[group, len(key)]:
                for ending in endings:
                    self._of(metric).begin((*key, *ending))

    def _drop(self, is_gone: Callable[[Key], bool]) -> None:
        for series in self._series.values():
            if series.metric.is_per_partition:
                series.drop(is_gone)
        self._lags.forget(is_gone)
        self._begun = {
            (fed, key)
            for fed, key in self._begun
            if len(key) < _PARTITION_WIDTH or not is_gone(key)
        }

    def _of(self, metric: Metric) -> Series:
        return self._series[metric.name]

    def _of_name(self, name: str) -> Series:
        if name not in self._series:
            raise ValueError("the catalogue has no such metric")
        return self._series[name]

    def _key(self, name: str, labels: Mapping[str, str]) -> Key:
        series = self._of_name(name)
        key = series.key(labels)
        fed = _WITH.get(series.metric.fed, (series.metric.fed,))
        if series.metric.labels[:1] == PER_ID:
            self._begin(fed, key[:1])
        if series.metric.is_per_partition:
            self._begin(fed, key[:_PARTITION_WIDTH])
        return key

    @contextmanager
    def _measuring(self, what: str) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except Exception as error:  # noqa: BLE001 - a metric never fails a batch
            self.record_failure(what, error)


_PARTITION_WIDTH = 3
_WITH = {Fed.RECORD: (Fed.RECORD, Fed.DEAD_LETTER)}
"""What begins together."""


def _endings(metric: Metric, width: int) -> list[Key]:
    closed = [label.values for label in metric.labels[width:]]
    if width == _PARTITION_WIDTH:  # one zero a partition, not one a reason
        closed = [values[:1] for values in closed]
    return list(product(*closed))


def _zeros(fed: Fed, width: int) -> list[tuple[Metric, list[Key]]]:
    return [
        (metric, _endings(metric, width))
        for metric in catalogue.ALL
        if metric.fed is fed
        and metric.begins_at_zero
        and metric.is_per_partition == (width == _PARTITION_WIDTH)
    ]


_ZEROS = {(fed, width): _zeros(fed, width) for fed in Fed for width in (1, 3)}
