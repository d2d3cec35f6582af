"""Options: names, precedence, refusals."""

import logging
import re

import pytest

from kafka_tx.cli.tables import Table
from kafka_tx.config import FromCommitted, PerPartition
from kafka_tx.errors import ConfigError
from kafka_tx.model import (
    Assigned,
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    TopicPartition,
    TopicPattern,
    Topics,
)
from kafka_tx.options.source import SOURCE, parse_source
from kafka_tx.own_topics import MARKER_TOPIC, RESERVED

BROKERS = {"kafka.bootstrap.servers": "a:9092"}


def parse(streaming=True, **options):
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source(BROKERS | named, streaming=streaming)


def test_names_are_case_insensitive():
    config = parse_source(
        {
            "KAFKA.Bootstrap.Servers": "a:9092",
            "SUBSCRIBE": "t",
            "INCLUDEHEADERS": "TRUE",
        },
        streaming=True,
    )

    assert config.subscription == Topics(("t",))
    assert config.include_headers
    assert config.kafka == {"bootstrap.servers": "a:9092"}


def test_topics_are_split_trimmed_and_kept_once():
    assert parse(subscribe=" a, b ,,a").subscription == Topics(("a", "b"))


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(("subscribe", text) for text in ("a;b", '["a"]', "a,b c", "..", "x" * 250)),
        ("assign", '{"a/b": [0]}'),
    ],
)
def test_what_is_no_name_of_a_topic_is_refused_before_brokers_are_asked(option, text):
    with pytest.raises(ConfigError, match="A-Z a-z 0-9") as caught:
        parse(**{option: text})

    assert caught.value.fields == {"option": option, "value": text}


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("endingOffsets", "offset"),
        ("endingOffsetsByTimestamp", "timestamp"),
        ("endingTimestamp", "timestamp"),
    ],
)
def test_an_end_is_refused_in_streams_by_its_kind(option, word):
    with pytest.raises(ConfigError, match=f"ending {word} not valid.*'{option}'"):
        parse(subscribe="t", **{option: "1"})


def test_a_number_that_is_none_is_named_with_its_option():
    with pytest.raises(ConfigError, match="'maxOffsetsPerTrigger' is '2s'; legal: a"):
        parse(subscribe="t", maxOffsetsPerTrigger="2s")


def test_a_whole_number_may_have_a_plus():
    assert parse(subscribe="t", maxOffsetsPerTrigger="+5").limits.max_records == 5
    with pytest.raises(ConfigError, match="legal: a whole number"):
        parse(subscribe="t", maxOffsetsPerTrigger="++5")


def test_zeros_that_sparks_source_takes_are_taken():
    config = parse(
        subscribe="t", minOffsetsPerTrigger="0", fetchOffset__retryIntervalMs="0"
    )

    assert (config.limits.min_records, config.retry_interval_ms) == (None, 0)


def test_assign_names_partitions():
    given = parse(assign='{"b":[1],"a":[2,0]}').subscription

    assert given == Assigned(
        (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
    )


def test_a_pattern_must_be_a_regular_expression():
    found = parse(subscribePattern="(?i)ord").subscription

    assert found == TopicPattern("(?i).*(?:ord).*")  # found anywhere, as in Spark
    with pytest.raises(ConfigError, match="regular expression"):
        parse(subscribePattern="ord(")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "a", "assign": '{"a":[0]}'},
        {"subscribe": " , "},
        {"subscribePattern": " "},
        {"assign": "a"},
        {"assign": '{"a":["x"]}'},
        {"assign": '{"a":[-1]}'},
        {"assign": "{}"},
        {"assign": "{"},
        {"subscribe": "a", "startingOffsets": "soon"},
        {"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'},
        {"subscribe": "a", "startingOffsets": '{"a":{"x":1}}'},
        {"subscribe": "a", "startingOffsets": '{"a":5}'},
        {"subscribe": "a", "startingOffsetsByTimestamp": "[1]"},
        {"subscribe": "a", "startingTimestamp": "now"},
        {"subscribe": "a", "endingOffsets": "latest"},
        {"subscribe": "a", "minPartitions": "0"},
        {"subscribe": "a", "maxRecordsPerPartition": "-1"},
        {"subscribe": "a", "maxOffsetsPerTrigger": "many"},
        {"subscribe": "a", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        {"subscribe": "a", "maxTriggerDelay": "15 fortnights"},
        {"subscribe": "a", "failOnDataLoss": "yes"},
        {"subscribe": "a", "startingOffsetsByTimestampStrategy": "guess"},
        {"subscribe": "a", "tx__id": "no/slash"},
        {"subscribe": "a", "tx__id": ""},
        {"subscribe": "a", "tx__id": "x" * 201},
        {"subscribe": "a", "tx__mode": "opaque"},
        {"subscribe": "a", "tx__id": "x", "tx__mode": "twice"},
        {"subscribe": "a", "tx__id": "x", "tx__stroe": "memory:"},
    ],
)
def test_bad_options_are_refused_before_anything_is_contacted(options):
    with pytest.raises(ConfigError, match="KAFKA_TX_CONFIG"):
        parse(**options)


@pytest.mark.parametrize("name", [MARKER_TOPIC, RESERVED])
@pytest.mark.parametrize("tx", [{}, {"tx__id": "x"}])
@pytest.mark.parametrize(
    "given",
    [{"subscribe": "a, {}"}, {"assign": '{{"{}": [0]}}'}, {"subscribe": "{}"}],
)
def test_topics_that_only_kafka_tx_may_name_are_refused(name, tx, given):
    given = {option: text.format(name) for option, text in given.items()}

    with pytest.raises(ConfigError, match=name):
        parse(**given, **tx)


def test_the_brokers_are_required():
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        parse_source({"subscribe": "a"}, streaming=True)


def test_an_error_names_option_value_and_legal_values():
    with pytest.raises(ConfigError, match=r"tx\.mode.*'twice'.*transactional, opaque"):
        parse(subscribe="a", tx__id="x", tx__mode="twice")


@pytest.mark.parametrize(
    ("streaming", "start"), [(True, Latest()), (False, Earliest())]
)
def test_the_default_start_is_sparks(streaming, start):
    assert parse(streaming, subscribe="a").start == start


def test_a_global_start_time_wins_over_times_and_offsets():
    config = parse(
        subscribe="a",
        startingOffsets="earliest",
        startingOffsetsByTimestamp='{"a":{"0":5}}',
        startingTimestamp="7",
    )

    assert config.start == AtTime(7)


def test_times_win_over_offsets():
    config = parse(
        subscribe="a",
        startingOffsets="latest",
        startingOffsetsByTimestamp='{"a":{"0":5}}',
    )

    assert config.start == PerPartition(positions={TopicPartition("a", 0): AtTime(5)})


def test_offsets_name_earliest_and_latest_by_negative_numbers():
    config = parse(subscribe="a", startingOffsets='{"a":{"0":23,"1":-1,"2":-2}}')

    assert config.start == PerPartition(
        positions={
            TopicPartition("a", 0): AtOffset(23),
            TopicPartition("a", 1): Latest(),
            TopicPartition("a", 2): Earliest(),
        }
    )


def test_an_offset_copied_from_a_progress_report_is_a_legal_start():
    copied = '{"a": {"0": 250}, "_kafka_tx": {"id": "x", "txid": 1, "epoch": 3}}'

    config = parse(subscribe="a", startingOffsets=copied)

    assert config.start == PerPartition(
        positions={TopicPartition("a", 0): AtOffset(250)}
    )


@pytest.mark.parametrize(
    ("word", "otherwise"),
    [
        ("committed", Earliest()),
        ("Committed:latest", Latest()),
        ("committed:earliest", Earliest()),
        ("committed:error", None),
    ],
)
def test_committed_says_what_else(word, otherwise):
    assert parse(subscribe="a", startingOffsets=word).start == FromCommitted(
        otherwise=otherwise
    )


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"startingOffsets": '{"a":{"0":-1}}'},
        {"endingOffsets": '{"a":{"0":-2}}'},
    ],
)
def test_a_batch_read_has_a_beginning_and_an_end(options):
    with pytest.raises(ConfigError, match="batch queries on Kafka"):
        parse(streaming=False, subscribe="a", **options)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("1", 1), ("64m", 64 << 20), ("2 KB", 2048), ("1G", 1 << 30), ("3b", 3)],
)
def test_a_limit_of_bytes_has_units(given, wanted):
    assert parse(subscribe="a", maxBytesPerTrigger=given).limits.max_bytes == wanted


@pytest.mark.parametrize("given", ["0", "-1", "1.5m", "m", "1h", "1 e", ""])
def test_a_limit_of_no_bytes_is_refused(given):
    with pytest.raises(ConfigError, match="legal: bytes from 1, such as 1000000, 64m"):
        parse(subscribe="a", maxBytesPerTrigger=given)


def test_trigger_limits_are_ignored_in_batch_with_a_warning(caplog):
    parse(streaming=False, subscribe="a", maxOffsetsPerTrigger="5")

    assert "maxOffsetsPerTrigger option ignored in batch queries" in caplog.text


def test_a_misspelt_option_is_refused_with_the_one_that_was_meant():
    with pytest.raises(ConfigError, match="'startingoffset'.*mean 'startingOffsets'"):
        parse(subscribe="a", startingOffset="earliest")


def test_an_option_that_resembles_none_is_ignored_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        parse(subscribe="a", inferSchema="true")

    assert "unknown option 'inferschema' is ignored" in caplog.text


def test_an_opaque_source_skips_lost_records_unless_told_otherwise():
    assert parse(subscribe="a").fails_on_data_loss
    assert not parse(subscribe="a", tx__id="x", tx__mode="opaque").fails_on_data_loss
    assert parse(
        subscribe="a", tx__id="x", tx__mode="opaque", failOnDataLoss="true"
    ).fails_on_data_loss


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("15m", 900_000),
        ("30s", 30_000),
        ("250", 250),
        ("1h", 3_600_000),
        ("500999us", 500),
    ],
)
def test_delays_are_times(text, delay_ms):
    limits = parse(subscribe="a", maxTriggerDelay=text).limits

    assert limits.max_delay_ms == delay_ms


def test_a_configuration_never_shows_its_secrets():
    config = parse_source(
        BROKERS | {"subscribe": "a", "kafka.sasl.password": "hunter2"}, streaming=True
    )

    assert "hunter2" not in repr(config)


def test_the_table_has_a_row_for_every_option():
    table = Table.SOURCE.markdown()

    for option in SOURCE:
        assert f"| `{option.name}` |" in table


def test_the_table_of_settings_says_which_of_two_names_wins():
    table = Table.TOPOLOGY.markdown()

    assert "| `tx.timeoutMs` | 30000 |" in table
    assert (
        "`topology.max.spout.pending` | — | Most batches in flight. `tx.maxP" in table
    )


MINIMAL = {**BROKERS, "subscribe": "a"}
BY_PARTITION = '{"a": {"0": %s}}'


@pytest.mark.parametrize(("side", "streaming"), [("starting", True), ("ending", False)])
@pytest.mark.parametrize("text", [-3, 2**63, 10**30, -(10**30), "1_764", "1e12", "7.0"])
def test_a_time_that_kafka_does_not_have_is_refused_before_planning(
    side, streaming, text
):
    for given in ({f"{side}Timestamp": f"{text}"}, BY_PARTITION % text):
        if isinstance(given, str):
            given = {f"{side}OffsetsByTimestamp": given}
        with pytest.raises(ConfigError, match=rf"'{side}(Timestamp|OffsetsByTi)"):
            parse_source({**MINIMAL, **given}, streaming=streaming)


@pytest.mark.parametrize(
    ("time_ms", "date"),
    [
        (1_764_201_600, "1970-01-21T10:03:21.*For seconds, add three zeros"),
        (1_764_201_600_000_000, "after the year 9999.*Cut micro- or nanoseconds"),
        (2**63 - 1, "after the year 9999"),
        (40_000_000_000_000, "3237-"),
    ],
)
def test_a_time_in_another_unit_is_logged_with_its_date(caplog, time_ms, date):
    options = {**MINIMAL, "startingTimestamp": f"{time_ms}"}
    config = parse_source(options, streaming=True)

    assert config.start == AtTime(time_ms)
    assert re.search(
        f"startingTimestamp.* is {time_ms}, which is .*{date}", caplog.text
    )


@pytest.mark.parametrize("time_ms", [-2, -1, 0, 1_764_201_600_000])
def test_an_ordinary_time_is_not_logged(caplog, time_ms):
    options = {**MINIMAL, "startingTimestamp": f"{time_ms}"}
    assert parse_source(options, streaming=True).start == AtTime(time_ms)
    assert caplog.text == ""
