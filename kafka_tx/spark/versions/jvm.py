"""Reads from the JVM what Python's API of Spark does not offer.

Where an answer cannot be had (Spark Connect, another version) it is None or empty and
the caller does without; only ``RunningQuery`` raises.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from kafka_tx import errors
from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.logs import event_log
from kafka_tx.model import QueryShape, short_digest
from kafka_tx.options.shown import SECRETS
from kafka_tx.planning.new_checkpoints import lost_with_checkpoint
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.source.questions import Answer, Question
from kafka_tx.spark.versions.streams import answer_of
from kafka_tx.store_place import store_url
from kafka_tx.transactions.ledger.batch_ids import UNKNOWN_SINK, SinkNote

logger = event_log(__name__)

_FAILURES = (Py4JError, PySparkException, AttributeError, TypeError, OSError)
"""Errors of a JVM that lacks a name, or is gone."""

_PLANNER_ENVIRONMENT = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Spark sets these for every process it starts for a source, and overwrites others."""
_adding = Lock()

_HIDDEN = "spark.sql.redaction.options.regex"
_HIDDEN_BY_SPARK = "(?i)url"
_DOING = (
    (("Initializing", "Getting"), "planning"),
    (("Processing", "No new data but"), "processing"),
)
"""How the status of a query begins, and the phase of its batch then."""

_STATES = re.compile(r"(\w+)[^\n]* state info \[")
"""Operators that keep state, in the text of a physical plan."""

_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
_NOT_A_NAME = re.compile(r"@[0-9a-f]+")
"""The suffix that Java adds to an object without a name; it differs in each run."""


def file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The packages of a classic session's JVM, and Hadoop's file system of a path."""
    packages: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return packages, packages.org.apache.hadoop.fs.Path(path).getFileSystem(conf)


def let_queries_start_together(spark: SparkSession) -> None:
    """Keep queries that start at the same time from breaking each other (driver).

    As a query starts, Spark adds these variables to a map without a lock that all its
    queries share. If two add the same variable at once, the map's size stays wrong, and
    no task can be serialised until the driver is started again ("Illegal size 5 of
    collection, expected 6"). A variable that is there already is only set. A format
    that is not registered has no map yet: the first query that knows its transactions
    tries again.
    """
    try:
        with _adding:
            for name, value in _PLANNER_ENVIRONMENT.items():
                _environment(spark).putIfAbsent(name, value)
    except _FAILURES as error:
        logger.debug("queries should not be started at the same time: %s", error)


def give_planners(spark: SparkSession, name: str, value: str) -> None:
    """Set an environment variable of planners that start from now on (driver)."""
    try:
        with _adding:
            _environment(spark).put(name, value)
    except _FAILURES as error:
        logger.debug("planners do not get %s: %s", name, error)


def give_tasks(spark: SparkSession, name: str, value: str) -> None:
    """Set a property of the jobs that the calling thread of the JVM starts (driver)."""
    try:
        spark.sparkContext.setLocalProperty(name, value)
    except _FAILURES as error:
        logger.debug("tasks do not get %s: %s", name, error)


def _environment(spark: SparkSession) -> Any:  # noqa: ANN401 - a map of the JVM
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    return sources.lookupDataSource("kafka_tx").dataSourceCls().envVars()


def hide_secrets(spark: SparkSession) -> None:
    """Let plans of this session show no option that may hold a secret (driver).

    Plans stand in what ``explain`` prints, in the UI, in event logs and in logs. The
    queries that the session starts from now on have the setting, too.
    """
    try:
        now = spark.conf.get(_HIDDEN, None) or _HIDDEN_BY_SPARK
        if SECRETS not in now:
            spark.conf.set(_HIDDEN, f"{now}|{SECRETS}")
    except _FAILURES as error:
        logger.debug("plans may show secrets: %s", error)


def local_process(spark: SparkSession) -> int | None:
    """The JVM whose children run all tasks; None where executors do."""
    try:
        if not spark.sparkContext.master.startswith("local["):
            return None
        return int(spark._jvm.java.lang.ProcessHandle.current().pid())
    except _FAILURES:
        return None


def is_logged_late(spark: SparkSession, query_id: str) -> bool:
    """Whether a query writes its checkpoint late: asynchronous progress tracking."""
    try:
        kind = str(_query(spark, query_id).getClass().getName())
    except _FAILURES as error:
        logger.debug("the kind of query %s is not known: %s", query_id, error)
        return False
    return "AsyncProgressTracking" in kind


_IGNORE_IDS = (
    *("ConsoleTable$", "NoopTable$", "KafkaSourceProvider$KafkaTable", "MemorySink"),
    *("DeltaSink", "SparkTable"),
)
"""Classes of sinks that remember no batch ids, or only together with the query's id."""

_FILES = re.compile(r"FileSink\[(.*)\]", re.DOTALL)


def sink_of(spark: SparkSession, query_id: str) -> SinkNote:
    """Facts about the sink of a query that is starting; nothing if it cannot be seen.

    A file sink has a list of the batch ids that it holds, in ``_spark_metadata``.
    """
    try:
        query = _query(spark, query_id)
        sink = query.sink()
        name, kind = str(sink.toString()), str(sink.getClass().getName())
        files = _FILES.fullmatch(name)
        if files is not None:
            newest = _newest_id(spark, files[1])
            return SinkNote(name, newest=newest, first_new=_first_new_id(query, newest))
        is_ours = kind.endswith(".PythonTable") and sink.name() == "kafka_tx"
        ignores = is_ours or kind.endswith(_IGNORE_IDS)
        return SinkNote(name, ignores_ids=ignores)
    except _FAILURES as error:
        logger.debug("the sink of query %s is not known: %s", query_id, error)
        return UNKNOWN_SINK


def _newest_id(spark: SparkSession, folder: str) -> int:
    """The greatest batch id that a file sink holds; -1: none."""
    path = spark._jvm.org.apache.hadoop.fs.Path(folder, "_spark_metadata")
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(path):
        return -1
    names = [str(each.getPath().getName()) for each in files.listStatus(path)]
    ids = (name.removesuffix(".compact") for name in names)
    return max((int(each) for each in ids if each.isdecimal()), default=-1)


def _first_new_id(query: Any, newest: int) -> int:  # noqa: ANN401 - a JVM object
    """The lowest id that this run has not handed to its sink in an earlier try."""
    done, logged = (
        int(found.get()) if found.isDefined() else -1
        for found in (
            query.commitLog().getLatestBatchId(),
            query.offsetLog().getLatestBatchId(),
        )
    )
    is_replay = logged > done and newest == done + 1
    return done + 1 + is_replay


def phase_of(spark: SparkSession, query_id: str) -> str:
    """The phase of a running query: ``planning``, ``processing``; empty: it waits."""
    try:
        message = str(_query(spark, query_id).status().message())
    except _FAILURES as error:
        logger.debug("what query %s does is not known: %s", query_id, error)
        return ""
    found = (phase for words, phase in _DOING if message.startswith(words))
    return next(found, "")


def is_bounded(spark: SparkSession, query_id: str) -> bool:
    """Whether a running query ends by itself, by its trigger; False: not known."""
    try:
        kind = str(_query(spark, query_id).trigger().getClass().getName())
    except _FAILURES as error:
        logger.debug("the trigger of query %s is not known: %s", query_id, error)
        return False
    return kind.endswith(("AvailableNowTrigger$", "OneTimeTrigger$"))


def source_options(spark: SparkSession, query_id: str) -> dict[str, dict[str, str]]:
    """The options of each ``kafka_tx`` source of a running query, by its ``tx.id``.

    From the plan that the query was made of: it is there before the query's first step,
    also when that step fails.
    """
    found: dict[str, dict[str, str]] = {}
    try:
        for leaf in _leaves(_query(spark, query_id).analyzedPlan()):
            if not leaf.getClass().getName().endswith(".StreamingRelationV2"):
                continue
            options = dict(leaf.extraOptions().asCaseSensitiveMap())
            given = planners_options(spark, options)
            if "tx.id" in given:
                found[given["tx.id"].strip()] = given
    except _FAILURES as error:
        logger.debug("options of query %s cannot be read: %s", query_id, error)
    return found


def planners_options(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """The same options for this process, whichever folder it changes to.

    A relative path of a store is one of the planning process, which works in the JVM's
    folder.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "tx.store" in given:
        try:
            folder = spark._jvm.java.lang.System.getProperty("user.dir")
        except _FAILURES as error:
            logger.debug("the folder of the JVM is not known: %s", error)
            folder = None
        given["tx.store"] = store_url(given["tx.store"], folder)
    return given


class RunningQuery:
    """One run of a query, asked from inside of its ``foreachBatch``.

    Spark's thread waits there, so that nobody else calls its streams.

    Raises:
        ConfigError: It opens one ``tx.id`` several times.
        KafkaTxError: It cannot be asked, now or by one of the methods.
    """

    def __init__(self, spark: SparkSession, query_id: str) -> None:
        self._query_id = query_id
        with self._asking():
            self._query = _query(spark, query_id)
            streaming = spark._jvm.org.apache.spark.sql.connector.read.streaming
            self._limit = streaming.ReadLimit.allAvailable()  # questions ignore it
            plan = self._query.explainInternal(False)
            self._states = tuple(sorted(set(_STATES.findall(plan))))
            self._streams = _streams(self._query, self._states)
            self._others = _others(self._query, self._streams)
        self._ends: dict[str, tuple[int, SourceOffset]] = {}
        """By ``tx.id`` the last batch that was asked about, and its end."""

    @property
    def tx_ids(self) -> list[str]:
        """The ``tx.id`` of each source, ascending."""
        return sorted(self._streams)

    def shape(self) -> QueryShape:
        """The other sources of the query, and the operators that keep state."""
        others = tuple(sorted(self._others))
        return QueryShape(tuple(self.tx_ids), others, self._states)

    def other_ends(self) -> dict[str, str]:
        """A digest of the end of each source without ``tx.id`` in this batch."""
        with self._asking():
            ends = self._query.availableOffsets()
            found = {name: ends.get(stream) for name, stream in self._others.items()}
            return {
                name: short_digest(end.get().json()) if end.isDefined() else ""
                for name, end in found.items()
            }

    @property
    def is_running(self) -> bool:
        """Whether this run is still active; a query has one at a time."""
        with self._asking():
            return bool(self._query.isActive())

    def question(self, tx_id: str, batch_id: int) -> Question:
        """The question about the batch in progress.

        Each call of the JVM takes some 0.2 ms, so a batch begins where the one before
        has ended: batches of a run have no gaps.
        """
        stream = self._streams[tx_id]
        before, ended = self._ends.get(tx_id, (None, None))
        with self._asking():
            end = _read(self._query.availableOffsets().get(stream))
            if before == batch_id - 1:
                start = ended
            else:
                committed = self._query.committedOffsets().get(stream)
                start = _read(committed) if committed.isDefined() else None
        self._ends[tx_id] = batch_id, end
        return Question(self._query_id, batch_id, start, end)

    def ask(self, tx_id: str, question: Question) -> Answer:
        """Ask the planner of this very run; also raises its error."""
        stream = self._streams[tx_id]
        with self._asking():
            try:
                sent = stream.deserializeOffset(json.dumps(question.to_json()))
                answer = answer_of(stream, sent, self._limit)
            except Py4JJavaError as error:
                raise error_of(str(error.java_exception.getMessage())) from error
        return Answer.from_json(answer)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            raise KafkaTxError(
                f"the running query {self._query_id} cannot be asked which transaction"
                f" it processes: {error}"
            ) from error


def _read(found: Any) -> SourceOffset:  # noqa: ANN401 - an Option of the JVM
    return SourceOffset.from_json(json.loads(found.get().json()))


def let_listeners_finish(spark: SparkSession, timeout_ms: int) -> None:
    """Wait until listeners have received all events so far."""
    try:
        context = spark._jsparkSession.sparkContext()
        context.listenerBus().waitUntilEmpty(timeout_ms)
    except _FAILURES as error:
        logger.debug("listeners may not have heard everything: %s", error)


def remove_listener(spark: SparkSession, listener: StreamingQueryListener) -> None:
    """Remove a listener; a session or a JVM that has ended needs none removed."""
    try:
        spark.streams.removeListener(listener)
    except _FAILURES as error:
        logger.debug("the listener was not removed: %s", error)


def error_of(text: str) -> KafkaTxError:
    """The first error of kafka_tx in a query's exception text: its causes follow."""
    places = {kind: text.find(f"[{kind.error_class}") for kind in _kinds(KafkaTxError)}
    found = [kind for kind, place in places.items() if place >= 0]
    if not found:
        return KafkaTxError(_last_words(text))
    kind = min(found, key=lambda each: (places[each], -len(each.error_class)))
    name, _, rest = text[places[kind] + 1 :].partition("] ")
    error = kind.__new__(kind)
    KafkaTxError.__init__(error, rest.partition("\n")[0].strip() or text)
    error.error_class = name
    return error


def _last_words(text: str) -> str:
    """The text of a foreign error: the end of a Python traceback, or its first line."""
    said = re.search(
        r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", text
    )
    return said.group(1) if said else text.strip().partition("\n")[0]


def _kinds(kind: type[errors.KafkaTxError]) -> list[type[errors.KafkaTxError]]:
    below = [found for sub in kind.__subclasses__() for found in _kinds(sub)]
    return [*below, kind]


def _relations(query: Any) -> list[tuple[dict[str, str], Any]]:  # noqa: ANN401
    """Options and JVM stream of each source of Spark's second interface (V2)."""
    found = []
    for leaf in _leaves(query.logicalPlan()):
        if leaf.getClass().getName().endswith("StreamingDataSourceV2ScanRelation"):
            options = dict(leaf.relation().options().asCaseSensitiveMap())
            given = {name.lower(): value for name, value in options.items()}
            found.append((given, leaf.stream()))
    return found


def _streams(query: Any, states: tuple[str, ...]) -> dict[str, Any]:  # noqa: ANN401
    """The JVM stream of each ``tx.id``; a union with itself has one stream twice."""
    found: dict[str, Any] = {}
    for options, stream in _relations(query):
        if "tx.id" not in options:
            continue
        tx_id = options["tx.id"].strip()
        if not found.setdefault(tx_id, stream).equals(stream):
            raise ConfigError(
                f"this query opens tx.id '{tx_id}' twice: Spark reads a DataFrame that"
                " is joined with itself by two sources, and each would fence the"
                " other. Nothing was written. Load each side of the join by itself,"
                " with a tx.id of its own, and start with a new checkpointLocation."
                f"{lost_with_checkpoint(QueryShape(states=states))}",
                option="tx.id",
                value=tx_id,
            )
    return found


def _others(query: Any, ours: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Every other stream of a query by its name, the same in each run."""
    sources = query.sources()
    found: dict[str, Any] = {}
    names = Counter[str]()
    for stream in (sources.apply(i) for i in range(sources.size())):
        if not any(stream.equals(one) for one in ours.values()):
            name = _name_of(query, stream)
            names[name] += 1
            found[f"{name} ({names[name]})" if names[name] > 1 else name] = stream
    return found


def _name_of(query: Any, stream: Any) -> str:  # noqa: ANN401 - JVM objects
    """Spark's name of a stream; a Python stream has none and is named by its topics."""
    for options, known in _relations(query):
        read = [options[name] for name in _SUBSCRIPTIONS if name in options]
        if read and known.equals(stream):
            return f"topic {read[0]}"
    return _NOT_A_NAME.sub("", stream.toString())


def _query(spark: SparkSession, query_id: str) -> Any:  # noqa: ANN401 - a JVM object
    """The running query, from whichever session it was started.

    ``foreachBatch`` gets a clone of the session, whose own list of queries is empty.
    """
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    query = running.get(spark._jvm.java.util.UUID.fromString(query_id))
    if query is None:
        raise AttributeError(f"no running query {query_id}")
    return query


def _leaves(plan: Any) -> list[Any]:  # noqa: ANN401 - JVM objects
    leaves = plan.collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]
