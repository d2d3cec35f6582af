"""Which tasks may work in a commit phase, and when the last of them is gone.

The end of a Spark job is not the end of its tasks: a job that is cancelled, or loses a
task, ends at once, and the worker that runs a committer goes on. So each task of a
commit phase asks before its first line of user code and tells when it is done; its
process ending tells it too. A phase is over when nobody may begin in it any more and
everybody who began has ended.
"""

from __future__ import annotations

from kafka_tx.model import TransactionAttempt


class Permits:
    """Who asked, who was let in, who is still there. Holders are numbers, used once.

    ::

        open(1:7)  ask(a) → yes   ask(b) → yes   done(a)    ask(a again) → no
        close(1:7) → (b,)         is_over → no   ended(b)   is_over → yes
    """

    def __init__(self) -> None:
        self._open: set[TransactionAttempt] = set()
        self._holders: dict[int, tuple[TransactionAttempt, str]] = {}
        self._done: set[tuple[TransactionAttempt, str]] = set()

    def open(self, attempt: TransactionAttempt) -> None:
        """The commit phase of this attempt begins."""
        self._open.add(attempt)

    def ask(self, holder: int, attempt: TransactionAttempt, task: str) -> bool:
        """Whether a task may begin: the phase is open, and it is its first run.

        A task that is run a second time, because the first one seems lost, must not
        work beside it. One that was done is run again because what it sent was lost:
        others may have rows of the first run, and have committed them.
        """
        if attempt not in self._open or (attempt, task) in self._done:
            return False
        if (attempt, task) in self._holders.values():
            return False
        self._holders[holder] = (attempt, task)
        return True

    def done(self, holder: int) -> None:
        """A holder's task has worked to its end: it is not let in again."""
        self._done.add(self._holders[holder])

    def ended(self, holder: int) -> None:
        """A holder's task, or its process, has ended. Harmless twice."""
        self._holders.pop(holder, None)

    def close(self, attempt: TransactionAttempt) -> tuple[int, ...]:
        """Let nobody begin any more; who is still there."""
        self._open.discard(attempt)
        self._done = {each for each in self._done if each[0] != attempt}
        return self.holders(attempt)

    def holders(self, attempt: TransactionAttempt) -> tuple[int, ...]:
        """Those that have begun for an attempt and not ended."""
        return tuple(h for h, (of, _) in self._holders.items() if of == attempt)

    def is_over(self, attempt: TransactionAttempt) -> bool:
        """Whether its commit phase can write nothing any more."""
        return attempt not in self._open and not self.holders(attempt)
