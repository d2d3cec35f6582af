"""Whether a database may forget what it has committed: what its settings say."""

from __future__ import annotations

import sqlalchemy as sa

from kafka_tx.sql.database import Database

_SETTINGS = sa.text(
    "SELECT current_setting('synchronous_commit'),"
    " current_setting('synchronous_standby_names'),"
    " (SELECT count(*) FROM pg_stat_replication)"
)


def forgets(url: str) -> str:
    """Why commits may be lost by a crash or a failover; empty where nothing says so.

    PostgreSQL tells it to every user; of other databases nothing is known.

    Raises:
        ConfigError: The URL cannot be used.
        StateUnavailableError: The database does not answer.
        StateError: It refuses.
    """
    database = Database(url)
    try:
        if database.dialect != "postgresql":
            return ""
        with database.reading(sa.MetaData()) as connection:
            commit, names, standbys = connection.execute(_SETTINGS).one()
    finally:
        database.close()
    if commit == "off":
        return (
            "synchronous_commit is off: a crash loses the last commits. Set it to on"
            " for the store's user: ALTER ROLE … SET synchronous_commit = on"
        )
    if standbys and (not names or commit == "local"):
        return (
            f"{standbys} standby servers follow asynchronously: a failover to one of"
            " them loses the last commits. Set synchronous_standby_names, and"
            " synchronous_commit to on"
        )
    return ""
