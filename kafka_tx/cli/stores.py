"""A command's store and id."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kafka_tx import assembly
from kafka_tx.config import check_id
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.protocols import Store
from kafka_tx.store_place import DEFAULT, store_url
from kafka_tx.transactions.layout import records


def text_or_file(value: str) -> str:
    """The text, or that of the file that ``@path`` names, without blanks around it.

    Raises:
        ConfigError: The file cannot be read.
    """
    text = file_text(value[1:]) if value.startswith("@") else value
    return text.strip()


def file_text(path: str | Path) -> str:
    """The whole text of a file; raises ConfigError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'@{path}' cannot be read: {error}") from None


def url_or_file(value: str) -> str:
    """The URL of a store, or that in the file which ``@path`` names; absolute.

    Raises:
        ConfigError: The file cannot be read, or nothing was given and there is no
            default.
    """
    return store_url(text_or_file(value))


StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="KAFKA_TX_STORE",
        help=f"URL of the store, as the job's option tx.store. Default: {DEFAULT}."
        " @FILE reads the URL from a file and keeps passwords out of the list of"
        " processes.",
        show_default=False,
    ),
]
IdOption = Annotated[str, typer.Option("--id", help="The job's option tx.id.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
_NEAREST = 3
STORE = ""
"""Not given: the default of jobs."""


def checked(url: str) -> str:
    """The URL that a person gave, with a password.

    Raises:
        ConfigError: The URL cannot be used, or its password was left out.
    """
    url = url_or_file(url)
    if "***" in url:
        raise ConfigError(
            f"the URL {url} has *** for a password, as messages show it; put the"
            " password back in",
            option="--store",
        )
    return url


@contextmanager
def opened(url: str, id: str) -> Iterator[Store]:  # noqa: A002 - the word users know
    """The store of an id that exists; closed at the end.

    Raises:
        ConfigError: The URL or the id cannot be used.
        StateError: The store has no such id (names those it has), or cannot be read.
        FormatError: Another version has written a record of the id.
    """
    check_id(id, "--id")
    ids = assembly.stored_ids(checked(url))
    with opened_unasked(url, id) as store:
        if id not in ids:
            raise unknown_id(store.url, id, ids)
        records.check_formats(store.read(), store.url, id)
        yield store


def unknown_id(
    url: str,
    id: str,  # noqa: A002 - as above
    ids: Collection[str],
) -> StateError:
    """The error for an unknown id; names the nearest known one."""
    nearest = ", ".join(difflib.get_close_matches(id, ids, _NEAREST, 0)) or "none"
    if len(ids) > _NEAREST:
        nearest += f" and {len(ids) - _NEAREST} others, which `kafka-tx status` shows"
    return StateError(
        f"the store {url} holds nothing of id '{id}'; ids it has: {nearest}",
        store=url,
        id=id,
    )


@contextmanager
def opened_unasked(url: str, id: str) -> Iterator[Store]:  # noqa: A002 - as above
    """The store of an id, which need not exist yet; closed at the end."""
    with closing(assembly.open_store(url_or_file(url), id)) as store:
        yield store
