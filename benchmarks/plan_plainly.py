"""The plain way to keep something of each partition: an entry of its own for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient

Keep = Callable[[str, Mapping[tuple[str, int], str]], None]
"""Keeps under a name the text of each topic and partition."""


def in_memory() -> Keep:
    kept: dict[str, dict[tuple[str, int], str]] = {}

    def keep(name: str, entries: Mapping[tuple[str, int], str]) -> None:
        kept.setdefault(name, {}).update(entries)

    return keep


def in_rows(url: str) -> Keep:
    """A row each, deleted and inserted in one transaction."""
    engine = sa.create_engine(url)
    columns = ("name", "topic", "number", "text")
    table = sa.Table("plain", sa.MetaData(), *(sa.Column(c, sa.Text) for c in columns))
    table.create(engine, checkfirst=True)

    def keep(name: str, entries: Mapping[tuple[str, int], str]) -> None:
        rows = [
            dict(zip(columns, (name, topic, str(number), text), strict=True))
            for (topic, number), text in entries.items()
        ]
        with engine.begin() as connection:
            connection.execute(table.delete().where(table.c.name == name))
            connection.execute(table.insert(), rows)

    return keep


def in_zookeeper(client: KazooClient, root: str) -> Keep:
    """A node each, one request after the other."""

    def keep(name: str, entries: Mapping[tuple[str, int], str]) -> None:
        for (topic, number), text in entries.items():
            path = f"{root}/{name}/{topic}-{number}"
            if client.exists(path):
                client.set(path, text.encode())
            else:
                client.create(path, text.encode(), makepath=True)

    return keep


def in_group(servers: str, width: int) -> Keep:
    """An offset each, one request after the other; other texts are not kept."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"plain-{width}"})

    def keep(name: str, entries: Mapping[tuple[str, int], str]) -> None:
        if name != "committed":
            return
        for (topic, number), text in entries.items():
            offset = TopicPartition(topic, number, int(text))
            consumer.commit(offsets=[offset], asynchronous=False)

    return keep
