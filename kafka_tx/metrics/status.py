"""``/api/status``: what the jobs of this process do, as JSON for people's pages.

The shape is documented in ``docs/metrics.md``: fields are only added.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kafka_tx.metrics import catalogue
from kafka_tx.metrics.activity import Activity
from kafka_tx.metrics.metric import Metric
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.metrics.series import Key, Samples

Json = dict[str, Any]

STALLED_AFTER_MS = 600_000
"""The same limit as in the alert KafkaTxCommitStalled."""

_RATE_OVER_MS = 60_000
_COLUMNS = {
    "committed": catalogue.COMMITTED_OFFSET,
    "end": catalogue.END_OFFSET,
    "log_start": catalogue.LOG_START_OFFSET,
    "lag_records": catalogue.LAG_RECORDS,
    "lag_seconds": catalogue.LAG_SECONDS,
    "headroom_records": catalogue.RETENTION_HEADROOM,
}


def status(registries: Sequence[MetricsRegistry], now_ms: int) -> Json:
    """All ids of these registries; of two runs of an id, the one that began last."""
    found: dict[str, tuple[Activity, dict[str, Samples]]] = {}
    versions: set[Key] = set()
    for registry in registries:
        samples = registry.samples()
        versions |= samples[catalogue.BUILD_INFO.name].keys()
        for id_, activity in registry.activities().items():
            former = found.get(id_)
            if former is None or former[0].started_ms <= activity.started_ms:
                found[id_] = activity, samples
    version, python, spark = max(versions, key=lambda key: key[2], default=("",) * 3)
    return {
        "now_ms": now_ms,
        "version": version,
        "python": python or platform.python_version(),
        "spark": spark,
        "ids": [_id(id_, *found[id_], now_ms) for id_ in sorted(found)],
    }


def _id(id_: str, activity: Activity, samples: dict[str, Samples], now_ms: int) -> Json:
    def of(metric: Metric) -> float | None:
        return samples[metric.name].get((id_,), (None,))[0]

    topics = _topics(id_, samples)
    last_commit_s, txid = of(catalogue.LAST_COMMIT), of(catalogue.COMMITTED_TXID)
    since_s = of(catalogue.IN_FLIGHT_SINCE)
    reported: Json = {
        "id": id_,
        "door": activity.door,
        "unit": "chunk" if activity.door == "at least once" else "txid",
        "started_ms": activity.started_ms or None,
        "ended_ms": activity.ended_ms or None,
        "moved_to": activity.moved_to or None,
        "committed_txid": None if txid is None else int(txid),
        "last_commit_ms": None if last_commit_s is None else int(last_commit_s * 1000),
        "lag_records": _over(topics, "lag_records", sum),
        "lag_seconds": _over(topics, "lag_seconds", max),
        "headroom_records": _over(topics, "headroom_records", min),
        "records_per_second": _rate(activity, now_ms),
        "in_flight_since_ms": int(since_s * 1000) if since_s else None,
        "in_flight": [asdict(each) for each in activity.in_flight],
        "batches": [asdict(each) for each in activity.batches],
        "errors": [asdict(each) for each in activity.errors],
        "lag_history": list(activity.lags),
        "topics": topics,
        "tables": [asdict(write) for write in activity.tables.values()],
        "options": activity.options,
    }
    return {**reported, "state": _state(activity, reported, now_ms)}


def _state(activity: Activity, reported: Json, now_ms: int) -> str:
    if activity.ended_ms:
        newest = activity.errors[-1] if activity.errors else None
        if newest is None or newest.at_ms < activity.started_ms:
            return "ended"
        return "fenced" if newest.reason == "fenced" else "failed"
    is_busy = bool(reported["in_flight"] or reported["lag_records"])
    if not is_busy:
        return (
            "idle" if reported["last_commit_ms"] or reported["topics"] else "starting"
        )
    since_ms = max(reported["last_commit_ms"] or 0, activity.started_ms)
    first_ms = reported["in_flight_since_ms"] or now_ms
    is_late = min(since_ms or first_ms, first_ms) < now_ms - STALLED_AFTER_MS
    return "stalled" if is_late else "running"


def _rate(activity: Activity, now_ms: int) -> float | None:
    """Records per second of the last minute; None where they are not counted."""
    recent = [b for b in activity.batches if b.ended_ms > now_ms - _RATE_OVER_MS]
    counted = [b.records for b in recent if b.records is not None]
    if not counted:
        return None if recent else 0.0
    began_ms = min(b.ended_ms - b.duration_ms for b in recent)
    span_ms = max(1_000, min(_RATE_OVER_MS, now_ms - began_ms))
    done = [b for b in recent if b.outcome in {"committed", "completed"}]
    return round(sum(b.records or 0 for b in done) * 1000 / span_ms, 1)


def _topics(id_: str, samples: dict[str, Samples]) -> list[Json]:
    """Partitions as columns, since there may be thousands."""
    columns = {name: samples[metric.name] for name, metric in _COLUMNS.items()}
    places = sorted(
        (key[1], int(key[2]), key)
        for key in {*columns["committed"], *columns["end"]}
        if key[0] == id_
    )
    topics: dict[str, Json] = {}
    for topic, number, key in places:
        row = topics.get(topic)
        if row is None:
            row = topics[topic] = {
                "topic": topic,
                "partition": [],
                **{name: [] for name in columns},
            }
        row["partition"].append(number)
        for name, values in columns.items():
            found = values.get(key)
            row[name].append(_number(name, found))
    return list(topics.values())


def _number(name: str, found: tuple[float, ...] | None) -> float | None:
    if found is None:
        return None
    return round(found[0], 1) if name == "lag_seconds" else int(found[0])


def _over(topics: list[Json], column: str, summarise: Any) -> float | None:  # noqa: ANN401 - sum, max or min
    known = [each for row in topics for each in row[column] if each is not None]
    return summarise(known) if known else None
