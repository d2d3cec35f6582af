"""Which metrics and labels an expression uses."""

import pytest

from kafka_tx.metrics import catalogue
from tests.metrics.promql import Selector, metrics_in, problems, selectors

RIGHT = [
    "up == 0",
    "sum by (id, topic) (kafka_tx_lag_records)",
    'rate(kafka_tx_batches_total{id=~"$id", outcome="failed"}[5m])',
    "histogram_quantile(0.9, sum by (le, id) (rate(kafka_tx_batch_duration_seconds_bucket[5m])))",  # noqa: E501
    "kafka_tx_commit_latency_seconds_sum / kafka_tx_commit_latency_seconds_count",
    'kafka_tx_lag_records{job="kafka_tx", instance!=""}',
    "a_metric_of_others and on (id) kafka_tx_committed_txid",
    'kafka_tx_stops_total{reason=~"sta.*"}',
    "count by (job) (up)",
]

WRONG = {
    "kafka_tx_lag": "kafka_tx_lag is not in the catalogue",
    "kafka_tx_records": "kafka_tx_records is not in the catalogue",
    "kafka_tx_records_total_sum": "kafka_tx_records_total_sum is not in the catalogue",
    "kafka_tx_batch_duration_seconds": (
        "kafka_tx_batch_duration_seconds is not in the catalogue"
    ),
    'kafka_tx_records_total{topic="t"}': "kafka_tx_records_total has no label topic",
    'kafka_tx_batch_duration_seconds_sum{le="1"}': (
        "kafka_tx_batch_duration_seconds_sum has no label le"
    ),
    'kafka_tx_batches_total{outcome="lost"}': (
        "outcome of kafka_tx_batches_total is never 'lost'"
    ),
    'kafka_tx_stops_total{reason!="fence"}': (
        "reason of kafka_tx_stops_total is never 'fence'"
    ),
    "sum by (id, phase) (kafka_tx_lag_records)": (
        "no metric of the expression has the label phase"
    ),
    "kafka_tx_lag_records * on (id) group_left (txid) kafka_tx_committed_txid": (
        "no metric of the expression has the label txid"
    ),
}


@pytest.mark.parametrize("expression", RIGHT)
def test_what_the_catalogue_has_is_no_problem(expression: str) -> None:
    assert problems(expression) == []


@pytest.mark.parametrize("expression", WRONG)
def test_what_the_catalogue_lacks_is_named(expression: str) -> None:
    assert problems(expression) == [WRONG[expression]]


def test_each_use_of_a_metric_is_found_with_its_matchers() -> None:
    expression = (
        'kafka_tx_lag_records{id="a,b", topic!~"x|y"} > 0'
        " and rate(kafka_tx_fetch_duration_seconds_bucket[5m])"
    )

    assert selectors(expression) == [
        Selector("kafka_tx_lag_records", (("id", "=", "a,b"), ("topic", "!~", "x|y"))),
        Selector("kafka_tx_fetch_duration_seconds_bucket", ()),
    ]
    assert metrics_in(expression) == {catalogue.LAG_RECORDS, catalogue.FETCH_DURATION}
