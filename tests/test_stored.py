"""What is stored: one list, a set of each release, and versions that are refused."""

from __future__ import annotations

import json
import pickle
import re
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import MISSING, fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from typer.testing import CliRunner

from integration.stored import builds, sets, texts
from integration.stored.__main__ import do
from integration.stored.builds import LATER, numbers
from integration.stored.jobs import JOBS, StoredJob, go_on, saved_jobs
from kafka_tx import stored
from kafka_tx.cli.main import app
from kafka_tx.errors import FormatError, StateCorruptedError, StateError
from kafka_tx.kafka import dead_letter_form, group_offsets
from kafka_tx.model import OffsetRange, TopicPartition, TransactionAttempt
from kafka_tx.options.sink import parse_sink
from kafka_tx.options.source import parse_source
from kafka_tx.planning.offset_json import SourceOffset
from kafka_tx.running.at_least_once import offset_keeper
from kafka_tx.sinks.publications import Publication, merged
from kafka_tx.sinks.sent_letters import LetterPlace, SentLetters
from kafka_tx.sinks.sink_memory import Entry
from kafka_tx.sinks.sink_parts import Marker
from kafka_tx.sinks.table_writes import attempt_in
from kafka_tx.spark.queries import foreach
from kafka_tx.spark.sinks.writer import KafkaTxStreamWriter, KafkaTxWriter
from kafka_tx.spark.source.batch import KafkaTxBatchReader, OpenPartition
from kafka_tx.spark.source.ranges import RangePartition
from kafka_tx.sql.maps import NonTransactionalMap, OpaqueMap, TransactionalMap
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.sql.tables import append_rows
from kafka_tx.transactions.layout.stops import Stop, store_stop
from kafka_tx.transactions.layout.txid_layout import numbered
from kafka_tx.transactions.ledger.ledger import Ledger
from kafka_tx.transactions.ownership.takeover import DraftingStore, taken_over
from kafka_tx.zookeeper import offsets as nodes
from tests.doc_pages import tables
from tests.properties.simulated_poller import Inline, PollerWorld
from tests.properties.simulated_streams import Stream

ROOT = Path(__file__).parents[1]
RELEASE, BEFORE = sets.RELEASE, sets.BEFORE
OPTIONS = {"kafka.bootstrap.servers": "b:9092"}
A0 = TopicPartition("a", 0)
MARKER = Marker(0, TransactionAttempt(0, 0))


def test_the_page_shows_the_list():
    (found,) = tables("stored.md", "What")
    assert [[name, *row.values()] for name, row in found.items()] == [
        [f.name, f.place, f.writer, f.reader, str(f.number)] for f in stored.EVERY
    ]


def test_the_version_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    place = project["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert place == "kafka_tx.stored.VERSION"
    assert version("kafka-tx") == stored.VERSION, "run `make setup`"


def test_every_format_is_listed():
    formats = [each for each in vars(stored).values() if type(each) is stored.Format]

    assert sorted(map(str, formats)) == sorted(map(str, stored.EVERY))


# --- the set of the release ---------------------------------------------------------


@pytest.fixture
def release(tmp_path) -> str:
    """The URL of its store."""
    return sets.opened(RELEASE, tmp_path)


def test_no_format_changes_unnoticed(tmp_path):
    sets.make(tmp_path)

    assert sets.shapes(tmp_path) == sets.shapes(RELEASE), (
        "What is stored has changed. A new member that older versions may drop: run"
        " `make stored` and add it to docs/stored.md. Anything else needs a new number"
    )


@pytest.mark.parametrize(
    "kept",
    [
        (texts.WHOLE, texts.EMPTY),
        (texts.WAITING,),
        (texts.MARK,),
        (texts.PUBLICATION, replace(texts.PUBLICATION, is_floor=True, more={"x": 1})),
        (texts.SHAPE,),
        (texts.SENT,),
        tuple(e.kept for e in texts.ENTRIES if isinstance(e.kept, Marker)),
    ],
    ids=lambda kept: type(kept[0]).__name__,
)
def test_the_set_has_every_member(kept):
    """One that is left out where it has its default would go unnoticed."""
    for field in fields(kept[0]):
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if default is not MISSING:
            values = [getattr(one, field.name) for one in kept]
            assert any(value != default for value in values), field.name


@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_the_release_goes_on_exactly_once(release, name):
    StoredJob(name, release, release).load(saved_jobs(RELEASE)[name]).go_on()


def test_everything_else_of_the_release_is_read(release):
    texts.read_back(json.loads((RELEASE / "texts.json").read_text()))
    texts.read_back_from_sql(release)


def test_an_at_least_once_topology_of_the_release_goes_on(release, monkeypatch):
    """Records that it had completed beyond a retry do not come again."""
    monkeypatch.setattr(offset_keeper, "SerialWorker", Inline)
    world = PollerWorld()
    waiting, b0 = texts.WAITING, texts.B0
    world.brokers.topics_["a"].topic_id = waiting.topic_id
    world.brokers.log(A0).epochs = [0, 0, 0, 0, 0]
    of_a, of_b = world.brokers.append(A0, 25), world.brokers.append(b0, 10)
    with closing(SqlOffsetStore(release, texts.SPOUT)) as offsets:
        store: Any = offsets
        world.store = store
        world.start()
        world.process_all_available()
        stored = offsets.load([A0, b0])

    done = {n for run in waiting.completed for n in range(*run)}
    rest = {*range(waiting.offset, 25)} - done
    assert world.delivered == {*(of_a[n] for n in rest), *of_b[3:]}
    assert {p: at.offset for p, at in stored.items()} == {A0: 25, b0: 10}


def test_an_id_that_was_moved_names_its_place(release):
    store = SqlStore(release, "moved")
    ledger = Ledger(store)
    ledger.draft()

    with pytest.raises(StateError, match="was copied from .* to memory:elsewhere"):
        ledger.load()


def test_commands_read_the_release(release):
    for words in (
        ("status", "--store", release),
        ("offsets", "show", "--store", release, "--id", "planned"),
        ("offsets", "show", "--store", release, "--id", texts.SPOUT),
        ("offsets", "repair", "--store", release, "--id", "topology_written"),
        ("store", "verify", "--store", release),
        ("history", "--store", release, "--id", "fenced"),
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (words, result.output)


# --- a version that stores more -----------------------------------------------------


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    """What does as told with a build whose records have a member unknown to this one.

    One process, as a Python with all imports takes seconds to start.
    """
    place = builds.build(tmp_path_factory.mktemp("builds") / "more", builds.MORE)
    run = [sys.executable, "-m", "integration.stored", "-"]
    errors = place.with_name("errors.txt")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        errors.open("w") as told,
        subprocess.Popen(run, cwd=place, stderr=told, text=True, **pipes) as process,
    ):

        def do_there(*words):
            assert process.stdin is not None
            assert process.stdout is not None
            print(*words, file=process.stdin, flush=True)
            assert f"by {place}/kafka_tx" in process.stdout.readline(), (
                errors.read_text()
            )

        yield do_there


def by_this_one(*words):
    do([*map(str, words)])


def test_drivers_of_two_versions_take_turns_and_die(more, tmp_path):
    """This one, the other, this one, the other: nothing is lost, nothing doubled."""
    for turn, play in enumerate((by_this_one, more, by_this_one, more)):
        play("play", tmp_path, turn)

    url = f"sqlite:///{tmp_path}/store.db"
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        query = "SELECT count(*) FROM kafka_tx_state WHERE value LIKE '%later%'"
        assert database.execute(query).fetchone()[0] > len(JOBS)
    go_on(tmp_path, url, url)


@pytest.fixture(scope="module")
def more_members(more, tmp_path_factory):
    """The set of that build."""
    folder = tmp_path_factory.mktemp("more")
    more("make", folder)
    return folder


def test_members_of_a_later_version_are_passed_over(more_members, tmp_path):
    kept = (more_members / "texts.json").read_text()

    url = sets.opened(more_members, tmp_path)

    assert kept.count("later") >= 10
    texts.read_back(json.loads(kept))
    texts.read_back_from_sql(url)
    go_on(more_members, url, url)


def test_merged_publications_keep_the_members_of_a_later_version(more_members):
    kept = json.loads((more_members / "texts.json").read_text())
    (line,) = kept["publications"].values()

    merged_line = merged([Publication.of_line(line, "it")])

    assert json.loads(merged_line)["later"] == {"more": [1, {"x": None}]}


def test_more_columns_are_passed_over(release):
    with closing(sqlite3.connect(release.removeprefix("sqlite:///"))) as database:
        names = "SELECT name FROM sqlite_master WHERE name LIKE 'kafka_tx%'"
        names += " AND type = 'table'"
        for (name,) in database.execute(names).fetchall():
            database.execute(f"ALTER TABLE {name} ADD COLUMN later INTEGER DEFAULT 1")
        database.commit()

    for name in ("written", "topology_opaque"):
        StoredJob(name, release, release).load(saved_jobs(RELEASE)[name]).go_on()
    texts.read_back_from_sql(release)


# --- other versions -----------------------------------------------------------------


@pytest.fixture(scope="module", params=["before", "later"])
def other(request, tmp_path_factory):
    """The set of another version, and how it differs from that of the release."""
    if request.param == "before":
        return BEFORE, "A version before 0.3"
    folder = tmp_path_factory.mktemp("later")
    with numbers(LATER):
        sets.make(folder)
    return folder, "A later version"


@pytest.fixture
def url(other, tmp_path) -> str:
    return sets.opened(other[0], tmp_path)


@pytest.fixture
def refused(other, request):
    """A context in which FormatError must be raised, and nothing be changed."""
    _, who = other

    @contextmanager
    def raised():
        url = request.getfixturevalue("url") if "url" in request.fixturenames else ""
        before = _content(url)
        with pytest.raises(FormatError) as found:
            yield
        check_text(str(found.value), who)
        assert _content(url) == before

    return raised


def check_text(text: str, who: str) -> None:
    assert "KAFKA_TX_FORMAT" in text
    assert who in text
    assert f"reads format {stored.FIRST}" in text
    assert "Nothing was changed" in text
    assert not re.search("repair|no such column|corrupt|cannot be read", text)


def _content(url: str) -> list[tuple[object, ...]]:
    """All rows of tables that a version may have made."""
    if not url:
        return []
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = [name for (name,) in database.execute(names)]
        rows = [[*database.execute(f'SELECT * FROM "{name}"')] for name in tables]
    return [row for found in rows for row in found]


def ids(other) -> dict[str, str]:
    is_before = other[0] == BEFORE
    return {
        "source": "source" if is_before else "planned",
        "topology": "topology" if is_before else "topology_written",
        "spout": "spout" if is_before else texts.SPOUT,
        "table": "appended" if is_before else "rows_written",
    }


def test_a_source_refuses_another_version(other, url, refused):
    store = SqlStore(url, ids(other)["source"])
    ledger = Ledger(store)
    ledger.draft()
    with refused():
        ledger.load()

    before = _content(url)
    assert not store_stop(store, Stop("state", "it was refused", 1))
    assert _content(url) == before


def test_a_topology_refuses_another_version(other, url, refused):
    store = DraftingStore(SqlStore(url, ids(other)["topology"]))
    with refused():
        taken_over(store, lambda: numbered(store, store.epoch()))


def test_an_at_least_once_topology_refuses_another_version(other, url, refused):
    with refused():
        SqlOffsetStore(url, ids(other)["spout"]).acquire()
    with refused():
        SqlOffsetStore(url, ids(other)["spout"]).load([A0])


@pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
def test_a_map_refuses_another_version(tmp_path, other, kind, refused):
    name, address = "counts", f"sqlite:///{tmp_path}/maps.db"
    attempt = TransactionAttempt.of(1, epoch=1, number=1)
    rows = pa.table({"key": ["x"], "value": pa.array([1], pa.int64())})
    if other[0] == BEFORE:
        address = sets.opened(BEFORE, tmp_path)
        name = "counts" if kind is TransactionalMap else "opaque_counts"
    else:
        with numbers(LATER):
            kind(address, name).update(attempt, rows)
    before = _content(address)
    map_ = kind(address, name)

    for call in (
        lambda: map_.update(TransactionAttempt.of(2, epoch=1, number=1), rows),
        lambda: map_.get(["x"]),
        lambda: map_.entries(["x"]),
        map_.to_arrow,
        map_.last_attempt,
    ):
        with refused():
            call()
    assert _content(address) == before


def test_a_plain_map_refuses_a_database_of_old_maps(tmp_path):
    address = sets.opened(BEFORE, tmp_path)

    with pytest.raises(FormatError, match="kafka_tx_progress"):
        NonTransactionalMap(address, "plain_counts").get(["x"])


def test_a_table_refuses_another_version(other, url, refused):
    attempt = TransactionAttempt.of(9, epoch=9, number=1)
    rows = pa.table({"n": pa.array([1], pa.int64())})
    with refused():
        append_rows(url, ids(other)["table"], attempt, rows)


def test_a_store_refuses_maps_of_another_version_beside_it(other, url, refused):
    store, numbering = SqlStore(url, "new-job"), "x"
    if other[0] != BEFORE:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            (numbering,) = database.execute(
                "SELECT numbering FROM kafka_tx_progress"
            ).fetchone()
    with refused():
        store.sinks(numbering)


@pytest.mark.parametrize(
    "words",
    [
        "offsets show",
        'offsets set --offsets {"a":{"0":1}} --unchecked --yes',
        "offsets forget --topic a --yes",
        "offsets reset --yes",
        "offsets repair",
        "offsets repair --yes",
        "status",
        "rename --to else --yes",
        "history",
    ],
)
@pytest.mark.parametrize("door", ["source", "topology"])
def test_commands_refuse_another_version(other, url, words, door):
    before = _content(url)

    given = [*words.split(), "--store", url, "--id", ids(other)[door]]
    result = CliRunner().invoke(app, given)

    assert result.exit_code != 0
    error = result.exception
    text = result.output if isinstance(error, SystemExit) else str(error)
    check_text(" ".join(text.split()), other[1])
    assert _content(url) == before


def test_commands_of_all_ids_name_another_version(other, url, tmp_path):
    copy = f"sqlite:///{tmp_path}/copy.db"

    shown = CliRunner().invoke(app, ["status", "--store", url, "--json"])
    verified = CliRunner().invoke(app, ["store", "verify", "--store", url])
    copied = CliRunner().invoke(
        app, ["store", "copy", "--from", url, "--to", copy, "--yes"]
    )

    assert shown.exit_code == 1
    for name in ids(other).values():
        if name in ids(other)["table"]:
            continue
        (found,) = [one for one in json.loads(shown.stdout) if one["id"] == name]
        check_text(found["error"], other[1])
    assert verified.exit_code == 1
    assert other[1] in verified.output
    assert copied.exit_code == 1
    check_text(" ".join(copied.output.split()), other[1])


def test_the_version_that_wrote_it_goes_on(other, url):
    folder, who = other
    job = StoredJob("written", url, url)
    if who == "A later version":
        assert not job.load(saved_jobs(folder)["written"]).run.step()
        assert isinstance(job.run.error, FormatError)
        with numbers(LATER):
            go_on(folder, url, url)


def test_a_job_of_a_version_before_begins_anew_where_it_ended(tmp_path):
    """With what ``offsets show --json`` of that version has printed."""
    there = {"startingOffsets": '{"a": {"0": 9}}'}
    before, anew = sets.opened(BEFORE, tmp_path), f"sqlite:///{tmp_path}/anew.db"
    job = StoredJob("written", before, before)
    job.setup = replace(job.setup, reads=(Stream(("a",), "source"),))
    job.brokers.append(A0, 12)
    job.run = job.started()
    assert not job.run.step()
    assert "another tx.store, tx.id and checkpointLocation" in str(job.run.error)

    begun = StoredJob("written", anew, anew)
    begun.setup = replace(job.setup, reads=(Stream(("a",), "anew", once=there),))
    begun.brokers = job.brokers
    begun.run = begun.started()
    begun.go_to(lambda job: job.run.is_idle)

    assert sorted(begun.rows()) == job.brokers.produced[9:]


def test_what_is_stored_elsewhere_is_refused(other):
    folder, who = other
    is_before = folder == BEFORE
    kept = json.loads(
        (folder / ("set.json" if is_before else "texts.json")).read_text()
    )
    group = kept["group"]
    calls: list[Callable[[], object]] = [
        lambda: group_offsets.decode(group["offset"], group["metadata"]),
        lambda: nodes.decoded(kept["nodes"]["partition_0"].encode()),
        *(
            partial(SourceOffset.from_json, offset)
            for offset in kept["offsets" if is_before else "checkpoint"]
        ),
    ]
    for one in kept["markers"]:
        entry = Entry.of_key(one["key"].encode())
        assert entry is not None
        calls += [partial(entry.of_value, one["value"].encode())]
    if is_before:
        part = Entry.of_key(kept["markers"][0]["key"].encode())
        assert part is not None
        for text in kept["marker_metadata"]:
            calls += [partial(part.of_group, 7, text)]
    else:
        sent, delta = kept["sent_letters"], json.loads(kept["delta"]["userMetadata"])
        (line,) = kept["publications"].values()
        headers = kept["letter_headers"]
        calls += [
            lambda: SentLetters.of_value(sent["value"].encode(), "the record"),
            lambda: LetterPlace("letters", texts.ID_A, 0).serial_of(sent["group"]),
            lambda: dead_letter_form.check_format(headers, "letters-0@1"),
            lambda: Publication.of_line(line, "the folder"),
            lambda: attempt_in(delta["kafka_tx"], "s"),
            lambda: TransactionAttempt.of_json(kept["attempt"]),
        ]
    for call in calls:
        with pytest.raises(FormatError) as found:
            call()
        check_text(str(found.value), who)


@pytest.mark.parametrize(
    "read",
    [
        lambda: SentLetters.of_value(b"[1,9,null,[]]", "the record"),
        lambda: LetterPlace("l", "", 0).serial_of('["letters","",1]'),
        lambda: Entry("s", MARKER).of_value(b'[7,"1 2 a - 0 - - -"]'),
        lambda: TransactionAttempt.of_json(
            '{"attempt": "1:2", "source": "", "numbering": "", "plan": ""}'
        ),
        lambda: attempt_in(
            {"sink": "s", "attempt": "1:2", "source": "", "numbering": "", "plan": ""},
            "s",
        ),
        lambda: Publication.of_line(
            '{"attempt": {"attempt": "1:2"}, "folder": "x", "files": []}', "the folder"
        ),
        lambda: dead_letter_form.check_format({"kafka_tx.topic": "a"}, "letters-0@1"),
    ],
)
def test_forms_between_then_and_the_release_are_refused(read):
    with pytest.raises(FormatError) as found:
        read()
    check_text(str(found.value), "A version before 0.3")


@pytest.mark.parametrize("number", ["3", 3.0, True, -1, "storm"])
def test_a_foreign_number_is_nobodys(number):
    with pytest.raises(FormatError, match="No version of kafka_tx writes it"):
        stored.RECORDS.check(number, "the record")


def test_a_damaged_record_is_still_corrupted(release):
    store = SqlStore(release, "planned")
    text = store.get("committed")
    assert text is not None
    store.write(store.epoch(), {"committed": text.replace('"txid":1', '"txid":2')})

    with pytest.raises(StateCorruptedError, match="offsets repair"):
        Ledger(store).load()


def test_a_driver_of_another_version_is_refused():
    with pytest.raises(FormatError, match=r"driver with version 0\.1.* one\s+version"):
        stored.check_same_version("0.1", "the range")
    with pytest.raises(FormatError, match="another version"):
        stored.check_same_version(("orders", 0), "the range")
    stored.check_same_version(stored.VERSION, "the range")


def test_the_tasks_of_a_source_and_the_client_of_a_server_have_one_version():
    partition = RangePartition(OffsetRange(A0, 1, 2, "id", 3))
    assert partition.wanted == OffsetRange(A0, 1, 2, "id", 3)
    partition.value = ("9.9", *partition.value[1:])
    with pytest.raises(FormatError, match="driver with version 9.9"):
        _ = partition.wanted

    whole = OpenPartition(None, None)
    whole.version = "9.9"
    reader = KafkaTxBatchReader(
        parse_source({**OPTIONS, "subscribe": "a"}, streaming=False)
    )
    with pytest.raises(FormatError, match="driver with version 9.9"):
        [*reader.read(whole)]

    function: Any = foreach.for_each_transaction(print)
    state = function.__getstate__()
    with pytest.raises(FormatError, match="driver with version 9.9"):
        function.__setstate__({**state, "version": "9.9"})


def test_the_tasks_of_a_sink_have_one_version():
    config = parse_sink({**OPTIONS, "topic": "out"})
    schema = StructType([StructField("value", StringType())])
    for kind in (KafkaTxWriter, KafkaTxStreamWriter):
        writer = pickle.loads(pickle.dumps(kind(config, schema)))
        writer._version = "9.9"
        with pytest.raises(FormatError, match="driver with version 9.9"):
            writer.write(iter(()))
