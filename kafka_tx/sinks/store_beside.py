"""Whether the store in a sink's own database has come as far as an attempt.

A restored database takes store and sink back together. A batch in flight would then be
written on top of an older state: the batches between would be lost, or its txid would
soon be planned again with other records.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.errors import StateLostError
from kafka_tx.model import TransactionAttempt, short_digest
from kafka_tx.transactions.layout.txid_layout import (
    CURRENT,
    NUMBERING,
    Door,
    current_of,
    metadata_path,
    numbering_of,
)
from kafka_tx.transactions.ownership.refusals import AFTER_A_LOSS, LEFT_BEHIND


def paths_beside(attempt: TransactionAttempt) -> list[str]:
    """The paths of the records to compare, of the id ``attempt.source``."""
    plan = [metadata_path(attempt.txid)] if attempt.mode == "transactional" else []
    return [NUMBERING, CURRENT, *plan]


def check_store_beside(
    attempt: TransactionAttempt,
    texts: Mapping[str, str],
    epoch: int,
    *,
    what: str,
    store: str,
) -> bool:
    """Refuse an attempt that is newer than its own store, if these are its records.

    A txid is written while it is the first in line, under its owner's epoch, and if
    transactional as the store has it planned.

    Args:
        attempt: The one that wants to write.
        texts: What the store holds of the id, at ``paths_beside`` at least.
        epoch: The id's epoch in the store.
        what: Name of the sink in error texts.
        store: Address of the store.

    Returns:
        Whether it is the attempt's store, and was not copied elsewhere since.

    Raises:
        StateLostError: The store has not come as far: the database went back.
        StateCorruptedError, FormatError: A record of the store cannot be read.
    """
    where = {"store": store, "id": attempt.source}
    numbering = numbering_of(texts, **where)
    if numbering is None or numbering.name != attempt.numbering or numbering.moved_to:
        return False
    current = current_of(texts, **where)
    is_planned = (
        attempt.txid != current
        or attempt.mode == "opaque"
        or _is_plan(texts.get(metadata_path(current)), attempt, numbering.door)
    )
    if attempt.txid > current or attempt.epoch > epoch or not is_planned:
        other = "" if is_planned else " and does not have the attempt's plan"
        raise StateLostError(
            f"attempt {attempt} is newer than the store of '{attempt.source}', which is"
            f" in the same database as {what}: it is at txid {current} of epoch"
            f" {epoch}{other}. Nothing was written. {LEFT_BEHIND.format(**where)}"
            f" {AFTER_A_LOSS}",
            **where,
        )
    return True


def _is_plan(text: str | None, attempt: TransactionAttempt, door: Door) -> bool:
    """Whether this is the attempt's plan; a source's is known to be there at all."""
    if text is None or door is Door.SOURCE:
        return text is not None
    return attempt.plan in ("", short_digest(text))
