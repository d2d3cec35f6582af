"""The samples of one metric."""

import math
import re

import pytest

from kafka_tx.metrics import catalogue
from kafka_tx.metrics.series import Series
from tests.metrics.families import family

ORDERS_0 = ("job", "orders", "0")


def test_label_values_are_put_in_the_order_of_the_catalogue() -> None:
    series = Series(catalogue.SKIPPED_OFFSETS)
    labels = {"reason": "retention", "partition": "0", "topic": "orders", "id": "job"}

    assert series.key(labels) == (*ORDERS_0, "retention")


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        ({"id": "job"}, "legal: ['id', 'outcome']"),
        ({"id": "job", "outcome": "failed", "txid": "7"}, "legal: ['id', 'outcome']"),
        ({"id": "job", "outcome": "perhaps"}, "legal: committed, failed"),
    ],
)
def test_other_labels_and_values_are_refused(
    labels: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        Series(catalogue.BATCHES).key(labels)


def test_a_counter_adds_up_and_never_shrinks() -> None:
    series = Series(catalogue.RECORDS)
    series.add(("job",), 2)
    series.add(("job",), 0.5)

    for amount in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="cannot grow by"):
            series.add(("job",), amount)

    assert series.get(("job",)) == 2.5


def test_a_gauge_keeps_the_last_value() -> None:
    series = Series(catalogue.COMMITTED_TXID)
    series.set(("job",), 8)
    series.set(("job",), 3)

    assert series.get(("job",)) == 3
    assert series.get(("other",)) is None


def test_a_histogram_counts_a_value_in_the_bucket_whose_bound_it_does_not_pass() -> (
    None
):
    series = Series(catalogue.FETCH_DURATION)
    for value in (0.005, 0.006, 99.0):
        series.observe(ORDERS_0, value)

    samples = {
        (sample.name.rpartition("_")[2], sample.labels.get("le")): sample.value
        for sample in family(series.metric, series.samples()).samples
    }
    assert samples == {
        ("bucket", "0.005"): 1,
        ("bucket", "0.025"): 2,
        ("bucket", "0.1"): 2,
        ("bucket", "0.5"): 2,
        ("bucket", "2.5"): 2,
        ("bucket", "10.0"): 2,
        ("bucket", "+Inf"): 3,
        ("count", None): 3,
        ("sum", None): pytest.approx(99.011),
    }


def test_a_histogram_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="NaN"):
        Series(catalogue.FETCH_DURATION).observe(ORDERS_0, math.nan)


def test_each_kind_takes_only_its_own_measurement() -> None:
    counter, gauge = Series(catalogue.RECORDS), Series(catalogue.COMMITTED_TXID)

    with pytest.raises(ValueError, match="its kind is counter, not gauge"):
        counter.set(("job",), 1)
    with pytest.raises(ValueError, match="its kind is gauge, not counter"):
        gauge.add(("job",), 1)
    with pytest.raises(ValueError, match="its kind is gauge, not histogram"):
        gauge.observe(("job",), 1)
    with pytest.raises(ValueError, match="its kind is gauge, not info"):
        gauge.show(("job",))


def test_dropped_label_sets_are_gone_and_the_others_stay() -> None:
    series = Series(catalogue.LAG_RECORDS)
    series.set(ORDERS_0, 1)
    series.set(("job", "orders", "1"), 2)

    series.drop(lambda key: key == ORDERS_0)

    assert series.samples() == {("job", "orders", "1"): (2.0,)}


def test_a_copy_does_not_follow_later_measurements() -> None:
    series = Series(catalogue.FETCH_DURATION)
    series.observe(ORDERS_0, 0.01)
    before = series.samples()

    series.observe(ORDERS_0, 0.01)

    assert sum(before[ORDERS_0][:-1]) == 1
