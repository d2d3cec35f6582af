"""Decides from the markers of a Kafka sink whether a part may be written.

A writer reads the marker of its part first. Before its first write in this run, it also
reads all markers of the sink, to find a batch that an earlier run left half-written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_tx.errors import FencedError, OutOfOrderError, ReplayDiffersError
from kafka_tx.sinks.admission import check_newest, check_numbering, is_written
from kafka_tx.sinks.sink_parts import Digest, Marker, Part


def is_done(part: Part, own: Marker | None) -> bool:
    """Whether the part was written already; False: write the part.

    Raises:
        AnotherNumberingError, FencedError, ReplayDiffersError: As ``is_written``.
        OutOfOrderError: A later txid was written, or another number of parts.
    """
    if own is None:
        return False
    what = _named(part, own)
    same = is_written(part.attempt, own.attempt, what=what, is_opaque=False)
    if same and _is_moved(part, own):
        raise _out_of_order(part, own)
    return same


def check_others(part: Part, markers: Iterable[Marker]) -> None:
    """Refuse to write a part after writes of newer owners or later txids.

    This also covers a part without a marker: a fenced run may have more parts than the
    newer one, so nobody else has written its last parts.

    Raises: as ``check_numbering`` and ``check_newest``.
    """
    for marker in markers:
        what = _named(part, marker)
        check_numbering(part.attempt, marker.attempt, what)
        if marker.life == part.life:
            check_newest(part.attempt, marker.attempt, what)


def _named(part: Part, found: Marker) -> str:
    return f"part {found.index} of sink '{part.id}'"


def needs_all_markers(part: Part, own: Marker | None) -> bool:
    """Whether all markers of the sink must be read before the part is written."""
    return part.reads_all_markers and (own is None or own.run != part.run)


def check_lives(part: Part, markers: Sequence[Marker]) -> None:
    """Raise FencedError if another life has taken over from this one."""
    lives = [marker.life for marker in markers]
    if part.life in lives and lives[-1] != part.life:
        raise FencedError(
            f"the sink '{part.id}' was taken over by the query with id {lives[-1]}"
            f" after this one ({part.life}) had written to it. Stop one of the two. If"
            " both are needed, give this one a tx.id of its own: it then writes its"
            " unfinished batch whole, so compare the topic with the source first.",
            id=part.id,
        )


def begun_elsewhere(part: Part, markers: Iterable[Marker]) -> list[Marker]:
    """Other parts of this batch that an earlier run has written.

    Raises:
        OutOfOrderError: They were written in another number of parts, as far as known.
    """
    found = [
        marker
        for marker in markers
        if (marker.life, marker.txid) == (part.life, part.txid)
        and marker.run != part.run
        and marker.index != part.index
    ]
    for marker in found:
        if _is_moved(part, marker):
            raise _out_of_order(part, marker)
    return found


def check_rows(part: Part, done: Marker, now: Digest) -> None:
    """Raise ReplayDiffersError if the part compares rows, and a replay has others."""
    written = done.digest
    if part.compares and not now.is_of_same_rows(written):
        raise _differs(
            part,
            part.index,
            f"was written with {written.rows} rows, and the replay holds {now.rows}"
            " rows, or as many with other keys or values",
            _OF_LETTERS if now.compared else _OF_RECORDS,
        )


def check_cut(
    part: Part, written: Iterable[Marker], confirmed: Mapping[int, Digest]
) -> None:
    """Raise ReplayDiffersError unless these tasks hold a half-written batch's rows.

    ``written`` are the parts of the batch that earlier runs wrote; ``confirmed``, by
    index, those that tasks of this run found written already.
    """
    for marker in written:
        if confirmed.get(marker.index) != marker.digest:
            raise _differs(
                part, marker.index, "was written, and no task holds the same rows now"
            )


def _is_moved(part: Part, other: Marker) -> bool:
    return 0 not in (other.parts, part.parts) and other.parts != part.parts


def _out_of_order(part: Part, found: Marker) -> OutOfOrderError:
    return OutOfOrderError(
        f"{part} in {part.parts}"
        f" parts comes after part {found.index} of txid {found.txid} in {found.parts}"
        " parts. Nothing was written now. A sink writes each txid once, in order. A"
        " batch that was begun is finished in the number of parts that it was begun"
        " in: set that again for one run.",
        id=part.id,
        txid=part.txid,
        committed=found.txid,
    )


_OF_RECORDS = (
    "Either the plan is not deterministic, or its parallelism was changed, or an opaque"
    " batch was planned anew. Undo that; or compare the topic with the source, and go"
    " on with another tx.id of the sink, which writes the whole batch again."
)
_OF_LETTERS = (
    "Either the function of with_dead_letters rejects other records than before, or an"
    " opaque batch was planned anew. Undo that; or compare the dead letters of this"
    " txid (header kafka_tx.txid) with the records that the function rejects now, and"
    " write those that are missing to a place of your own. Then let the function"
    " return None for this txid, and start again."
)


def _differs(
    part: Part, index: int, how: str, advice: str = _OF_RECORDS
) -> ReplayDiffersError:
    return ReplayDiffersError(
        f"part {index} of txid {part.txid} of sink '{part.id}' {how}. Nothing was"
        f" written now. {advice}",
        id=part.id,
        txid=part.txid,
        part=index,
    )
