"""The commands that an error prints, as ``kafka-tx offsets`` runs them."""

from __future__ import annotations

from kafka_tx.cli.offsets import _forgotten, _moved, _sink_at
from kafka_tx.cli.targets import target_of
from kafka_tx.protocols import Store
from kafka_tx.transactions.ledger.ledger import Ledger


def set_offsets(store: Store, given: str) -> None:
    """``offsets set --offsets``: refused if it would drop other records."""
    target = target_of(given, None, None, has_brokers=False)
    ledger = Ledger(store)
    epoch = ledger.acquire()
    wanted = _moved(store, ledger.load(), target, _sink_at("", ""))
    ledger.adopt(epoch, wanted, keeps_later=True)


def forget(store: Store, topics: list[str]) -> None:
    """``offsets forget --topic``."""
    ledger = Ledger(store)
    epoch = ledger.acquire()
    wanted = _forgotten(store, ledger.load(), topics)
    ledger.adopt(epoch, wanted, keeps_later=True)
