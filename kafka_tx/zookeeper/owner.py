"""Who owns an id, and which write was its last: one node of the store."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_tx.protocols import Store
from kafka_tx.transactions import records
from kafka_tx.zookeeper.client import Node

OWNER = "~owner"


@dataclass(frozen=True, slots=True)
class Owner:
    """What ``~owner`` says; ``version`` is -1 when it does not exist.

    ``write`` is a name for the last write; ``journal`` are the nodes of one that is
    valid and not carried out.
    """

    epoch: int = 0
    write: str = ""
    journal: tuple[str, ...] = ()
    version: int = -1

    @classmethod
    def of(cls, node: Node, store: Store) -> Owner:
        """Read the node.

        Raises:
            StateCorruptedError: It is no such record.
        """
        where = {"path": OWNER, "store": store.url, "id": store.id}
        text = node.data.decode(errors="replace")
        payload = records.decode(text, "owner", **where)
        try:
            return cls(
                epoch=int(payload["epoch"]),
                write=str(payload["write"]),
                journal=tuple(payload["journal"]),
                version=node.version,
            )
        except (KeyError, TypeError, ValueError) as error:
            reason = f"it makes no sense ({error})"
            raise records.corrupted(reason, **where) from None

    def record(self) -> bytes:
        """The data of the node that says this."""
        payload = {
            "epoch": self.epoch,
            "write": self.write,
            "journal": list(self.journal),
        }
        return records.encode("owner", payload).encode()
