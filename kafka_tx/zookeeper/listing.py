"""Which ids a ZooKeeper root holds state of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import LogPosition, TopicPartition
from kafka_tx.transactions import records
from kafka_tx.zookeeper.client import ZooKeeperClient
from kafka_tx.zookeeper.offsets import OWNERS, offset_of
from kafka_tx.zookeeper.owner import OWNER
from kafka_tx.zookeeper.session_settings import ZooKeeperSettings

_PARTITION = re.compile(r"partition_[0-9]+")


def stored_ids(url: str) -> list[str]:
    """Every id with records or with offsets in Storm's form, ascending. Only reads.

    Raises:
        ConfigError: The URL cannot be used.
        StateUnavailableError: ZooKeeper does not answer.
        StateError: It refuses: authentication, ACL.
    """
    settings = ZooKeeperSettings.parse(url)
    client = ZooKeeperClient(settings)
    try:
        root = settings.root or "/"
        names = client.children([root]).get(root, [])
        below = client.children(f"{settings.root}/{name}" for name in names)
        return sorted(
            node.rpartition("/")[2]
            for node, children in below.items()
            if (OWNER in children and len(children) > 1) or _keeps_offsets(children)
        )
    finally:
        client.close()


def stored_offsets(
    url: str,
    id: str,  # noqa: A002 - the word of every store
) -> tuple[int, dict[TopicPartition, LogPosition]]:
    """Newest epoch (0: none) and next offsets of the at-least-once topology ``id``.

    Raises:
        ConfigError: The URL cannot be used.
        StateCorruptedError: A node makes no sense.
        StateUnavailableError: ZooKeeper does not answer.
        StateError: It refuses: authentication, ACL.
    """
    settings = ZooKeeperSettings.parse(url)
    client = ZooKeeperClient(settings)
    base = f"{settings.root}/{id}"
    try:
        names = client.children([base]).get(base, [])
        if not _keeps_offsets(names):
            return 0, {}
        folders = [f"{base}/{n}" for n in names if n not in {OWNERS, OWNER}]
        below = client.children(folders)
        nodes = [f for f in folders if not below.get(f)]
        nodes += [f"{f}/{name}" for f in folders for name in below.get(f, ())]
        wanted = [node for node in nodes if _PARTITION.fullmatch(node.split("/")[-1])]
        found = client.nodes(wanted)
        offsets = dict(
            _offset(path, node.data, settings) for path, node in found.items()
        )
        return _epoch(client, base, settings, id), offsets
    finally:
        client.close()


def _epoch(
    client: ZooKeeperClient, base: str, settings: ZooKeeperSettings, id_: str
) -> int:
    node = client.node(f"{base}/{OWNERS}")
    text = None if node is None else node.data.decode(errors="replace")
    return records.decode_owners(text, path=OWNERS, store=settings.url, id=id_).last


def _offset(
    path: str, data: bytes, settings: ZooKeeperSettings
) -> tuple[TopicPartition, LogPosition]:
    try:
        record = json.loads(data)
        partition = TopicPartition(str(record["topic"]), int(record["partition"]))
        topic_id = (record.get("kafka_tx") or {}).get("topic_id")
        return partition, LogPosition(offset_of(record), topic_id)
    except (ValueError, TypeError, KeyError) as error:
        raise StateCorruptedError(
            f"node {path} of ZooKeeper {settings.hosts} is no record of an offset"
            f" ({error!r})",
            store=settings.url,
            path=path,
            reason=repr(error),
        ) from None


def _keeps_offsets(children: Iterable[str]) -> bool:
    return any(name == OWNERS or _PARTITION.fullmatch(name) for name in children)
