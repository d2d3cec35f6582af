"""``kafka-tx lag --serve``: metrics of a store's ids, without a driver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import typer

from kafka_tx.cli.kafka_logs import Logs, positions_of
from kafka_tx.cli.positions import each_id, positions_in, refuse_copied
from kafka_tx.cli.stores import checked, url_or_file
from kafka_tx.errors import KafkaTxError, StateError
from kafka_tx.metrics.endpoint import serve
from kafka_tx.metrics.events import OffsetsStored
from kafka_tx.metrics.registry import MetricsRegistry
from kafka_tx.store_place import StoreKind, kind_of
from kafka_tx.transactions.layout.commit_stats import is_bounded, newest_ms
from kafka_tx.transactions.layout.txid_layout import Door

INTERVAL_S = 15.0
FAILURES = 4
"""Polls that fail in a row until figures disappear."""


def export(
    store: str, wanted: str | None, kafka: Mapping[str, str], port: int, address: str
) -> None:
    """Serve until the process is ended.

    Figures of an id that cannot be read disappear; other ids keep theirs. If polls fail
    for a minute, all figures disappear until one succeeds: none is older than that.

    Raises:
        ConfigError: A URL, an option or the port cannot be used.
        KafkaTxError: The first poll of store and brokers failed.
    """
    logs, registry = Logs(kafka), MetricsRegistry()
    exporter = _Exporter(store, wanted, logs, registry)
    exporter.poll()
    with serve(registry, port, address) as endpoint:
        typer.echo(endpoint.url)
        failures = 0
        while True:
            time.sleep(INTERVAL_S)
            try:
                exporter.poll()
                failures = 0
            except KafkaTxError as error:
                typer.echo(f"kafka-tx: {error}", err=True)
                failures += 1
            if failures >= FAILURES:
                exporter.forget()


@dataclass
class _Exporter:
    store: str
    wanted: str | None
    logs: Logs
    registry: MetricsRegistry
    shown: set[str] = field(default_factory=set)

    def poll(self) -> None:
        found = {one.id: one for one in self._stored()}
        for gone in self.shown - found.keys():
            self.registry.forget(gone)
        for name, stored in found.items():
            txid = self.registry.current_txid(name)
            if txid is not None and (stored.txid or 0) + 1 < txid:  # a person moved it
                self.registry.forget(name)
            self.registry.record_stored(stored)
            self.registry.record_bounded(stored)
        self.shown = set(found)
        positions = {name: self.registry.positions_of(name) for name in found}
        for name, bounds in self.logs.poll(positions).items():
            self.registry.record_log(name, bounds)

    def forget(self) -> None:
        """Show no figures: they are too old."""
        for name in self.shown:
            self.registry.forget(name)
        self.shown = set()

    def _stored(self) -> list[OffsetsStored]:
        if kind_of(url_or_file(self.store)) is StoreKind.GROUP:
            positions, _ = positions_of(self.store, self.wanted, self.logs)
            return [
                OffsetsStored(id=id_, committed=at, is_all=True)
                for id_, at in positions.items()
            ]
        ids = [self.wanted] if self.wanted is not None else []
        found = []
        for name, doors in each_id(checked(self.store), ids):
            if isinstance(doors, StateError):
                if self.wanted is not None:
                    raise doors
                typer.echo(f"kafka-tx: no figures of '{name}': {doors}", err=True)
                continue
            shown = [one for one in doors if one.current]
            if not shown:
                for one in doors if self.wanted is not None else ():
                    refuse_copied(name, one.state, "lag")
                continue
            state = shown[0].state  # of the job with txids: metrics name the id alone
            is_counted = shown[0].door is not Door.AT_LEAST_ONCE
            found.append(
                OffsetsStored(
                    id=name,
                    committed=positions_in(shown),
                    committed_at_ms=state.committed_ms,
                    newest_timestamp_ms=newest_ms(state.commit_stats),
                    txid=state.txid if is_counted else None,
                    is_bounded=is_bounded(state.commit_stats),
                    is_all=True,
                )
            )
        return found
