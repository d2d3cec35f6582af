"""A sink of files: each attempt writes a folder of its own, and publishes it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from kafka_tx.clock import SystemClock
from kafka_tx.errors import ConfigError, StateCorruptedError
from kafka_tx.logs import event_log
from kafka_tx.model import TransactionAttempt
from kafka_tx.protocols import Clock
from kafka_tx.running.transactional_sink import TransactionalSink
from kafka_tx.sinks import publications
from kafka_tx.sinks.publications import (
    HIGHEST,
    Form,
    Name,
    Publication,
    with_schemas,
)

logger = event_log(__name__)

_TRIES = 5


class Folder(Protocol):
    """A folder of published files, on any file system."""

    @property
    def path(self) -> str:
        """Where it is."""

    def names(self) -> Sequence[Name]:
        """The files of publications that are there now."""

    def lines(self, name: Name) -> list[str]:
        """All lines of a file, in any order; none if it is not whole yet.

        Raises:
            FileNotFoundError: It was removed since it was listed.
        """

    def put(self, name: Name, text: str) -> None:
        """Make a file of publications, which appears as a whole."""

    def write(
        self,
        rows: Any,  # noqa: ANN401
        name: Name,
        form: Form,
        options: dict[str, str],
    ) -> list[str]:
        """Write rows into the folder of an attempt; return the places of its files."""

    def schema(self, rows: Any) -> str:  # noqa: ANN401
        """Spark's schema of the rows, as JSON."""

    def strangers(self) -> Sequence[str]:
        """Files that are beside the published ones, some of them."""


@runtime_checkable
class CleanFolder(Folder, Protocol):
    """A folder from which files can be removed, so that publications are merged."""

    def remove(self, names: Sequence[Name]) -> None:
        """Remove files of publications."""

    def folders(self) -> Sequence[Name]:
        """The attempts' folders."""

    def remove_folders(self, folders: Sequence[Name]) -> None:
        """Remove attempts' folders with all that is in them."""


def read(folder: Folder, name: Name) -> list[Publication]:
    """The publications in a file; raises StateCorruptedError, FileNotFoundError."""
    what = f"the folder {folder.path}"
    lines = filter(str.strip, folder.lines(name))
    return with_schemas(Publication.of_line(line, what) for line in lines)


def published(
    folder: Folder, as_of: int | None = None
) -> tuple[list[Name], list[Publication]]:
    """The files of publications, and the publications up to ``as_of`` in them.

    Listed again if files were merged meanwhile.

    Raises:
        StateCorruptedError: A publication is missing, or cannot be read.
    """
    gone: int | None = None
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            names = sorted(folder.names())
            found = [p for name in names for p in read(folder, name)]
            upto = (p for p in found if as_of is None or p.attempt.txid <= as_of)
            gone = publications.missing(upto)
            if gone is None:
                return names, found
    if gone is None:
        raise FileNotFoundError(f"files of {folder.path} go away as they are read")
    raise StateCorruptedError(
        f"the folder {folder.path} lacks the publication of txid {gone}, which a later"
        " batch follows. Somebody has removed its file. Nothing was changed. Put the"
        " files in _kafka_tx/published back from a copy. Without a copy, read the"
        f" batches before it with as_of={gone - 1}; the files of its attempts are still"
        " in _kafka_tx/attempts",
        value=str(gone),
    )


def merge(folder: CleanFolder, names: Sequence[Name], level: int) -> None:
    """Put one file of publications in the place of several.

    Readers find each publication in the old files, in the new one, or in both. What
    is not whole yet stays.
    """
    found = {name: read(folder, name) for name in names}
    whole = [name for name in names if found[name]]
    text = publications.merged(p for name in whole for p in found[name])
    last = max(names)
    folder.put(name_of(last.txid, last.attempt_id, level), text)
    folder.remove(whole)


def name_of(txid: int, attempt_id: int, level: int = 0) -> Name:
    """A name that no other file has."""
    return Name(txid, attempt_id, level, secrets.token_hex(8))


class FileSink(TransactionalSink):
    """Writes batches as files, once (driver).

    ``options`` are all those of the writer. ``check_types`` refuses columns that the
    format does not hold; it is given the schema of the folder's last batch, if any.
    """

    apart = ("path", "give the second write a path of its own")

    def __init__(
        self,
        folder: Folder,
        form: Form,
        options: dict[str, str],
        *,
        clock: Clock | None = None,
        check_types: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self.name = self.location = folder.path
        self._check_types = check_types
        self._folder, self._form, self._options = folder, form, options
        self._clock = clock or SystemClock()
        self._names: Sequence[Name] = ()
        self._stored: Publication | None = None
        self._own: tuple[Name, TransactionAttempt] | None = None

    def read_attempt(self) -> TransactionAttempt | None:
        """As of ``TransactionalSink``."""
        known, self._names = self._names, self._folder.names()
        folder, own = self._folder, self._own
        if (
            own
            and isinstance(folder, CleanFolder)
            and self._is_another_there(*own, known)
        ):
            folder.remove([own[0]])
            self._own, self._names = None, folder.names()
            if not self._names:
                raise ConnectionError("another query began here at the same time")
        self._own = self._stored = None
        for name in sorted(self._names, reverse=True):
            found = read(self._folder, name)
            if found:
                self._stored = max(found, key=lambda each: each.order)
                break
        return None if self._stored is None else self._stored.attempt

    def _is_another_there(
        self, own: Name, attempt: TransactionAttempt, known: Sequence[Name]
    ) -> bool:
        """Whether another numbering has published since this sink read the folder.

        Its txids are others, and readers would take one of two batches. One steps back
        and is refused; if both do, they try again.
        """
        new = sorted({*self._names} - {*known, own})
        with suppress(FileNotFoundError):  # the other one has stepped back
            found = (p for name in new for p in read(self._folder, name))
            others = {p.attempt.numbering for p in found}
            return bool(attempt.numbering and others - {attempt.numbering, ""})
        return False

    def stage(self, rows: Any, attempt: TransactionAttempt) -> Publication:  # noqa: ANN401
        """Write the rows into a folder of this try's own."""
        self._check_form()
        name = name_of(attempt.txid, attempt.attempt_id)
        return Publication(
            attempt=attempt,
            folder=str(name),
            files=tuple(self._folder.write(rows, name, self._form, self._options)),
            form=self._form,
            schema=self._folder.schema(rows),
            at_ms=self._clock.now_ms(),
            follows=self._follows(attempt.txid),
        )

    def _follows(self, txid: int) -> int:
        stored = self._stored
        if stored is None:
            return 0
        is_again = stored.attempt.txid == txid
        return stored.follows if is_again else stored.attempt.txid

    def write(
        self,
        staged: Publication,
        attempt: TransactionAttempt,
        former: TransactionAttempt | None,  # noqa: ARG002
    ) -> None:
        """Publish; the greatest attempt counts, whoever comes last."""
        name = Name.of(staged.folder)
        assert name is not None
        self._own = name, attempt
        self._folder.put(name, staged.as_line())
        due = publications.to_merge([*self._names, name])
        if due and isinstance(self._folder, CleanFolder):
            merge(self._folder, due, due[0].level + 1)

    def _check_form(self) -> None:
        stored, given = self._stored, self._form
        self._check_types(stored.schema if stored else None)
        if stored is None:
            self._check_empty()
        elif stored.form != given:
            raise ConfigError(
                f"{self.name} has files of {stored.form}, and these would be of"
                f" {given}. read_files reads all of them alike. Nothing was written."
                " Give the new kind of files a path of its own, or keep the former one",
                option="format",
                value=given.format,
            )

    def _check_empty(self) -> None:
        others = self._folder.strangers()
        if others:
            raise ConfigError(
                f"{self.name} holds other files, such as {others[0]!r}. read_files"
                " does not read them, and spark.read reads only them. Nothing was"
                " written. Give append_files a path of its own",
                option="path",
                value=self.name,
            )


class OpaqueFileSink(FileSink):
    """A ``FileSink`` whose replays replace the files of earlier attempts."""

    takes_back = True


def clean(
    folder: CleanFolder, *, keep_ms: int | None, spare_ms: int, now_ms: int
) -> int:
    """Remove what no reader needs; return the number of removed folders.

    A kill between any two steps leaves a folder that reads the same.

    Args:
        folder: What is cleaned.
        keep_ms: Age of the publications that expire; None: none does.
        spare_ms: How long left-overs stay after a newer attempt was published.
        now_ms: The present Unix time.
    """
    there = folder.folders()  # first: what is published later is not touched
    names, found = published(folder)
    floor = None if keep_ms is None else publications.new_floor(found, now_ms - keep_ms)
    if floor is not None:
        folder.put(name_of(*floor.order[:2]), floor.as_line())
        names, found = published(folder)
    if len(names) > 2:  # the newest one stays
        merge(folder, names[:-1], HIGHEST)
    gone = {*publications.left_over(there, found, now_ms - spare_ms)}
    if floor is not None:
        gone |= {name for name in there if name.txid <= floor.attempt.txid}
    folder.remove_folders(sorted(gone))
    return len(gone)
