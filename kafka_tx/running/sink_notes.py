"""Facts about the sinks of running queries, from ``attach`` to the planning processes.

``attach`` sees the sink of a query, and a planner does not. Both are on the driver's
machine. So ``attach`` writes a file for each ``tx.id``, before Spark starts the query's
planner, into a directory that an environment variable of the planner names.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from kafka_tx.logs import event_log
from kafka_tx.transactions.ledger.batch_ids import UNKNOWN_SINK, SinkNote

logger = event_log(__name__)

VARIABLE = "KAFKA_TX_SINK_NOTES"


def leave_note(place: Path, tx_id: str, note: SinkNote) -> None:
    """Write the note of a query that starts (user's process)."""
    path = _path(place, tx_id)
    try:
        new = path.with_suffix(".new")
        new.write_text(json.dumps(note.to_json()))
        new.replace(path)
    except OSError as error:
        logger.info("the planner does not see the sink: %s", error, id=tx_id)


def remove_note(place: Path, tx_id: str) -> None:
    """Remove the note of a query that has ended (user's process)."""
    try:
        _path(place, tx_id).unlink(missing_ok=True)
    except OSError as error:
        logger.info("the note about the sink stays: %s", error, id=tx_id)


def note_of(tx_id: str) -> SinkNote:
    """The note for this planner's query; without one nothing is known."""
    place = os.environ.get(VARIABLE)
    if not place:
        return UNKNOWN_SINK
    try:
        return SinkNote.from_json(json.loads(_path(Path(place), tx_id).read_text()))
    except FileNotFoundError:
        return UNKNOWN_SINK
    except (OSError, ValueError, TypeError) as error:
        logger.info("the note about the sink cannot be read: %s", error, id=tx_id)
        return UNKNOWN_SINK


def _path(place: Path, tx_id: str) -> Path:
    return place / hashlib.sha256(tx_id.encode()).hexdigest()[:32]
