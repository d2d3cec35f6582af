"""The store and the id that a command is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from kafka_tx import assembly
from kafka_tx.config import DEFAULT_STORE, check_id
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.protocols import Store

StoreOption = Annotated[
    str,
    typer.Option("--store", help="URL of the store: the job's option tx.store."),
]
IdOption = Annotated[str, typer.Option("--id", help="The job's option tx.id.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Write. Without it the change is only shown.")
]
STORE = DEFAULT_STORE


def known_ids(url: str) -> list[str]:
    """Every id of a store.

    Raises:
        ConfigError: The URL cannot be used, or its password was left out.
        StateError: The store does not exist, cannot be reached, or refuses.
    """
    if ":***@" in url:
        raise ConfigError(
            f"the URL {url} has *** for its password, as messages show it; put the"
            " password back in",
            option="--store",
        )
    return assembly.stored_ids(url)


@contextmanager
def opened(url: str, id: str) -> Iterator[Store]:  # noqa: A002 - the word users know
    """The store of an id that exists; closed at the end.

    Raises:
        ConfigError: The URL or the id cannot be used.
        StateError: The store has no such id (names those it has), or cannot be read.
    """
    check_id(id, "--id")
    ids = known_ids(url)
    store = assembly.open_store(url, id)
    try:
        if id not in ids:
            listed = ", ".join(ids) or "none"
            raise StateError(
                f"the store {store.url} holds nothing of id '{id}'; ids it has:"
                f" {listed}",
                store=store.url,
                id=id,
            )
        yield store
    finally:
        store.close()
