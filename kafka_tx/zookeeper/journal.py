"""Writes that are larger than one request, kept whole before they are carried out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kafka_tx.errors import StateCorruptedError
from kafka_tx.zookeeper.client import (
    MovedError,
    OutcomeUnknownError,
    ZooKeeperClient,
)
from kafka_tx.zookeeper.operations import Check, Create, Delete
from kafka_tx.zookeeper.tree import MAX_NODE_BYTES

_JOURNAL = "~journal-"


@dataclass(frozen=True, slots=True)
class Journals:
    """The ``~journal-<write>-<n>`` nodes of one store."""

    _client: ZooKeeperClient
    _base: str
    _corrupted: Callable[[str, str], StateCorruptedError]

    def stage(
        self, write: str, put: Mapping[str, str], gone: list[str]
    ) -> tuple[str, ...]:
        """Keep a write where nobody looks yet; returns the names of its nodes.

        Doing it again for the same ``write`` is harmless.

        Raises:
            StateUnavailableError, StateError: As the client.
        """
        data = json.dumps(
            {"put": dict(put), "delete": gone}, ensure_ascii=False
        ).encode()
        names = []
        for number, first in enumerate(range(0, len(data), MAX_NODE_BYTES)):
            names.append(f"{_JOURNAL}{write}-{number}")
            piece = data[first : first + MAX_NODE_BYTES]
            try:
                self._client.change([Create(f"{self._base}/{names[-1]}", piece)])
            except MovedError:
                continue  # kept by an earlier try
            except OutcomeUnknownError as error:
                raise self._client.silent(error) from None
        return tuple(names)

    def load(self, names: Sequence[str]) -> tuple[dict[str, str], set[str]]:
        """What to put and what to delete, as these nodes say; without any: nothing.

        Raises:
            MovedError: They are gone: somebody carried the write out.
            StateCorruptedError: They cannot be read.
            StateUnavailableError, StateError: As the client.
        """
        nodes = [f"{self._base}/{name}" for name in names]
        found = self._client.nodes(nodes)
        if len(found) < len(nodes):
            raise MovedError(names[0])
        if not nodes:
            return {}, set()
        try:
            journal = json.loads(b"".join(found[node].data for node in nodes))
            return dict(journal["put"]), set(journal["delete"]) - set(journal["put"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._corrupted(names[0], f"unreadable ({error})") from None

    def sweep(self, still: Check) -> None:
        """Delete journals that never became valid, while ``still`` holds.

        The new owner does it once, right after its first step, which no valid journal
        outlives. Another owner that came meanwhile keeps what it staged.
        """
        names = self._client.children([self._base]).get(self._base, [])
        for name in names:
            if name.startswith(_JOURNAL):
                with suppress(MovedError, OutcomeUnknownError):
                    self._client.change([still, Delete(f"{self._base}/{name}")])
