"""The owners that may store the offsets of an id: the newest of each task, by epoch.

Also detects a store that was restored or replaced: each write leaves a new word, and
the next write expects it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_tx.errors import FencedError, StateLostError

LOST_BY = (
    "went back (a database that failed over to a standby that was behind, that crashed"
    " with synchronous_commit=off, or that was put back from a copy), was emptied, or"
    " another one answers at its address"
)


def new_word() -> str:
    """A random word that a write leaves, by which the next one recognises the store."""
    return secrets.token_hex(4)


@dataclass(slots=True)
class Claim:
    """An owner's claim: task ``task`` of ``tasks`` that share an id, since an epoch.

    ``words`` are those that its last write may have left: several if the outcome of a
    write is not known.
    """

    task: int
    tasks: int
    epoch: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Owners:
    """The newest owners of an id; stored beside the offsets.

    Tasks that share an id do not fence each other. A task with another number of tasks
    fences all: partitions are then assigned anew, and all old claims end. ``last`` is
    the greatest epoch ever given: epochs of an id only rise, across all tasks.
    ``epochs`` and ``words`` have each task's newest owner and the word that its last
    write left.
    """

    last: int = 0
    tasks: int = 1
    epochs: Mapping[int, int] = field(default_factory=dict)
    words: Mapping[int, str] = field(default_factory=dict)

    def claimed(self, task: int, tasks: int) -> tuple[Owners, Claim]:
        """The owners after a new owner of a task has come, and its claim."""
        epoch, word = self.last + 1, new_word()
        others, words = (self.epochs, self.words) if tasks == self.tasks else ({}, {})
        owners = Owners(epoch, tasks, {**others, task: epoch}, {**words, task: word})
        return owners, Claim(task, tasks, epoch, (word,))

    def wrote(self, claim: Claim) -> Owners:
        """The owners after a write of this owner, which leaves its newest word."""
        return replace(self, words={**self.words, claim.task: claim.words[-1]})

    def check(self, claim: Claim, *, store: str, id: str) -> None:  # noqa: A002
        """Check that a writer is its task's newest owner, on the store that it left.

        ``store`` is the address without secrets.

        Raises:
            FencedError: A newer owner came.
            StateLostError: The store was restored, emptied, or replaced by another one.
        """
        is_owner = self.epochs.get(claim.task) == claim.epoch
        if is_owner and self.words.get(claim.task) in claim.words:
            return
        if is_owner or self.last < claim.epoch:
            raise lost_offsets(store, id)
        raise FencedError(
            f"another owner took over the offsets of id '{id}' (its epoch is"
            f" {self.last}, ours {claim.epoch}). Only one live spout may use an id,"
            " or one for each task_index of total_tasks: stop one of them, or give"
            f" it an id of its own. Store: {store}. Nothing was written.",
            store=store,
            id=id,
            held=claim.epoch,
            stored=self.last,
        )

    def payload(self) -> dict[str, Any]:
        """The owners in JSON's types."""
        epochs = {str(task): epoch for task, epoch in self.epochs.items()}
        words = {str(task): word for task, word in self.words.items()}
        return {
            "last": self.last,
            "tasks": self.tasks,
            "epochs": epochs,
            "words": words,
        }

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Owners:
        """Read the result of ``payload``; raises Python's errors for an illegal one."""
        epochs = {int(task): int(e) for task, e in payload["epochs"].items()}
        words = {int(task): str(word) for task, word in payload["words"].items()}
        return cls(int(payload["last"]), int(payload["tasks"]), epochs, words)


def lost_offsets(
    store: str,
    id: str,  # noqa: A002 - the word of every store
    by: str = LOST_BY,
) -> StateLostError:
    """The error for offsets that differ from their owner's last write."""
    return StateLostError(
        f"the offsets of id '{id}' in {store} are not as this spout left them: the"
        f" store {by}. Nothing was written. Start again if the stored offsets are"
        " right: the topology goes on from them, and what was completed beyond them"
        " comes once more, which maps and tables of the same database need, since they"
        " went back with it. If the store is empty or another one, first put the right"
        " one back: without stored offsets a topology begins at start_offset_time of"
        " its spout. To begin elsewhere, start with ignore_stored_offsets=True and"
        " start_offset_time of the spout, and with a new tx.deployment: an earlier time"
        " repeats records, a later one leaves records out",
        store=store,
        id=id,
    )
