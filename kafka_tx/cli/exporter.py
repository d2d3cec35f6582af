"""``kafka-tx lag --serve``: metrics of a store's ids, without a driver."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import typer

from kafka_tx.cli.kafka_logs import Logs, positions_of
from kafka_tx.cli.positions import each_id, positions_in
from kafka_tx.cli.stores import checked, url_or_file
from kafka_tx.errors import KafkaTxError, StateError
from kafka_tx.metrics import catalogue
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
    for a minute, all figures disappear until one succeeds: none is older than that. The
    time of an id's last figures stays.

    Raises:
        ConfigError: A URL, an option or the port cannot be used.
        KafkaTxError: The first poll of store and brokers failed, or the wanted id has
            no committed offsets yet.
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
                exporter.hide_all()


@dataclass
class _Exporter:
    store: str
    wanted: str | None
    logs: Logs
    registry: MetricsRegistry
    seen: dict[str, float] = field(default_factory=dict)
    """Unix time of each id's last figures; of its first poll, if there were none."""

    def poll(self) -> None:
        """Read store and brokers once.

        Raises:
            StateError: The store does not answer, or the wanted id has no offsets.
            KafkaTxError: As of ``Logs.poll``.
        """
        stored = self._stored()
        for gone in self.seen.keys() - stored.keys():
            self.registry.forget(gone)
            del self.seen[gone]
        found = {id_: one for id_, one in stored.items() if one is not None}
        self._hide(stored.keys() - found.keys())
        for name, one in found.items():
            txid = self.registry.current_txid(name)
            if txid is not None and (one.txid or 0) + 1 < txid:  # a person moved it
                self.registry.forget(name)
            self.registry.record_stored(one)
            self.registry.record_bounded(one)
            self._show_time(name, self.seen.get(name, time.time()))
        positions = {name: self.registry.positions_of(name) for name in found}
        for name, bounds in self.logs.poll(positions).items():
            self.registry.record_log(name, bounds)
            self._show_time(name, time.time())

    def hide_all(self) -> None:
        """Show no figures but their times: they are too old."""
        self._hide(list(self.seen))

    def _hide(self, ids: Iterable[str]) -> None:
        for name in ids:
            self.registry.forget(name)
            self._show_time(name, self.seen.get(name, time.time()))

    def _show_time(self, name: str, at_s: float) -> None:
        self.seen[name] = at_s
        self.registry.set(catalogue.LAST_POLL.name, at_s, id=name)

    def _stored(self) -> dict[str, OffsetsStored | None]:
        """What is stored of each id; None: it cannot be read."""
        if kind_of(url_or_file(self.store)) is StoreKind.GROUP:
            positions, _ = positions_of(self.store, self.wanted, self.logs)
            return {
                id_: OffsetsStored(id=id_, committed=at, is_all=True)
                for id_, at in positions.items()
            }
        ids = [self.wanted] if self.wanted is not None else []
        found: dict[str, OffsetsStored | None] = {}
        for name, doors in each_id(checked(self.store), ids):
            if isinstance(doors, StateError):
                if self.wanted is not None:
                    raise doors
                typer.echo(f"kafka-tx: no figures of '{name}': {doors}", err=True)
                found[name] = None
                continue
            shown = [one for one in doors if one.current]
            if not shown:
                continue
            state = shown[0].state  # of the job with txids: metrics name the id alone
            is_counted = shown[0].door is not Door.AT_LEAST_ONCE
            found[name] = OffsetsStored(
                id=name,
                committed=positions_in(shown),
                committed_at_ms=state.committed_ms,
                newest_timestamp_ms=newest_ms(state.commit_stats),
                txid=state.txid if is_counted else None,
                is_bounded=is_bounded(state.commit_stats),
                is_all=True,
            )
        if self.wanted is not None and not found:
            positions_of(self.store, self.wanted, self.logs)  # raises why
        return found
