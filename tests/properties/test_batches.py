"""Whatever topics take: only records fail that are too large, and none overtakes."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from integration.sizes import size
from kafka_tx.errors import DeliveryError
from kafka_tx.kafka import producer, topic_limits
from kafka_tx.kafka.out_batch import OutBatch
from kafka_tx.kafka.out_record import OutRecord
from kafka_tx.kafka.sender import Sender
from kafka_tx.kafka.transaction import BatchRefusedError, Transaction
from kafka_tx.native import writer
from tests.properties.simulated_producer import (
    Brokers,
    SimulatedNative,
    SimulatedProducer,
)

TOPICS = ("a", "b")
OVERHEAD = 61 + 7
SETTINGS = {"bootstrap.servers": "nowhere:1"}

limits = st.fixed_dictionaries(
    {topic: st.sampled_from([60, 100, 1_000, 5_000, 2_000_000]) for topic in TOPICS}
)
some_records = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.integers(0, 4),
        st.sampled_from([0, 1, 20, 20, 20, 300, 300, 3_000, 30_000]),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=8,
)
cases = {
    "given_limits": limits,
    "other": st.one_of(st.just({}), limits),
    "reported": st.booleans(),
    "kind": st.sampled_from(
        [
            *({}, {}, {"batch.size": "4000"}, {"compression.type": "lz4"}),
            {"compression.type": "lz4", "batch.size": "20000"},
        ]
    ),
    "groups": some_records,
    "seed": st.integers(0, 2**32),
}


def records_of(groups):
    made: list[OutRecord] = []
    for topic, key, length, count in groups:
        for _ in range(count):
            name = b"%d" % len(made)
            made.append(OutRecord(topic, bytes([key]), name + b"x" * length))
    return made


@contextmanager
def simulated(given_limits, other, reported, kind, seed):
    """Brokers, with the real sender and transaction in front of them."""
    part = 0.5 if "compression.type" in kind else 1.0
    brokers = Brokers(given_limits, part, seed, other)

    def make(given, _):
        return SimulatedProducer(brokers, given)

    def make_native(given, suspect):
        return SimulatedNative(brokers, given, suspect)

    def limit(_, topic):
        return brokers.limits[topic] if reported else None

    with (
        mock.patch.object(producer, "new_producer", make),
        mock.patch.object(writer, "producer", make_native),
        mock.patch.object(writer, "refusal", return_value=None),
        mock.patch.object(topic_limits, "_limit", limit),
        mock.patch.object(topic_limits, "_all", {}),
    ):
        yield brokers


def too_large(brokers_limits, part, record):
    whole = len(record.key or b"") + len(record.value or b"") + OVERHEAD
    return whole * part > brokers_limits[record.topic]


def fitting(brokers, record, both):
    """Under which limits, the first ones and those that came, a topic takes it."""
    return [not too_large(each, brokers.part, record) for each in both]


def check_places(brokers, records, both):
    """In each log the last ones of all values that always fit stand as given."""
    fit = [record for record in records if all(fitting(brokers, record, both))]
    values = {record.value for record in fit}
    for (topic, partition), log in brokers.logs.items():
        found = [(one.value(), place) for place, one in enumerate(log)]
        last = {value: place for value, place in found if value in values}
        assert sorted(last, key=last.__getitem__) == [
            record.value
            for record in fit
            if (record.topic, record.key[0] % 2) == (topic, partition)
        ]


@settings(max_examples=size(120, 1_000), deadline=None)
@given(**cases)
def test_at_least_once(given_limits, other, reported, kind, groups, seed):
    records = records_of(groups)
    answers: defaultdict[int, list[DeliveryError | None]] = defaultdict(list)

    with simulated(given_limits, other, reported, kind, seed) as brokers:
        writing = Sender({**SETTINGS, **kind})
        for number, record in enumerate(records):
            writing.post(record, answers[number].append)
        writing.flush()

    assert all(len(answers[n]) == 1 for n in range(len(records)))
    failed = {n for n in answers if answers[n][0] is not None}
    for number, record in enumerate(records):
        fits = fitting(brokers, record, (given_limits, other or given_limits))
        assert number not in failed or not all(fits)
        assert number in failed or any(fits)
    check_places(brokers, records, (given_limits, other or given_limits))
    if not other and brokers.part == 1.0:
        largest = int(kind.get("batch.size", 1_000_000))
        for topic, at in writing._at.items():
            assert at >= min(given_limits[topic], largest) // 2 - 40
    if reported and not other and "compression.type" not in kind:
        assert brokers.refusals == len(failed)  # each of them alone, and none besides


def columns_of(records):
    return OutBatch.of(
        pa.array([one.topic for one in records]),
        pa.array([one.value for one in records]),
        pa.array([one.key for one in records]),
    )


@settings(max_examples=size(80, 600), deadline=None)
@given(cut=st.integers(1, 100), **cases)
def test_columns_at_least_once(given_limits, other, reported, kind, groups, seed, cut):
    """Until a record is refused alone; the native producer tells only of refusals."""
    records = records_of(groups)
    both = (given_limits, other or given_limits)

    with simulated(given_limits, other, reported, kind, seed) as brokers:
        writing = Sender({**SETTINGS, **kind})
        failed = None
        try:
            for start in range(0, len(records), cut):
                writing.write(columns_of(records[start : start + cut]))
            writing.queue(records[:1])
            writing.flush()
        except DeliveryError as error:
            failed = error

    if failed is None:
        assert all(any(fitting(brokers, one, both)) for one in records)
        check_places(brokers, [*records[1:], records[0]], both)
        return
    assert any(
        (one.topic, one.key) == (failed.topic, failed.key)
        and len(one.key + one.value) == failed.size
        and not all(fitting(brokers, one, both))
        for one in records
    )


@settings(max_examples=size(80, 600), deadline=None)
@given(is_columns=st.booleans(), **cases)
def test_in_a_transaction(
    given_limits, other, reported, kind, groups, seed, is_columns
):
    records = records_of(groups)
    written = [columns_of(records)] if is_columns else records
    topics = {"a"}
    error = None

    with simulated(given_limits, other, reported, kind, seed) as brokers:
        for _ in range(60):
            part = Transaction(
                {**SETTINGS, **kind}, "id", "a part", SETTINGS, "group", topics
            )
            try:
                with part, part.writing():
                    part.send(written)
                    part.commit()
            except BatchRefusedError:
                continue
            except DeliveryError as failed:
                error = failed
            break
        else:
            raise AssertionError("it never ends")

    found = [one.value() for log in brokers.logs.values() for one in log]
    both = (given_limits, other or given_limits)
    if error is None:
        assert sorted(found) == sorted(record.value for record in records)
        return
    assert not found
    assert not all(
        all(fitting(brokers, record, both))
        for record in records
        if (record.topic, record.key) == (error.topic, error.key)
        and len(record.key) + len(record.value) == error.size
    )
