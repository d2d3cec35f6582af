"""Knows when all rows that were there at some moment are processed and recorded."""

from __future__ import annotations

from collections.abc import Callable


class Idleness:
    """The newest question to the spout whose answer showed that nothing is left to do.

    An answer says nothing of rows that came after its question, and may come late. So
    questions have numbers, from 1, and a caller waits for one that was asked after its
    own call. The topology's thread calls all methods, except ``begin``.
    """

    def __init__(self) -> None:
        self._asked = self._proof = 0
        self._empty = 0, 0
        """Txid and question of the newest plan; zeros if that left rows."""

    def begin(self) -> Callable[[], bool]:
        """Begin to wait: whether all rows of this moment are done (any thread)."""
        asked = self._asked
        return lambda: self._proof > asked

    def ask(self) -> int:
        """The number of a new question."""
        self._asked += 1
        return self._asked

    def found(self, question: int) -> None:
        """Nothing was left when this was asked, and no batch was in flight."""
        self._proof = max(self._proof, question)

    def planned(self, txid: int, question: int, *, is_last: bool) -> None:
        """A batch was planned; ``is_last``: it is empty, and no row was left."""
        self._empty = (txid, question) if is_last else (0, 0)

    def committed(self, txid: int) -> None:
        """A batch was committed, and no other is in flight."""
        empty, question = self._empty
        if txid == empty:
            self.found(question)
