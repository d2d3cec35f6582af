"""For commands that change a store: show the change, ask, and report it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from kafka_tx.errors import KafkaTxError

YesOption = Annotated[
    bool, typer.Option("--yes", help="Write without asking. Stop the job before.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the change; ask nothing, write nothing.")
]
NOTHING_WRITTEN = (
    "Nothing was written. To do it, stop the job and add --yes; a job that still runs"
    " is fenced."
)


class Change:
    """A planned change of one command: shown line by line, confirmed, then written.

    With ``as_json``, one JSON object is printed, when the command has ended.

    Attributes:
        is_written: Whether an error comes after the change; see ``told``.
    """

    is_written = False

    def __init__(
        self, *, yes: bool, dry_run: bool = False, as_json: bool = False
    ) -> None:
        if yes and dry_run:
            raise typer.BadParameter("--yes and --dry-run contradict each other")
        self._yes = yes
        self._dry_run = dry_run
        self._as_json = as_json
        self._lines: list[str] = []

    @property
    def may_write(self) -> bool:
        """Whether a person has agreed, or can be asked on a terminal."""
        is_asked = not self._as_json and _is_terminal()
        return not self._dry_run and (self._yes or is_asked)

    def tell(self, line: str) -> None:
        """Show one line of the change."""
        self._lines.append(line)
        if not self._as_json:
            typer.echo(line)

    def is_agreed(
        self,
        question: str = "Is the job stopped, and shall this be written?",
        nothing: str = NOTHING_WRITTEN,
    ) -> bool:
        """Whether to write; if not, prints that nothing was written."""
        if self.may_write and (self._yes or typer.confirm(question)):
            return True
        self.left(nothing)
        return False

    @contextmanager
    def told(self) -> Iterator[None]:
        """With ``as_json``, print the object also where an error ends the block."""
        try:
            yield
        except KafkaTxError as error:
            if self._as_json:
                self._end(str(error), written=self.is_written)
            raise

    def left(self, text: str) -> None:
        """Report that there is nothing to do."""
        self._end(text, written=False)

    def done(self, text: str) -> None:
        """Report that it was written; ``text`` names the next step."""
        self._end(text, written=True)

    def _end(self, text: str, *, written: bool) -> None:
        answer = {"changes": self._lines, "written": written, "message": text}
        typer.echo(json.dumps(answer) if self._as_json else text)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
