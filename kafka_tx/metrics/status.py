"""``/api/status`` and ``/health``: what the jobs of this process do, as JSON.

The shape is documented in ``docs/metrics.md``: fields are only added.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
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
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
"""The class of an error, which may be shown to everybody; its text may not."""
_COLUMNS = {
    "committed": catalogue.COMMITTED_OFFSET,
    "end": catalogue.END_OFFSET,
    "log_start": catalogue.LOG_START_OFFSET,
    "lag_records": catalogue.LAG_RECORDS,
    "lag_seconds": catalogue.LAG_SECONDS,
    "headroom_records": catalogue.RETENTION_HEADROOM,
    "retention_edge": catalogue.RETENTION_EDGE,
}


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a registry shows of an id."""

    activity: Activity
    samples: dict[str, Samples]
    left: int | None
    """Records until retention deletes unread ones, if that is soon."""
    is_silent: bool
    """Whether brokers do not answer."""


def _shown(registries: Sequence[MetricsRegistry]) -> dict[str, _Shown]:
    """All ids of these registries; of two runs of an id, the one that began last."""
    found: dict[str, _Shown] = {}
    for registry in registries:
        samples, left = registry.samples(), registry.near_loss()
        for id_, activity in registry.activities().items():
            former = found.get(id_)
            if former is None or former.activity.started_ms <= activity.started_ms:
                is_silent = registry.waits_for_brokers(id_)
                found[id_] = _Shown(activity, samples, left.get(id_), is_silent)
    return dict(sorted(found.items()))


def status(registries: Sequence[MetricsRegistry], now_ms: int) -> Json:
    """All ids of these registries, and the versions of this process."""
    found = _shown(registries)
    versions: set[Key] = set()
    for registry in registries:
        versions |= registry.samples_of(catalogue.BUILD_INFO).keys()
    version, python, spark = max(versions, key=lambda key: key[2], default=("",) * 3)
    return {
        "now_ms": now_ms,
        "version": version,
        "python": python or platform.python_version(),
        "spark": spark,
        "ids": [_id(id_, shown, now_ms) for id_, shown in found.items()],
    }


def health(
    registries: Sequence[MetricsRegistry], now_ms: int, hang_ms: int = STALLED_AFTER_MS
) -> Json:
    """Whether a supervisor should start this process again, by id, and why.

    It should after an error, and if nothing was committed for ``hang_ms`` although
    records wait or a batch is in flight. It should not while brokers do not answer, and
    not if a newer process has taken over.
    """
    ids = []
    for id_, shown in _shown(registries).items():
        activity, figures = shown.activity, _id(id_, shown, now_ms)
        state, why = figures["state"], ""
        if state == "failed":
            newest = activity.errors[-1]
            names = _CLASS.findall(newest.text)[:1] or ["its log has the text"]
            why = f"an error ended it: {newest.reason}, {names[0]}"
        elif not activity.ended_ms and _is_late(activity, figures, now_ms, hang_ms):
            why = f"nothing was committed for {hang_ms // 1000} s"
            for each in figures["in_flight"][:1]:
                age_s = (now_ms - each["since_ms"]) // 1000
                why += f"; a batch is in flight for {age_s} s, {each['phase']}"
        is_healthy = not why or (shown.is_silent and state != "failed")
        if why and is_healthy:
            why += "; but no broker answers, so a restart would not help"
        ids.append({"id": id_, "healthy": is_healthy, "state": state, "why": why})
    return {"healthy": all(each["healthy"] for each in ids), "ids": ids}


def _id(id_: str, shown: _Shown, now_ms: int) -> Json:
    activity, samples = shown.activity, shown.samples

    def of(metric: Metric) -> float | None:
        return samples[metric.name].get((id_,), (None,))[0]

    topics = _topics(id_, samples)
    last_commit_s, txid = of(catalogue.LAST_COMMIT), of(catalogue.COMMITTED_TXID)
    since_s = of(catalogue.IN_FLIGHT_SINCE)
    figures: Json = {
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
        "records_until_loss": shown.left,
        "waits_for_brokers": shown.is_silent,
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
    is_between_runs = of(catalogue.BOUNDED_COMMIT) is not None
    state = _state(activity, figures, now_ms, is_between_runs=is_between_runs)
    return {**figures, "state": state}


def _state(
    activity: Activity, figures: Json, now_ms: int, *, is_between_runs: bool
) -> str:
    """The worst that is true of an id."""
    if activity.has_failed:
        return "fenced" if activity.errors[-1].reason == "fenced" else "failed"
    if activity.ended_ms:
        return "ended"
    is_known = figures["last_commit_ms"] or figures["topics"]
    if figures["records_until_loss"] is not None:
        found = "losing"
    elif _is_late(activity, figures, now_ms, STALLED_AFTER_MS):
        without_run = "idle" if is_between_runs else "gone"
        found = "stalled" if activity.started_ms else without_run
    elif figures["in_flight"] or figures["lag_records"]:
        found = "running"
    else:
        found = "idle" if is_known else "starting"
    return found


def _is_late(activity: Activity, figures: Json, now_ms: int, after_ms: int) -> bool:
    """As the alerts: records wait, or a batch is in flight, and nothing was committed.

    Records that came a moment ago are not late, however long the job was idle before,
    nor are those that wait until there are enough for a batch.
    """
    in_flight_ms = figures["in_flight_since_ms"] or now_ms
    waited_ms = (figures["lag_seconds"] or 0) * 1000
    since_ms = max(figures["last_commit_ms"] or 0, activity.started_ms)
    least_ms = after_ms + activity.waits_ms
    is_waiting = waited_ms > least_ms and since_ms < now_ms - least_ms
    return is_waiting or in_flight_ms < now_ms - after_ms


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


def _over(
    topics: list[Json], column: str, summarise: Callable[[list[float]], float]
) -> float | None:
    known = [each for row in topics for each in row[column] if each is not None]
    return summarise(known) if known else None
