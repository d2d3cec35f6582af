"""Which ids a ZooKeeper root holds state of."""

from __future__ import annotations

from kafka_tx.zookeeper.client import ZooKeeperClient
from kafka_tx.zookeeper.owner import OWNER
from kafka_tx.zookeeper.settings import ZooKeeperSettings


def stored_ids(url: str) -> list[str]:
    """Every id with at least one node beside its owner, ascending. Only reads.

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
            if OWNER in children and len(children) > 1
        )
    finally:
        client.close()
