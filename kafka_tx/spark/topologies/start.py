"""The start of topologies of both kinds.

Spark's settings are checked first: those that cannot work are refused, slow ones are
explained once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafka_tx.errors import ConfigError
from kafka_tx.logs import event_log
from kafka_tx.metrics.endpoint import Endpoint, Guest, serve
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.options.topology import TopologySettings
from kafka_tx.running.worker_python import warn_without_package
from kafka_tx.spark.default_store import refuse_default_store
from kafka_tx.spark.speculation import refuse_speculation
from kafka_tx.spark.topologies.running import TopologyLoop
from kafka_tx.spark.versions.job_failures import is_stopped, spark_stopped
from kafka_tx.spark.versions.names import is_classic, pins_threads
from kafka_tx.topology.builder import Topology
from kafka_tx.topology.declare.bolts import TOPOLOGY_ID
from kafka_tx.topology.declare.graph import Placement
from kafka_tx.topology.plan.physical import PhysicalPlan

logger = event_log(__name__)

_SOCKETS = "spark.python.unix.domain.socket.enabled"
_explained: set[tuple[str, str]] = set()  # (application, setting)
_POLL_EVERY_S = 2.0

_Loop = TypeVar("_Loop", bound=TopologyLoop[Any])


def start_topology(
    topology: Topology,
    spark: SparkSession,
    config: Mapping[str, Any] | None,
    settings: TopologySettings,
    max_pending: int,
    registry: MetricsRegistry | None,
    opened: Callable[[PhysicalPlan, MetricsRegistry], _Loop],
) -> tuple[_Loop, Endpoint | Guest]:
    """Check the session, serve ``/metrics``, and run the loop until the session ends.

    Args:
        topology: The user's topology.
        spark: The user's session.
        config: The settings, as the user gave them.
        settings: The same, parsed.
        max_pending: Jobs at once.
        registry: Takes the metrics; a new one if None.
        opened: Opens the topology's state and makes its loop, from the plan with the
            user's settings. If that fails, nothing of the topology is left open.

    Raises:
        ConfigError: The session cannot be used, or the store would not be found again.
        Exception: Errors of ``opened``, and of the loop's start.
    """
    plan = replace(topology.plan, settings={**(config or {}), TOPOLOGY_ID: topology.id})
    check_session(spark, plan, max_pending)
    refuse_default_store(spark, config)
    registry = registry or MetricsRegistry(spark_version=spark.version)
    endpoint = _serve_metrics(registry, settings)
    try:
        loop = opened(plan, registry)
        loop.start(_session_watch(loop, spark.sparkContext))
    except BaseException:
        endpoint.close()
        raise
    if isinstance(endpoint, Endpoint):  # a guest leaves with its handle
        endpoint.shows_run(topology.id, loop.has_ended)
    return loop, endpoint


def _session_watch(loop: TopologyLoop[Any], context: SparkContext) -> threading.Thread:
    """Ends a topology when its session ends, also while the topology is idle."""

    def watch() -> None:
        while not loop.has_ended.wait(_POLL_EVERY_S):
            if is_stopped(context):
                loop.abort(spark_stopped())
                return

    name = "kafka-tx session watch"
    return threading.Thread(target=watch, name=name, daemon=True)


def _serve_metrics(
    registry: MetricsRegistry, settings: TopologySettings
) -> Endpoint | Guest:
    """Serve ``/metrics`` on the settings' port; None: on the process's oldest one."""
    if settings.metrics_port is None:
        return Guest(registry)
    return serve(
        registry,
        settings.metrics_port,
        settings.metrics_address,
        shows_page=settings.shows_page,
    )


def check_session(spark: SparkSession, plan: PhysicalPlan, max_pending: int) -> None:
    """Refuse settings that cannot work; explain slow ones once per application.

    Raises:
        ConfigError: Spark Connect, pinned threads switched off, or speculation
            together with committers on executors.
    """
    context = _context(spark)
    warn_without_package(context)
    conf = context.getConf()

    def is_on(name: str, default: str) -> bool:
        return str(conf.get(name, default)).lower() == "true"

    commits_there = any(w.placement is Placement.EXECUTORS for w in plan.commit)
    if commits_there:
        refuse_speculation(
            spark,
            "committers on executors",
            "; or put the committers on the driver (.on_driver())",
        )
    advice = {
        _SOCKETS: None
        if is_on(_SOCKETS, "false")
        else "is off: each Spark job waits about 45 ms for delayed acknowledgements on"
        " loopback sockets; set it to true when the session is made",
        "spark.python.worker.reuse": None
        if is_on("spark.python.worker.reuse", "true")
        else "is off: each task starts a Python process of its own",
        "spark.scheduler.mode": None
        if not commits_there or max_pending == 1 or _mode(context) == "FAIR"
        else "is FIFO: commit phases on executors wait behind the processing of later"
        " batches; FAIR lets them overtake",
        "spark.sql.adaptive.enabled": None
        if not _has_frames(plan)
        or str(spark.conf.get("spark.sql.adaptive.enabled", "true")) == "false"
        else "is on: small DataFrame bolts run faster without adaptive execution",
    }
    for name, text in advice.items():
        if text is not None:
            _explain(context, name, text)


def _context(spark: SparkSession) -> SparkContext:
    if not is_classic(spark):
        raise ConfigError.illegal(
            "spark",
            type(spark).__name__,
            "a classic SparkSession",
            "Topologies run RDDs, which Spark Connect does not have; the drop-in source"
            " (format 'kafka_tx') works there.",
        )
    context = spark.sparkContext
    if not pins_threads(context):
        raise ConfigError.illegal(
            "PYSPARK_PIN_THREAD",
            "false",
            "true (the default)",
            "Without it the jobs of one attempt cannot be told from those of another.",
        )
    return context


def _mode(context: SparkContext) -> str:
    return str(context.getConf().get("spark.scheduler.mode", "FIFO")).upper()


def _has_frames(plan: PhysicalPlan) -> bool:
    return any(s.placement is Placement.DATAFRAME for s in plan.stages.values())


def _explain(context: SparkContext, name: str, text: str) -> None:
    key = (context.applicationId, name)
    if key not in _explained:
        _explained.add(key)
        logger.warning("%s %s", name, text)
