"""One of each thing that is stored elsewhere than in SQL, and records with all members.

Each text comes from the code that stores it, and ``read_back`` reads it as jobs do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from kafka_tx.cli.moving import copy
from kafka_tx.kafka import dead_letter_form, group_offsets
from kafka_tx.model import (
    BatchMetadata,
    Broker,
    CommittedOffset,
    JointBatch,
    JointPart,
    OffsetRange,
    QueryShape,
    TopicPartition,
    TransactionAttempt,
)
from kafka_tx.planning.offset_json import SourceOffset, TransactionMark
from kafka_tx.sinks.publications import Form, Name, Publication
from kafka_tx.sinks.sent_letters import LetterPlace, SentLetters
from kafka_tx.sinks.sink_memory import Entry
from kafka_tx.sinks.sink_parts import Digest, Marker, SinkPlan
from kafka_tx.sinks.table_writes import attempt_in, floor_in, record_of
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.commit_stats import TableWrite, TaskSums
from kafka_tx.transactions.layout.stops import Stop, store_stop
from kafka_tx.transactions.ledger.ledger import Committed, Ledger, LedgerState
from kafka_tx.transactions.ownership.memory import MemorySnapshot, MemoryStore
from kafka_tx.zookeeper import offsets as nodes
from kafka_tx.zookeeper.store import Owner

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
AT_MS = 1_700_000_000_000
ID_A, ID_B = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
NUMBERING, PLAN = "0123456789ab", "0123456789abcdef"
ATTEMPT = TransactionAttempt(7, 3 * 10**12, "orders", PLAN, NUMBERING)
LETTERS, SPOUT = LetterPlace("letters", ID_A, 0), "at_least_once"
WAITING = CommittedOffset(
    offset=5,
    completed=((7, 9), (12, 20)),
    topology_id="deployed",
    topology_name="spout",
    broker=Broker("b", 9092),
    topic_id=ID_A,
    failures=((5, 6, 2),),
    leader_epoch=4,
    committed_ms=AT_MS,
)
"""At least once, with a retry that waits."""
WHOLE = BatchMetadata(
    txid=2,
    ranges=(OffsetRange(A0, 5, 9, ID_A, 4), OffsetRange(B0, 1, 3, ID_A)),
    topic_ids={"a": ID_A, "b": ID_B},
    logged={A0: 10},
    logged_as="2.1",
    joint=JointBatch(
        "whole",
        {"whole": JointPart(2, "ab", NUMBERING), "KafkaTx[other]": JointPart(0, "cd")},
    ),
    mode="opaque",
    skipped={(A0, "retention"): 2},
    attempts=2,
    was_opaque=True,
    awaited=(TopicPartition("a", 1),),
    unproven=(3,),
    schemas={"value": "7"},
)
"""A batch with all members."""
EMPTY = BatchMetadata(3, (), {"a": ID_A}, spark_batch="query:7")
SHAPE = QueryShape(("whole",), ("KafkaTx[other]",), ("StateStoreSave",), (NUMBERING,))
MARK = TransactionMark(
    *("orders", 7, 3, True, {"a": ID_A}, {B0: 4}, NUMBERING, {A0: 4}),
    query=SHAPE,
    schemas={"value": "7"},
)
OFFSETS = (
    SourceOffset({A0: 9}, MARK, {A0: 5}),
    SourceOffset({A0: 9}, None, {A0: 5}, {"a": ID_A}, {A0: 4}),
)
ENTRIES = tuple(
    Entry("sink", kept)
    for kept in (
        Marker(0, TransactionAttempt(0, 0)),
        Marker(1, ATTEMPT, 2, Digest(3, 10), "run", "life"),
        SinkPlan(2, 7, 1, "orders", 3, NUMBERING),
    )
)
SENT = SentLetters(9, ((2, 3),), 4, 1)
PUBLICATION = Publication(
    attempt=ATTEMPT,
    folder=str(Name(7, ATTEMPT.attempt_id, 0, "0123456789abcdef")),
    files=("part-0.parquet",),
    form=Form(format="csv", partition_by=("day",), options={"timeZone": "UTC"}),
    schema='{"type":"struct","fields":[]}',
    at_ms=AT_MS,
    follows=6,
)
"""Of a text format, whose options are stored."""


def keep_in_sql(url: str) -> None:
    """Store at-least-once offsets of two tasks, and a source's records of each kind."""
    with closing(SqlOffsetStore(url, SPOUT)) as offsets:
        offsets.acquire(1, 2)
        offsets.acquire(0, 2)
        offsets.store({A0: WAITING, B0: CommittedOffset(3)})
    with closing(SqlStore(url, "whole")) as store:
        ledger = Ledger(store)
        epoch = ledger.acquire()
        ledger.adopt(epoch, Committed(0, {A0: 5}, {"a": ID_A}, AT_MS, 0, True, {A0: 4}))
        first = BatchMetadata(1, (OffsetRange(A0, 5, 5, ID_A, 4),), {"a": ID_A}, "q:1")
        ledger.plan(epoch, first)
        table = TableWrite(
            txid=1, table="t", sink="s", version="3", files=1, rows=2, seconds=0.5
        )
        reported = TaskSums(
            records=2,
            bytes=20,
            newest_ms=AT_MS,
            skipped={(A0, "retention"): 1},
            dead_letters={A0: 1},
            tables=(table,),
            phases_ms={"planning": 1.5},
        )
        ledger.commit(epoch, 1, AT_MS, from_tasks=reported)
        ledger.plan(epoch, WHOLE)
        ledger.plan(epoch, EMPTY)
        ledger.describe(epoch, SHAPE)
        ledger.note_question(epoch)
        ledger.beat(epoch)
        store_stop(store, Stop("error", "it failed", AT_MS))
    with closing(SqlStore(url, "moved")) as store:
        ledger = Ledger(store)
        epoch = ledger.acquire()
        ledger.plan(epoch, BatchMetadata(1, (), {}))
        there = MemoryStore.copy_of("memory:elsewhere", "moved", MemorySnapshot(0, {}))
        copy(store, there)


def texts() -> dict[str, Any]:
    """Everything else, as it is stored."""
    group = group_offsets.encode(WAITING)
    headers = dead_letter_form.headers_of("a", 0, 5, "it failed", 3)
    owner = Owner(3, "0123456789abcdef").record().decode()
    return {
        "checkpoint": [offset.to_json() for offset in OFFSETS],
        "markers": [
            {"key": e.key.decode(), "value": e.value.decode(), "group": e.metadata}
            for e in ENTRIES
        ],
        "sent_letters": {
            "key": LETTERS.key.decode(),
            "value": SENT.value.decode(),
            "group": LETTERS.metadata(SENT.serial),
        },
        "letter_headers": {name: (value or b"").decode() for name, value in headers},
        "group": {"offset": WAITING.offset, "metadata": group},
        "nodes": {
            "partition_0": nodes._record(A0, WAITING).decode(),
            "~owner": owner,
        },
        "publications": {str(Name(7, 7, 1, "0" * 16)): PUBLICATION.as_line()},
        "delta": {"userMetadata": json.dumps({"kafka_tx": record_of("s", ATTEMPT)})},
        "iceberg": json.dumps(record_of("s", ATTEMPT) | {"snapshot": 5, "order": [1]}),
        "attempt": ATTEMPT.as_json(),
    }


def read_back(kept: Mapping[str, Any]) -> None:
    """Read all of ``texts`` as jobs do, and compare what is found."""
    found = tuple(map(SourceOffset.from_json, kept["checkpoint"]))
    assert found == OFFSETS
    assert [o.begins for o in found] == [o.begins for o in OFFSETS]
    assert found[0].mark is not None
    assert (found[0].mark.query, found[0].mark.schemas) == (SHAPE, {"value": "7"})
    for entry, one in zip(ENTRIES, kept["markers"], strict=True):
        key = Entry.of_key(one["key"].encode())
        assert key is not None
        assert key.of_value(one["value"].encode()) == entry
        assert key.of_group(entry.txid, one["group"]) == entry
    sent = kept["sent_letters"]
    assert sent["key"] == LETTERS.key.decode()
    assert SentLetters.of_value(sent["value"].encode(), "it") == SENT
    assert LETTERS.serial_of(sent["group"]) == SENT.serial
    dead_letter_form.check_format(kept["letter_headers"], "it")
    group = kept["group"]
    without = {"broker": None, "committed_ms": None}
    assert group_offsets.decode(group["offset"], group["metadata"]) == _like(without)
    _, offset = nodes.decoded(kept["nodes"]["partition_0"].encode())
    assert offset == _like({"completed": ()})
    at = records.Place("~owner", "", "")
    records.decode(kept["nodes"]["~owner"], "owner", at)
    for name, line in kept["publications"].items():
        assert Name.of(name) is not None
        assert Publication.of_line(line, "it") == PUBLICATION
    delta = json.loads(kept["delta"]["userMetadata"])["kafka_tx"]
    assert attempt_in(delta, "s") == ATTEMPT
    floor = floor_in(kept["iceberg"], "s")
    assert floor is not None
    assert floor.attempt == ATTEMPT
    assert TransactionAttempt.of_json(kept["attempt"]) == ATTEMPT


def _like(other: Mapping[str, Any]) -> CommittedOffset:
    return replace(WAITING, **other)


def read_back_from_sql(url: str) -> LedgerState:
    """Read what ``keep_in_sql`` has stored, and compare it."""
    with closing(SqlOffsetStore(url, SPOUT)) as offsets:
        assert offsets.load([A0, B0]) == {A0: WAITING, B0: CommittedOffset(3)}
    with closing(SqlStore(url, "whole")) as store:
        state = Ledger(store).load()
    assert state.planned[2] == WHOLE
    assert state.planned[3] == EMPTY
    assert state.query == SHAPE
    assert state.is_asked
    assert state.position.empty == 1
    (held,) = state.commit_stats
    assert held.from_tasks.tables[0].version == "3"
    assert held.all_skipped(held.from_tasks) == {(A0, "retention"): 1}
    return state
