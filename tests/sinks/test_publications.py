"""Which publications count, which files of them are merged, and what may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_tx.errors import StateCorruptedError
from kafka_tx.sinks.publications import (
    HIGHEST,
    MERGED_AT,
    Form,
    Name,
    Publication,
    counting,
    left_over,
    merged,
    new_floor,
    newest,
    to_merge,
    with_schemas,
)
from tests.conformance.sink_suite import attempt

FORM = Form(format="csv", partition_by=("day",), options={"sep": "|"})


def name(txid, level=0, token=0):
    return Name(txid, attempt(txid).attempt_id, level, f"{token:016x}")


def published(txid, epoch=1, schema="{}", at_ms=0, follows=0):
    given = attempt(txid, epoch)
    folder = str(Name(txid, given.attempt_id, 0, f"{epoch:016x}"))
    return Publication(
        attempt=given,
        folder=folder,
        files=("day=1/part-0",),
        form=FORM,
        schema=schema,
        at_ms=at_ms,
        follows=follows,
    )


def read(text):
    return [Publication.of_line(line, "here") for line in text.splitlines()]


def test_a_line_and_a_name_come_back_as_they_were():
    (found,) = read(published(7).as_line())

    assert found == published(7)
    assert found.attempt.as_json() == attempt(7).as_json()
    assert Name.of(str(name(7))) == name(7)
    assert Name.of("part-0.parquet") is None
    assert newest([]) is None


@pytest.mark.parametrize("line", ["{}", "x", '{"attempt": {}}', "[]", "null"])
def test_a_line_that_is_none_is_corrupted(line):
    with pytest.raises(StateCorruptedError, match="here has a publication"):
        read(line)


def test_of_each_txid_the_greatest_attempt_counts_whatever_their_order():
    late, other, first = published(1, epoch=2), published(1), published(2)

    for order in ([late, other, first], [first, other, late]):
        assert counting(order) == [late, first]
        assert counting(order, as_of=1) == [late]


def test_a_txid_that_later_ones_left_out_does_not_count():
    first, late = published(1), published(2, follows=1)
    later = [published(3, epoch=2, follows=1), published(4, epoch=2, follows=3)]

    for order in ([first, late, *later], [*later, late, first]):
        assert counting(order) == [first, *later]
        assert counting(order, as_of=2) == [first]
        assert counting(with_schemas(read(merged(order)))) == [first, *later]


def test_former_publications_that_are_put_back_count_before_a_first_one():
    former, first = published(1), published(2)

    assert counting([first, former]) == [former, first]


def test_files_of_one_level_are_merged_and_the_newest_stays():
    names = [name(txid) for txid in range(1, MERGED_AT + 2)]

    assert to_merge(names[:-1]) == []
    assert to_merge(names[::-1]) == names[:-1]
    assert to_merge([replace_level(each, HIGHEST) for each in names]) == []
    assert to_merge([replace_level(each, 3) for each in names])[0].level == 3


def replace_level(each, level):
    return each._replace(level=level)


def test_merged_publications_keep_a_schema_where_it_changes():
    schemas = ["a", "a", "b", "b"]
    every = [published(n, schema=schema) for n, schema in enumerate(schemas, 1)]

    found = read(merged([*every, published(2, epoch=0)]))

    assert [p.schema for p in found] == ["", "a", "", "b"]
    assert [p.schema for p in with_schemas(found)] == schemas
    assert [p.folder for p in found] == [p.folder for p in every]


def test_what_is_below_the_floor_does_not_count_and_the_last_txid_stays():
    every = [published(txid, at_ms=txid) for txid in (1, 2, 3)]

    assert new_floor(every, before_ms=1) is None
    floor = new_floor(every, before_ms=99)

    assert floor is not None
    assert floor.attempt.txid == 2
    assert counting([*every, floor]) == every[2:]
    assert counting(read(merged([*every, floor, published(1, epoch=9)]))) == every[2:]
    assert new_floor([replace(every[0], at_ms=5), *every[1:]], before_ms=4) is None


def test_folders_are_left_over_once_a_newer_attempt_was_published():
    every = [published(1, at_ms=10), published(2, epoch=3, at_ms=20)]
    dead, live = name(1, token=77), Name(2, attempt(2, 4).attempt_id, 0, "f" * 16)
    mine = [own for p in every if (own := Name.of(p.folder))]

    assert left_over([dead, live, *mine], every, before_ms=19) == []
    assert left_over([dead, live, *mine], every, before_ms=20) == [dead]
    assert left_over([dead], [], before_ms=20) == []
