"""Where a store is: one absolute place, whatever folder a process works in.

Spark's planning process works in another folder than the user's, and the next start of
a job may be in a third one: a relative URL would be another store there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from kafka_tx.errors import ConfigError, harmless

STORES = "sqlite:///file, another SQLAlchemy URL, zookeeper://host:port/root"
"""URLs of stores that other processes find, for texts."""
DEFAULT = "a SQLite file: ~/.local/state/kafka_tx/kafka_tx.db"
"""The default in words, for tables and helps."""

_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^?]+)(.*)", re.DOTALL)
_ON_A_NODE = (
    ("CONTAINER_ID", "SPARK_YARN_STAGING_DIR"),
    ("KUBERNETES_SERVICE_HOST", "SPARK_DRIVER_BIND_ADDRESS"),
)
"""Variables that a driver has which YARN or Kubernetes runs on a node of theirs."""


class StoreKind(Enum):
    """The kinds of stores; the value is the URL's scheme."""

    MEMORY = "memory"
    GROUP = "kafka"
    ZOOKEEPER = "zookeeper"
    SQL = "a scheme of SQLAlchemy"


def kind_of(
    url: str, option: str = "tx.store", legal: str = f"memory:, {STORES}"
) -> StoreKind:
    """The kind of store that a URL names; raises ConfigError (it is no URL)."""
    scheme, colon, _ = url.partition(":")
    if not colon:
        advice = ""
        if "=" in url:
            advice = (
                "Write host=… user=… as postgresql+psycopg://user:password@host/db."
            )
        raise ConfigError.illegal(option, harmless(url), legal, advice)
    try:
        return StoreKind(scheme)
    except ValueError:
        return StoreKind.SQL


def is_file(url: str) -> bool:
    """Whether a URL names a SQLite file, which other machines do not find."""
    return url.startswith("sqlite")


def store_url(given: str | None, folder: str | Path | None = None) -> str:
    """The URL of a store, absolute (``folder``: this process's); the default for none.

    Raises: as ``default_store``.
    """
    url = (given or "").strip() or default_store()
    found = _SQLITE.fullmatch(url)
    if found is None or found[2].startswith(("/", "file:", ":memory:")):
        return url
    return f"{found[1]}{Path(folder or Path.cwd()) / found[2]}{found[3]}"


def default_store(environment: Mapping[str, str] | None = None) -> str:
    """A SQLite file among the states of the user's programs.

    Raises:
        ConfigError: The user has no home, or the driver runs on a node of a cluster,
            whose files the next start does not find.
    """
    variables = os.environ if environment is None else environment
    if any(all(name in variables for name in names) for names in _ON_A_NODE):
        raise no_default("this driver runs on a node of a cluster")
    home = Path(variables.get("XDG_STATE_HOME", ""))
    if not home.is_absolute():
        user = Path(variables.get("HOME", ""))
        if not user.is_absolute():
            raise no_default("this user has no home")
        home = user / ".local" / "state"
    return f"sqlite:///{home / 'kafka_tx' / 'kafka_tx.db'}"


def make_default_folder(url: str) -> None:
    """Make the folder of the default store; of no other one."""
    if url.endswith("/kafka_tx/kafka_tx.db") and url == default_store():
        file = Path(url.removeprefix("sqlite:///"))
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def no_default(why: str) -> ConfigError:
    """The error for a job that must say where its store is."""
    return ConfigError(
        f"option 'tx.store' is not set, and {why}: the default is a file of the user's,"
        " which the next start may not find. Nothing was written. Set tx.store to a"
        " place that every start finds: postgresql+psycopg://user:password@host/database"
        ", zookeeper://host:2181/root, or sqlite:////path/on/a/volume/that/stays.db",
        option="tx.store",
    )
