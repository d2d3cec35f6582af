"""Facts about the sinks of running queries, from ``attach`` to the planning processes.

``attach`` sees the sink of a query, and a planner does not. Both are on the driver's
machine. So ``attach`` writes a file for each ``tx.id``, before Spark starts the query's
planner, into a directory that an environment variable of the planner names.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

from kafka_tx.logs import event_log
from kafka_tx.running.connect_meeting import check_owner
from kafka_tx.transactions.ledger.batch_ids import UNKNOWN_SINK, SinkNote

logger = event_log(__name__)

VARIABLE = "KAFKA_TX_SINK_NOTES"


class SinkNotes:
    """The notes of one session, in a temporary directory (user's process)."""

    def __init__(self) -> None:
        self.place: Path | None = None
        """The directory; None: none can be made, and nothing is noted."""
        try:
            self.place = Path(mkdtemp(prefix="kafka-tx-"))
        except OSError as error:
            logger.warning("planners do not see the sinks of queries: %s", error)
        self.close = finalize(self, _remove, self.place, os.getpid())
        """Remove the directory, which also the end of this process does."""

    def leave(self, tx_id: str, note: SinkNote) -> None:
        """Write the note of a query that starts.

        Programs that clean up temporary directories may have removed this one.
        """
        if self.place is None:
            return
        path = _path(self.place, tx_id)
        try:
            self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_owner(self.place)
            new = path.with_suffix(".new")
            new.write_text(json.dumps(note.to_json()))
            new.replace(path)
        except OSError as error:
            logger.warning("the planner does not see the sink: %s", error, id=tx_id)

    def remove(self, tx_id: str) -> None:
        """Remove the note of a query that has ended."""
        if self.place is None:
            return
        try:
            _path(self.place, tx_id).unlink(missing_ok=True)
        except OSError as error:
            logger.info("the note about the sink stays: %s", error, id=tx_id)


def _remove(place: Path | None, maker: int) -> None:
    """Not in forks of the process that has made the directory."""
    if place is not None and os.getpid() == maker:
        shutil.rmtree(place, ignore_errors=True)


def note_of(tx_id: str) -> SinkNote:
    """The note for this planner's query; without one nothing is known."""
    place = os.environ.get(VARIABLE)
    if not place:
        return UNKNOWN_SINK
    try:
        check_owner(Path(place))
        return SinkNote.from_json(json.loads(_path(Path(place), tx_id).read_text()))
    except FileNotFoundError:
        return UNKNOWN_SINK
    except (OSError, ValueError, TypeError) as error:
        logger.warning("the note about the sink cannot be read: %s", error, id=tx_id)
        return UNKNOWN_SINK


def _path(place: Path, tx_id: str) -> Path:
    return place / hashlib.sha256(tx_id.encode()).hexdigest()[:32]
