"""Shows the stored state of earlier runs at a start, and stores why a run stopped."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from kafka_tx import assembly
from kafka_tx.errors import KafkaTxError, StateGivenUpError, StateUnavailableError
from kafka_tx.logs import event_log
from kafka_tx.metrics.events import OffsetsStored, stop_reason
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.model import Subscription, TopicPartition
from kafka_tx.offsets.discovery import subscribed
from kafka_tx.protocols import Clock, Store
from kafka_tx.store_place import StoreKind, kind_of
from kafka_tx.transactions.layout import records
from kafka_tx.transactions.layout.commit_stats import newest_ms
from kafka_tx.transactions.layout.stops import Stop, last_stop, stop_id, store_stop
from kafka_tx.transactions.layout.txid_layout import NUMBERING, numbering_of
from kafka_tx.transactions.ledger.ledger import LedgerState

logger = event_log(__name__)


def record_stop(
    registry: MetricsRegistry,
    store: Store | None,
    id: str,  # noqa: A002 - the word users know
    error: BaseException | None,
    clock: Clock,
    *,
    goes_on: bool = False,
) -> None:
    """Count a stop and write it to the store; None: it ended without an error.

    Never raises a KafkaTxError. The stop of a fenced process is not stored: another
    process owns the id. Nor is that of one whose store did not answer, this one: the
    process would go on asking for as long again. ``goes_on``: see
    ``MetricsRegistry.record_stop``.
    """
    if error is None:
        return
    now_ms, reason = clock.now_ms(), stop_reason(error)
    # first, because the store may hang
    registry.record_stop(id, error, now_ms, goes_on=goes_on)
    if store is None or _is_away(store, error):
        return
    if not goes_on:
        registry.record_moved(id, _moved_to(store))
    if reason == "fenced":
        return
    try:
        store_stop(store, Stop(reason, str(error), now_ms))
    except KafkaTxError as refusal:
        logger.warning("the reason of the stop was not stored: %s", refusal, id=id)


def _is_away(store: Store, error: BaseException) -> bool:
    if not isinstance(error, StateUnavailableError | StateGivenUpError):
        return False
    return error.fields.get("store") == store.url


def _moved_to(store: Store) -> str:
    """The store to which a tool has copied the id; empty: none, as far as known."""
    with suppress(KafkaTxError):
        text = store.get(NUMBERING)
        found = numbering_of({NUMBERING: text}, "", "") if text is not None else None
        return found.moved_to if found is not None else ""
    return ""


def open_stop_store(url: str, id: str) -> Store | None:  # noqa: A002 - the word users know
    """The store for the reason of a topology's stop; None: it has no such store."""
    if kind_of(url) in (StoreKind.GROUP, StoreKind.MEMORY):
        return None
    store = None
    try:
        store = assembly.open_store(url, stop_id(id))
        records.check_formats(store.read(), store.url, store.id)
        store.acquire()
    except KafkaTxError as error:
        logger.warning("the reason of a stop will not be stored: %s", error, id=id)
        if store is not None:
            store.close()
        return None
    return store


def show_last_stop(
    registry: MetricsRegistry,
    store: Store,
    id: str | None = None,  # noqa: A002
) -> None:
    """Show why an earlier process of the store's id stopped. Raises no KafkaTxError."""
    try:
        found = last_stop(store)
    except KafkaTxError as error:
        logger.info("the last stop cannot be read: %s", error, id=store.id)
        return
    if found is not None:
        stop = found.reason, found.at_ms, found.error
        registry.record_last_stop(id or store.id, *stop)


def show_committed(
    registry: MetricsRegistry,
    id: str,  # noqa: A002 - the word users know
    state: LedgerState,
    wanted: Subscription | None = None,
) -> Collection[TopicPartition]:
    """Show the stored position of an id, until this process commits a batch.

    Before the first commit, the position is the start of the very first batch. Topics
    that ``wanted`` leaves out have no lag here: their positions stay in the store and
    are not shown. Returns the partitions that are shown now.
    """
    committed = state.known_position
    if committed is None:
        return []
    positions = committed.positions()
    registry.record_stored(
        OffsetsStored(
            id=id,
            committed=subscribed(wanted, positions) if wanted else positions,
            committed_at_ms=state.committed_ms if committed.txid else None,
            newest_timestamp_ms=newest_ms(state.commit_stats),
            txid=committed.txid,
            is_all=True,
        )
    )
    return registry.positions_of(id)
