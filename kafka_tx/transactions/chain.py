"""The metadata of uncommitted batches, each planned from the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from kafka_tx.config import Mode
from kafka_tx.model import TransactionAttempt, short_digest
from kafka_tx.transactions import records
from kafka_tx.transactions.rotating import (
    Change,
    Codec,
    RecordCodec,
    RotatingState,
)
from kafka_tx.transactions.txid_layout import CURRENT, METADATA

M = TypeVar("M")


@dataclass(frozen=True)
class Planned(Generic[M]):
    """What a batch holds, and the attempt that planned it."""

    attempt: TransactionAttempt
    metadata: M


class MetadataChain(Generic[M]):
    """Metadata by txid, without holes from the last committed txid on.

    Transactional: stored before a batch is emitted; the same for every attempt.
    """

    is_opaque = False

    def __init__(self, stored: RotatingState[M]) -> None:
        self._stored = stored

    def has(self, txid: int) -> bool:
        """Whether an uncommitted txid may start without being planned."""
        return self._stored.has_state(txid)

    def metadata(self, txid: int) -> M:
        """The metadata of the last committed txid, or of one that ``has`` knows."""
        # None is metadata too, where a spout has nothing to say about a batch.
        return cast(M, self._stored.state(txid))

    def attempt(self, txid: int) -> TransactionAttempt | None:  # noqa: ARG002
        """The attempt the metadata was planned for, where it holds for no other one."""
        return None

    def digest(self, txid: int) -> str:
        """Of the metadata, where it is the same on every replay; else empty."""
        return short_digest(self._stored.text(txid))

    def keep(self, planned: Planned[M]) -> Change:
        """Take new metadata; return what must be stored before it may be used."""
        return self._stored.create_state(planned.attempt.txid, planned.metadata)

    def drop_from(self, txid: int) -> None:
        """This txid failed: forget what cannot be used again."""

    def record(self, txid: int) -> Change:
        """What is stored when the txid has committed, and what is not needed then.

        The txid itself is the next one's predecessor.
        """
        return self._stored.cleanup_before(txid)

    def apply(self, change: Change) -> None:
        """Follow a change that is in the store now."""
        self._stored.apply(change)


class OpaqueChain(MetadataChain[M]):
    """In memory until the batch commits; a batch begins where the one before it ends.

    A failed batch may end elsewhere next time, so its later ones are forgotten with it.
    """

    is_opaque = True

    def __init__(self, stored: RotatingState[M]) -> None:
        super().__init__(stored)
        self._planned: dict[int, Planned[M]] = {}

    def has(self, txid: int) -> bool:
        """Whether it is planned; what is stored for an uncommitted txid is void."""
        return txid in self._planned

    def metadata(self, txid: int) -> M:
        """The planned metadata, else that of the last committed txid."""
        planned = self._planned.get(txid)
        return planned.metadata if planned else cast(M, self._stored.state(txid))

    def attempt(self, txid: int) -> TransactionAttempt | None:
        """The attempt it was planned for."""
        planned = self._planned.get(txid)
        return planned.attempt if planned else None

    def digest(self, txid: int) -> str:  # noqa: ARG002
        """A replay may hold other records."""
        return ""

    def keep(self, planned: Planned[M]) -> Change:
        """Store nothing yet."""
        self._planned[planned.attempt.txid] = planned
        return Change()

    def drop_from(self, txid: int) -> None:
        """Forget this txid and all later ones."""
        self._planned = {t: plan for t, plan in self._planned.items() if t < txid}

    def record(self, txid: int) -> Change:
        """Store its metadata, and delete that of all other txids.

        A transactional owner may have planned later ones from what this txid held then.
        """
        planned = self._planned[txid]
        own = self._stored.override_state(txid, planned.metadata)
        return own | self._stored.cleanup_except(txid)

    def apply(self, change: Change) -> None:
        """Follow a change that is in the store now, and plan no more what it sets."""
        for txid in self._stored.apply(change):
            self._planned.pop(txid, None)


@dataclass(frozen=True, slots=True)
class Opened:
    """What a new owner found.

    Attributes:
        epoch: Acquired *before* ``values`` were read, or an older owner may still write
            in between.
        values: Everything the store holds for the id, by path.
        store: Address of the store, without secrets, for errors.
        id: Whose state it is, for errors.
    """

    epoch: int
    values: Mapping[str, str]
    store: str
    id: str


def currtx_codec(opened: Opened) -> RecordCodec[int]:
    """How the lowest uncommitted txid is kept."""
    return RecordCodec(CURRENT, opened.store, opened.id, from_json=_txid)


def read_chain(codec: Codec[M | None], opened: Opened) -> tuple[int, RotatingState[M]]:
    """Read ``currtx`` and ``meta/<txid>``.

    Returns:
        The lowest uncommitted txid, and what is stored from the one before it on.

    Raises:
        StateCorruptedError: A record cannot be read, or the txids have a hole.
    """
    text = opened.values.get(CURRENT)
    current = 1 if text is None else currtx_codec(opened).decode(CURRENT, text) or 1
    state = RotatingState[M](METADATA.rstrip("/"), codec)
    state.load(opened.values)
    txids, first = state.txids(), max(current - 1, 1)
    whole = txids == list(range(first, first + len(txids)))
    if not whole or len(txids) < current - first:
        raise records.corrupted(
            f"it is {current} and '{METADATA}' holds the txids {txids}; legal: every"
            f" txid from {first} on, without a hole",
            path=CURRENT,
            store=opened.store,
            id=opened.id,
        )
    return current, state


def open_chain(
    mode: Mode, codec: Codec[M | None], opened: Opened
) -> tuple[int, int, MetadataChain[M]]:
    """What the owner of ``read_chain``'s records goes on with.

    Returns:
        The lowest uncommitted txid; the greatest txid that must be replayed and not
        planned (that txid - 1 if there is none); the chain.

    Raises:
        StateCorruptedError: As of ``read_chain``.
    """
    current, state = read_chain(codec, opened)
    if mode == "opaque":
        return current, current - 1, OpaqueChain(state)
    return current, max([current - 1, *state.txids()]), MetadataChain(state)


def _txid(payload: object) -> int:
    if not isinstance(payload, int) or isinstance(payload, bool) or payload < 1:
        msg = f"{payload!r} is no txid"
        raise ValueError(msg)
    return payload
