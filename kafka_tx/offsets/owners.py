"""Who may store the offsets of an id: the newest owner of each task, by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_tx.errors import FencedError


@dataclass(frozen=True, slots=True)
class Claim:
    """What an owner holds: task ``task`` of ``tasks`` that share an id, since an epoch.

    Epochs of an id only rise, whichever task they are of.
    """

    task: int
    tasks: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Owners:
    """The newest owners of an id; offset stores keep this beside the offsets.

    Tasks that share an id do not fence each other. One that counts another number of
    tasks does: partitions are then shared out anew, and nobody's claim holds any more.

    Attributes:
        last: The greatest epoch ever given.
        tasks: How many tasks share the id.
        epochs: Of the newest owner of each task that ever had one.
    """

    last: int = 0
    tasks: int = 1
    epochs: Mapping[int, int] = field(default_factory=dict)

    def claimed(self, task: int, tasks: int) -> tuple[Owners, Claim]:
        """After a new owner of a task came, and its claim."""
        epoch = self.last + 1
        others = self.epochs if tasks == self.tasks else {}
        owners = Owners(epoch, tasks, {**others, task: epoch})
        return owners, Claim(task, tasks, epoch)

    def check(self, claim: Claim, *, store: str, id: str) -> None:  # noqa: A002
        """Let pass who still is the newest owner of its task.

        Args:
            claim: Of the writer.
            store: The address of the store without secrets.
            id: Whose offsets they are.

        Raises:
            FencedError: A newer one came, or the store was emptied.
        """
        if self.epochs.get(claim.task) == claim.epoch:
            return
        if self.last > claim.epoch:
            reason = (
                f"another owner took over the offsets of id '{id}' (its epoch is"
                f" {self.last}, ours {claim.epoch}). Only one live spout may use an id,"
                " or one for each task_index of total_tasks: stop one of them, or give"
                " it an id of its own"
            )
        else:
            reason = (
                f"the owner of the offsets of id '{id}' has epoch {self.last} in the"
                f" store and we hold {claim.epoch}: the store was emptied or put back"
                " to an older copy while we ran. Check it, then start again"
            )
        raise FencedError(
            f"{reason}. Store: {store}. Nothing was written.",
            store=store,
            id=id,
            held=claim.epoch,
            stored=self.last,
        )

    def payload(self) -> dict[str, Any]:
        """As JSON can keep it."""
        epochs = {str(task): epoch for task, epoch in self.epochs.items()}
        return {"last": self.last, "tasks": self.tasks, "epochs": epochs}

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Owners:
        """From ``payload``.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: It is no such record.
        """
        epochs = {int(task): int(e) for task, e in payload["epochs"].items()}
        return cls(int(payload["last"]), int(payload["tasks"]), epochs)
