"""Asks a Prometheus what the dashboard and the alert rules ask it about a job."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests
import yaml

from integration.cluster.jars import REPOSITORY
from integration.cluster.waiting import wait_until
from kafka_tx.metrics.metric import Fed, Metric
from tests.metrics.promql import metrics_in, selectors

GRAFANA = REPOSITORY / "grafana"
SCRAPE_INTERVAL_S = 1
RATE_INTERVAL = "10s"
"""What Grafana would put for ``$__rate_interval`` at this scrape interval, and more."""


@dataclass(frozen=True, slots=True)
class Question:
    """One expression that somebody asks: a panel of the dashboard or an alert rule."""

    asked_by: str
    expression: str

    def __str__(self) -> str:
        return f"{self.asked_by}: {self.expression}"

    @property
    def metrics(self) -> frozenset[Metric]:
        return metrics_in(self.expression)


class PrometheusApi:
    """The HTTP API of a Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every series that answers now."""
        result = self._get("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def range(
        self, expression: str, begin: float, end: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Labels of every series, and its values each second between two Unix times."""
        asked = {"query": expression, "start": begin, "end": end, "step": 1}
        found = self._get("query_range", **{k: str(v) for k, v in asked.items()})
        return [
            (
                each["metric"],
                [(float(at), float(value)) for at, value in each["values"]],
            )
            for each in found["result"]
        ]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health, last error and alerts."""
        groups = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def alerting(self, alert: str, label: str = "id") -> set[str]:
        """The ids, or values of another label, for which an alert fires now."""
        return self._alerts(alert, label, "")

    def alerted(self, alert: str, label: str) -> set[str]:
        """The same for the last minute."""
        return self._alerts(alert, label, "[1m]")

    def _alerts(self, alert: str, label: str, since: str) -> set[str]:
        firing = f'ALERTS{{alertname="{alert}", alertstate="firing"}}{since}'
        found = self.query(f"count_over_time({firing})" if since else firing)
        return {labels[label] for labels, _ in found}

    def target_healths(self) -> list[str]:
        """``up``, ``down`` or ``unknown`` for every target."""
        return [each["health"] for each in self._get("targets")["activeTargets"]]

    def _get(self, what: str, **parameters: str) -> Any:
        answer = requests.get(
            f"{self._url}/api/v1/{what}", params=parameters, timeout=60
        ).json()
        assert answer["status"] == "success", answer
        return answer["data"]


@dataclass(frozen=True, slots=True)
class Observed:
    """A running job under the eyes of a Prometheus.

    Attributes:
        prometheus: Scrapes the job's endpoint every ``SCRAPE_INTERVAL_S``, with the
            rules of ``grafana/alerts.yml`` loaded.
        tx_id: The job's id.
        fed: What the job feeds: commits and batches for a query with ``tx.id``, also
            phases for a topology, and so on.
        without: Names of metrics that this job cannot measure.
    """

    prometheus: PrometheusApi
    tx_id: str
    fed: frozenset[Fed]
    without: frozenset[str] = frozenset()

    def assert_every_panel_shows_data(self, timeout_s: float = 180.0) -> None:
        """Each query of each panel the job feeds comes to give a number.

        Raises:
            NotReadyError: Some do not in time; names panels and expressions.
        """
        questions = [q for q in panel_questions(self.tx_id) if self._is_fed(q.metrics)]
        assert questions
        self._wait_for_answers(questions, timeout_s)

    def assert_every_rule_is_evaluated(self, timeout_s: float = 180.0) -> None:
        """Each rule evaluates without error, and the series it looks at exist.

        Raises:
            NotReadyError: Some series do not appear in time; names rules and series.
        """
        wait_until(
            "every rule is evaluated",
            lambda: all(r["health"] == "ok" for r in self.prometheus.rules()),
            timeout_s=timeout_s,
        )
        evaluated = {rule["name"] for rule in self.prometheus.rules()}
        assert evaluated == {rule["alert"] for rule in alert_rules()}
        self._wait_for_answers(
            [q for q in rule_series(self.tx_id) if self._is_fed(q.metrics)], timeout_s
        )

    def firing(self) -> set[str]:
        """Names of the alerts that are pending or firing now for this job.

        An endpoint also shows other jobs of its process: those of earlier tests.
        """
        rules = self.prometheus.rules()
        return {r["name"] for r in rules if any(map(self._is_about_it, r["alerts"]))}

    def _is_about_it(self, alert: dict[str, Any]) -> bool:
        return bool(alert["labels"].get("id", self.tx_id) == self.tx_id)

    def _is_fed(self, metrics: frozenset[Metric]) -> bool:
        return all(
            metric.fed in self.fed and metric.name not in self.without
            for metric in metrics
        )

    def _wait_for_answers(self, questions: list[Question], timeout_s: float) -> None:
        silent = list(questions)

        def all_answer() -> bool:
            silent[:] = [q for q in silent if not self._is_answered(q)]
            assert not silent, "\n".join(
                f"{q.asked_by}: {q.expression}" for q in silent
            )
            return True

        wait_until("every expression gives data", all_answer, timeout_s=timeout_s)

    def _is_answered(self, question: Question) -> bool:
        answer = self.prometheus.query(question.expression)
        return any(not math.isnan(value) for _, value in answer)


def panel_questions(tx_id: str) -> Iterator[Question]:
    """What the dashboard asks when the user chose this id and every topic."""
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text(encoding="utf-8"))
    folded = [each for row in dashboard["panels"] for each in row.get("panels", [])]
    for panel in (*dashboard["panels"], *folded):
        for target in panel.get("targets", []):
            yield Question(panel["title"], _chosen(target["expr"], tx_id))


def alert_rules() -> list[dict[str, Any]]:
    """The rules of ``grafana/alerts.yml``."""
    text = (GRAFANA / "alerts.yml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def rule_series(tx_id: str) -> Iterator[Question]:
    """The series that each rule looks at, as far as they are this job's."""
    for rule in alert_rules():
        for used in selectors(rule["expr"]):
            matchers = [f'{name}{op}"{value}"' for name, op, value in used.matchers]
            if "id" in used.labels:
                matchers.append(f'id="{tx_id}"')
            yield Question(rule["alert"], f"{used.sample}{{{', '.join(matchers)}}}")


def _chosen(expression: str, tx_id: str) -> str:
    chosen = (
        expression.replace("$__rate_interval", RATE_INTERVAL)
        .replace("$id", re.escape(tx_id).replace("\\", "\\\\"))
        .replace("$topic", ".*")
        .replace("$job", ".*")
    )
    assert "$" not in chosen, chosen
    return chosen
