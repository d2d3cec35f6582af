"""``kafka_tx.attach(spark)``: early commits and the metrics endpoint."""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from kafka_tx import assembly
from kafka_tx.config import SourceConfig
from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.metrics.endpoint import LOOPBACK, Endpoint, serve
from kafka_tx.metrics.events import stop_reason
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import TopicPartition
from kafka_tx.options.shown import shown
from kafka_tx.options.source import parse_source
from kafka_tx.planning.offset_json import MARK, SourceOffset
from kafka_tx.protocols import ClusterView, Store
from kafka_tx.running.in_flight_watch import InFlightWatch
from kafka_tx.running.lag_watch import LagWatch
from kafka_tx.running.last_run import record_stop, show_committed, show_last_stop
from kafka_tx.running.sink_notes import VARIABLE, SinkNotes
from kafka_tx.running.task_reports import DriverAddress
from kafka_tx.running.worker_python import warn_without_package
from kafka_tx.sinks.table_writes import recorded_commits
from kafka_tx.source.commits import CommitFeed, Finished
from kafka_tx.source.questions import Question
from kafka_tx.source.stored_batches import Mirror
from kafka_tx.spark.queries.dead_letters import counted
from kafka_tx.spark.source.reports import PROPERTY, ReadReportListener
from kafka_tx.spark.versions import jvm
from kafka_tx.transactions.ledger.batch_ids import UNKNOWN_SINK, SinkNote
from kafka_tx.transactions.ledger.ledger import Ledger

if TYPE_CHECKING:
    from kafka_tx.kafka.mirror import MirrorThread

logger = event_log(__name__)

_LAST_WORDS_MS = 10_000

_LOGGED_LATE = (
    "asyncProgressTrackingEnabled=true does not work with tx.id: Spark writes the"
    " checkpoint late, so that the next start finds a checkpoint that is older than the"
    " store, and is refused. Remove this option"
)


class Attachment:
    """The result of ``attach``: registry, port of the endpoint, ``close``."""

    def __init__(
        self,
        spark: SparkSession,
        listener: CommitListener,
        registry: MetricsRegistry,
        endpoint: Endpoint | None,
        opened: ExitStack,
    ) -> None:
        self._spark = spark
        self._listener = listener
        self._endpoint = endpoint
        self._opened = opened
        self.registry = registry
        atexit.register(self._let_finish)

    @property
    def port(self) -> int | None:
        """The port of ``/metrics``; None without an endpoint."""
        return None if self._endpoint is None else self._endpoint.port

    def __repr__(self) -> str:
        where = "no endpoint" if self._endpoint is None else self._endpoint.url
        return f"<kafka_tx.Attachment {where}, ids: {self._listener.seen or 'none'}>"

    def close(self) -> None:
        """Remove the listener and stop the endpoint; queries go on.

        Also if the session or the JVM has ended.
        """
        atexit.unregister(self._let_finish)
        self._let_finish()
        self._opened.close()

    def _let_finish(self) -> None:
        """Wait for the last events of Spark, which arrive after a query ends."""
        jvm.let_listeners_finish(self._spark, _LAST_WORDS_MS)


def attach(
    spark: SparkSession,
    *,
    metrics_port: int | None = 9400,
    metrics_address: str = LOOPBACK,
    status_page: bool = False,
    options: Mapping[str, Mapping[str, str]] | None = None,
) -> Attachment:
    """Commit transactions as soon as Spark has finished them, and serve metrics.

    Call it once for a session, before its queries start: those that run already are
    committed too, but their tasks do not know where to report bytes. Without it
    everything is committed all the same, by the source, when the next trigger comes.

    Args:
        spark: The session whose queries are watched (user's process).
        metrics_port: Port of ``/metrics``; 0 takes a free one, None serves nothing.
        metrics_address: Address to listen on; ``0.0.0.0`` lets other machines in.
        status_page: Whether other machines that reach the port see the status page,
            too, with offsets, options and error texts; this machine always does.
        options: The source's options for each ``tx.id``. Only needed where they cannot
            be read from the running query.

    Raises:
        ConfigError: The port is taken, or it is a session of Spark Connect.
    """
    context = _classic(spark)
    warn_without_package(context)
    jvm.let_queries_start_together(spark)
    jvm.hide_secrets(spark)
    registry = MetricsRegistry(spark_version=spark.version)
    with ExitStack() as undo:
        endpoint = None
        if metrics_port is not None:
            endpoint = serve(
                registry, metrics_port, metrics_address, shows_page=status_page
            )
            undo.callback(endpoint.close)
        read_reports = _open_read_reports(context)
        if read_reports is not None:
            undo.callback(read_reports.close)
            # for queries that this thread starts from now on
            context.setLocalProperty(PROPERTY, read_reports.address)
        listener = CommitListener(spark, registry, options or {}, read_reports)
        undo.callback(listener.close)
        spark.streams.addListener(listener)
        undo.callback(jvm.remove_listener, spark, listener)
        return Attachment(spark, listener, registry, endpoint, undo.pop_all())


def _open_read_reports(context: SparkContext) -> ReadReportListener | None:
    """The listener for task reports; None if none can be opened."""
    driver = DriverAddress.of(context.getConf().get)  # wrong ports are refused
    try:
        return ReadReportListener(driver)
    except ConfigError as error:
        logger.warning("bytes and newest timestamps are not measured: %s", error)
        return None


def _classic(spark: SparkSession) -> SparkContext:
    """The session's context. Spark Connect has none."""
    try:
        return spark.sparkContext
    except (AttributeError, PySparkNotImplementedError):
        raise ConfigError(
            "attach needs a classic session: it listens beside Spark's JVM, and this"
            f" session is {type(spark).__module__}.{type(spark).__name__}. Leave it out"
            " with Spark Connect: the source commits all the same, one batch later",
            option="spark",
        ) from None


class CommitListener(StreamingQueryListener):
    """Hands Spark's progress events to the CommitFeed (a thread of the user's process).

    A listener must not throw. A batch that cannot be committed here is committed by the
    source. Spark calls from one thread; the thread that watches the lag drops ended ids
    while no call is under way.
    """

    def __init__(
        self,
        spark: SparkSession,
        registry: MetricsRegistry,
        options: Mapping[str, Mapping[str, str]],
        read_reports: ReadReportListener | None,
    ) -> None:
        self._read_report_listener = read_reports
        self._spark = spark
        self._registry = registry
        self._options: dict[str, Mapping[str, str]] = {
            id_: jvm.planners_options(spark, given) for id_, given in options.items()
        }
        self._ids: dict[str, set[str]] = {}
        self._runs: dict[str, str] = {}
        self._given: dict[str, dict[str, dict[str, str]]] = {}
        self._newest: dict[str, str] = {}
        """The run of each query that began last."""
        self._shown: dict[str, str] = {}
        """The run of each id that began last; several queries may have one id."""
        self._mirrors: dict[str, MirrorThread] = {}
        self._notes = SinkNotes()
        self._sinks: dict[str, SinkNote] = {}
        """The sink of each run."""
        self._bounded: set[str] = set()
        """The runs that end by themselves."""
        self._clock = assembly.SystemClock()
        self._in_use = RLock()
        self.feed = CommitFeed(
            self._open_parts, registry, self._clock, recorded_commits, self._withheld
        )
        self._lag = LagWatch(registry, self.watched, self.open_view)
        self._in_flight = InFlightWatch(
            registry,
            self._running,
            partial(jvm.phase_of, spark),
            self._show_stored,
            self._clock,
        )

    @property
    def seen(self) -> str:
        """The ids of all queries so far, for people."""
        return ", ".join(sorted({*self._options, *self._runs}))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Read the query's ids now: a query that failed cannot report them.

        Spark calls this on the thread of the query, from which its tasks inherit where
        to report; the thread that has called ``start`` may be another than attach's.
        """
        if self._read_report_listener is not None:
            address = self._read_report_listener.address
            jvm.give_tasks(self._spark, PROPERTY, address)
        with self._in_use:
            self._learn(str(event.id), str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark has committed a batch, or the query was idle for a while."""
        progress, listener = event.progress, self._read_report_listener
        query_id = str(progress.id)
        reports = listener.collect(query_id, progress.batchId) if listener else None
        with self._in_use:
            self._in_flight.batch_ended(query_id)
            for source in progress.sources:
                before, after = _json(source.startOffset), _json(source.endOffset)
                if after is None or MARK not in after:
                    continue
                start = SourceOffset.from_json(before) if before else None
                end, id_ = SourceOffset.from_json(after), after[MARK]["id"]
                self._know(query_id, str(progress.runId), id_)
                self.feed.finished(
                    Finished(
                        start=start,
                        end=end,
                        latest=_json(source.latestOffset),
                        duration_ms=progress.durationMs.get("triggerExecution", 0),
                        phases_ms=_phases(progress.durationMs),
                        read_reports=reports,  # of all sources
                        spark_batch=_ran(progress, start, end),
                        dead_letters=counted(query_id, progress.batchId, id_),
                        ignores_ids=self._sink_of(progress).ignores_ids,
                        is_bounded=str(progress.runId) in self._bounded,
                    )
                )

    def _know(self, query_id: str, run_id: str, tx_id: str) -> None:
        """Cache the query's options; a new run may name another store."""
        self._ids.setdefault(query_id, set()).add(tx_id)
        if self._runs.get(tx_id) == run_id:
            return
        if run_id not in self._given:  # it was running before we listened
            self._learn(query_id, run_id)
        options = self._given[run_id].get(tx_id)
        if options is None:
            return
        self._runs[tx_id] = run_id
        self._use(tx_id, options)

    def _use(self, tx_id: str, options: Mapping[str, str]) -> None:
        """Use these options from the next batch on."""
        if options == self._options.get(tx_id):
            return
        self._options[tx_id] = options
        self._close_mirror(tx_id)
        self.feed.forget(tx_id)
        self._lag.forget(tx_id)

    def watched(self) -> dict[str, list[TopicPartition]]:
        """The partitions whose lag is shown, without ids that ended some minutes ago.

        An id that failed stays until its next run ends well: its alerts must not end by
        themselves. Called on the thread that watches the lag.
        """
        if self._in_use.acquire(blocking=False):
            try:
                self.feed.release_ended(self._release)
            finally:
                self._in_use.release()
        return self.feed.partitions()

    def _running(self) -> dict[str, set[str]]:
        return {query_id: set(ids) for query_id, ids in list(self._ids.items())}

    def _release(self, tx_id: str) -> None:
        self._close_mirror(tx_id)
        self._registry.forget(tx_id)

    def _close_mirror(self, tx_id: str) -> None:
        mirror = self._mirrors.pop(tx_id, None)
        if mirror is not None:
            mirror.close(timeout_s=0)

    def close(self) -> None:
        """Send the last offsets, within a bounded time, and release connections."""
        self._in_flight.close()
        self._lag.close()
        for mirror in self._mirrors.values():  # first: they read the stores
            mirror.close()
        self.feed.close()
        self._notes.close()

    def _learn(self, query_id: str, run_id: str) -> None:
        """Read the options of a run's sources while the run is active."""
        self._given[run_id] = jvm.source_options(self._spark, query_id)
        self._newest[query_id] = run_id
        if self._given[run_id]:
            self._see_sink(query_id, run_id)
        if jvm.is_bounded(self._spark, query_id):
            self._bounded.add(run_id)
        self._began(query_id, run_id)

    def _sink_of(self, progress: StreamingQueryProgress) -> SinkNote:
        return self._sinks.get(str(progress.runId), UNKNOWN_SINK)

    def _see_sink(self, query_id: str, run_id: str) -> None:
        """Tell the planners of a query which sink it has, before they start."""
        self._sinks[run_id] = sink = jvm.sink_of(self._spark, query_id)
        jvm.give_planners(self._spark, VARIABLE, str(self._notes.place or ""))
        is_late = jvm.is_logged_late(self._spark, query_id)
        for id_ in self._given[run_id]:
            if is_late:
                logger.error("%s", _LOGGED_LATE, id=id_)
            if sink.newest is not None:
                logger.warning("%s", sink.warning(), id=id_)
            self._notes.leave(id_, sink)

    def _withheld(self, id_: str, error: KafkaTxError) -> None:
        """Show a batch that is not committed, although Spark has finished it."""
        logger.error("not committed: %s", error, id=id_)
        with self._store(id_) as store:
            record_stop(self._registry, store, id_, error, self._clock)

    def _began(self, query_id: str, run_id: str) -> None:
        found = self._given[run_id]
        self._ids.setdefault(query_id, set()).update(found)
        others = [ids for query, ids in self._ids.items() if query != query_id]
        for id_, options in found.items():
            if not any(id_ in ids for ids in others):
                self._use(id_, options)
            self.feed.began(id_)
            self._shown[id_] = run_id
            self._registry.record_start(
                *(id_, "source", shown(options)),
                is_bounded=run_id in self._bounded,
                waits_ms=self._waits_ms(id_, options),
            )
        if found:  # a store that does not answer must not hold the query up
            Thread(target=self._show_stored, args=(sorted(found),), daemon=True).start()

    def _waits_ms(self, id_: str, options: Mapping[str, str]) -> int:
        with suppress(KafkaTxError):  # the source itself refuses such options
            return self._config(id_, options).limits.waits_ms
        return 0

    def _show_stored(self, ids: list[str]) -> None:
        """Show what earlier runs have stored (on its own thread)."""
        for id_ in ids:
            with self._store(id_) as store:
                if store is not None:
                    self._registry.record_option(id_, "tx.store", store.url)
                    show_last_stop(self._registry, store)
                    self._show_committed(store)
        self._lag.poll_soon()

    def _show_committed(self, store: Store) -> None:
        try:
            state = Ledger(store).load()
            wanted = self._config(store.id).subscription
        except KafkaTxError as error:
            logger.info("the committed position cannot be read: %s", error, id=store.id)
            return
        with self._in_use:
            is_running = any(store.id in ids for ids in self._ids.values())
            if not is_running:
                return
            shown = show_committed(self._registry, store.id, state, wanted)
            if shown:
                self.feed.has_positions(store.id, shown)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: ARG002 - fixed
        """The query is idle: check again for batches that its planner committed."""
        with self._in_use:
            self.feed.flush()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Count the end by its cause; the endpoint keeps running."""
        with self._in_use:
            self._terminated(event)

    def _terminated(self, event: QueryTerminatedEvent) -> None:
        self.feed.flush()
        query_id, run_id = str(event.id), str(event.runId)
        self._sinks.pop(run_id, None)
        self._bounded.discard(run_id)
        given, ids = self._given.pop(run_id, {}), self._ids.pop(query_id, set())
        left = ids.difference(*self._ids.values())
        newest = self._newest.get(query_id, run_id)
        goes_on = newest in self._given
        for id_ in left & given.keys():
            self._use(id_, given[id_])
        self._in_flight.ended(query_id, left)
        for id_ in ids:
            is_last = id_ in left
            if is_last and not (goes_on and id_ in self._given[newest]):
                self._notes.remove(id_)
            if is_last and id_ in self._mirrors:
                self._mirrors[id_].rest()
            if event.exception is None:
                if is_last:
                    self.feed.ended(id_)
            else:
                error = jvm.error_of(event.exception)
                logger.error("query %s ended: %s", event.id, error, id=id_)
                self._failed(id_, error, given.get(id_), goes_on=not is_last)
        self._show_others(run_id, ids - left)
        if goes_on:  # Spark tells of starts at once, and of ends later
            self._began(query_id, newest)
        else:
            self._newest.pop(query_id, None)

    def _failed(
        self,
        id_: str,
        error: BaseException,
        options: Mapping[str, str] | None,
        *,
        goes_on: bool,
    ) -> None:
        if stop_reason(error) == "fenced" and not goes_on:
            self._close_mirror(id_)  # the newer owner shows the figures of the id
            self.feed.forget(id_)
            self._lag.forget(id_)
        with self._store(id_, options) as store:
            record_stop(
                *(self._registry, store, id_, error, self._clock), goes_on=goes_on
            )

    def _show_others(self, ended_run: str, ids: set[str]) -> None:
        """Show the newest other query of each id whose shown run has ended."""
        for query_id, others in reversed(list(self._ids.items())):
            newest = self._newest.get(query_id)
            are_hidden = any(self._shown.get(id_) == ended_run for id_ in ids & others)
            if are_hidden and newest in self._given:
                self._began(query_id, newest)

    @contextmanager
    def _store(
        self, id_: str, options: Mapping[str, str] | None = None
    ) -> Iterator[Store | None]:
        """The store of an id, or of a run of it; None where it cannot be opened."""
        store = None
        try:
            transactions = self._config(id_, options).transactions
            assert transactions is not None
            store = assembly.open_store(transactions.store, id_)
        except KafkaTxError as error:
            logger.info("the store cannot be opened here: %s", error, id=id_)
        try:
            yield store
        finally:
            if store is not None:
                store.close()

    def open_view(self, id_: str) -> ClusterView:
        """Open a view of the cluster that an id reads from, with the usual retries."""
        config = replace(self._config(id_), num_retries=3, retry_interval_ms=1_000)
        return assembly.cluster_view(config)

    def _open_parts(self, id_: str) -> tuple[Ledger, Mirror | None]:
        config = self._config(id_)
        assert config.transactions is not None
        ledger = assembly.ledger(config.transactions)

        def failed() -> None:
            self._registry.add("kafka_tx_mirror_failures_total", id=id_)

        mirror = self._mirrors.get(id_) or assembly.group_mirror(config, failed)
        if mirror is not None:
            self._mirrors[id_] = mirror
        return ledger, mirror

    def _config(
        self, id_: str, options: Mapping[str, str] | None = None
    ) -> SourceConfig:
        options = self._options.get(id_) if options is None else options
        if options is None:
            raise ConfigError(
                f"the options of tx.id '{id_}' are not known here; give them to"
                " attach(spark, options={tx_id: {...}})",
                option="options",
            )
        return parse_source(options, streaming=True)


def _phases(duration_ms: Mapping[str, int]) -> dict[str, float]:
    planned = ("latestOffset", "queryPlanning", "getBatch", "walCommit")
    return {
        "planning": sum(duration_ms.get(name, 0) for name in planned),
        "processing": duration_ms.get("addBatch", 0),
    }


def _ran(
    progress: StreamingQueryProgress, start: SourceOffset | None, end: SourceOffset
) -> str:
    """The key of a batch and of its replays; empty if Spark ran no batch."""
    if "addBatch" not in progress.durationMs:
        return ""
    return Question(str(progress.id), progress.batchId, start, end).spark_batch


def _json(text: str | None) -> dict[str, Any] | None:
    """An offset as a dict; None for no offset, also if Spark has written null."""
    if not text or not text.startswith("{"):
        return None
    data: dict[str, Any] = json.loads(text)
    return data
