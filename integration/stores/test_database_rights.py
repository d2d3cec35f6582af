"""Users of databases with few rights: which are enough, and what is said without."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

from kafka_tx.cli.main import app
from kafka_tx.errors import StateError, StateUnavailableError
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.sql.maps import OpaqueMap, TransactionalMap
from kafka_tx.sql.offsets import SqlOffsetStore
from kafka_tx.sql.state_tables import STORE
from kafka_tx.sql.store import SqlStore
from kafka_tx.sql.tables import append_rows
from kafka_tx.transactions.ledger.ledger import Committed, Ledger
from tests.conformance.sink_suite import attempt

PAGE = Path(__file__).parents[2] / "docs/security.md"
P0 = TopicPartition("orders", 0)
MANY = pa.table({"key": [f"k{n:04}" for n in range(2_000)], "value": [1] * 2_000})
"""More keys than PostgreSQL takes in one statement."""


def grants(block: int, **names: str) -> list[str]:
    """The statements of one SQL block of the page, with these names."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = blocks[block]
    for name, value in names.items():
        text = re.sub(rf"\b{name}\b", value, text)
    return [each.strip() for each in text.split(";") if each.strip()]


@pytest.fixture
def database(postgresql, postgresql_server):
    """A database in which nobody may anything, and functions that change that."""
    return Guarded(postgresql_server, make_url(postgresql).database)


class Guarded:
    """Runs statements as superuser in one database, and makes users for it."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.users = {who: f"{who}_{name}" for who in ("writer", "other")}
        for user in self.users.values():
            server.execute(f"CREATE ROLE {user} LOGIN")
        self.run(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC")
        self.run("REVOKE ALL ON SCHEMA public FROM PUBLIC")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement, self.name)

    def allow(self, block: int, *, without: str = "nothing") -> None:
        """Run a block of the page, but for statements with these words in them."""
        wanted = grants(block, jobs=self.name, **self.users)
        self.run(*(each for each in wanted if without not in each))

    def url(self, who: str) -> str:
        made = make_url(self.server.url(self.name)).set(username=self.users[who])
        return made.render_as_string(hide_password=False)


def work(url: str, txid: int) -> None:
    """One batch into everything that kafka_tx keeps in a database."""
    with closing(SqlStore(url, "job")) as store:
        ledger = Ledger(store)
        ledger.adopt(ledger.acquire(), Committed(txid, {P0: txid}))
    with closing(SqlOffsetStore(url, "spout")) as offsets:
        offsets.acquire()
        offsets.store({P0: CommittedOffset(txid)})
    for kind, name in ((TransactionalMap, "counts"), (OpaqueMap, "opaque")):
        with closing(kind(url, name)) as counts:
            counts.update(attempt(txid), MANY)
            assert counts.get(["k0000"]) == {"k0000": txid}
    lines = pa.table({"line": [txid]})
    append_rows(url, "lines", attempt(txid), lines)
    append_rows(url, "opaque_lines", attempt(txid), lines, opaque=True)


def doctor(url: str) -> str:
    return CliRunner().invoke(app, ["doctor", "--store", url, "--json"]).stdout


@pytest.mark.all
def test_the_rights_of_the_page_are_enough(database):
    database.allow(0)
    work(database.url("writer"), 1)
    database.allow(1)
    work(database.url("other"), 2)
    work(database.url("writer"), 3)

    for who in ("writer", "other"):
        assert "can be written" in doctor(database.url(who))


@pytest.mark.all
def test_commands_that_only_read_need_select(database):
    database.allow(0)
    work(database.url("writer"), 1)
    other, name = database.users["other"], database.name
    database.run(
        f"GRANT CONNECT ON DATABASE {name} TO {other}",
        f"GRANT USAGE ON SCHEMA {name} TO {other}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {other}",
        f"ALTER ROLE {other} SET search_path = {name}",
    )

    for command in (["status"], ["history", "--id", "job"]):
        shown = CliRunner().invoke(app, [*command, "--store", database.url("other")])
        assert shown.exit_code == 0, shown.output
        assert "job" in shown.stdout


@contextmanager
def told(database: Guarded, who: str, txid: int = 2) -> Iterator[str]:
    """What a batch of this user is refused with; it works after the block."""
    with pytest.raises(StateError) as caught:
        work(database.url(who), txid)
    assert not caught.value.retryable
    yield str(caught.value)
    work(database.url(who), txid)


@pytest.mark.parametrize(
    ("missing", "reason", "advice"),
    [
        ("SELECT, INSERT", "permission denied for table", "GRANT SELECT, INSERT"),
        *(
            pytest.param(*each, marks=pytest.mark.all)
            for each in (
                (
                    *("GRANT USAGE", "no schema has been selected"),
                    "GRANT USAGE, CREATE ON SCHEMA",
                ),
                (
                    *("CONNECT", "permission denied for database"),
                    "GRANT CONNECT, TEMPORARY",
                ),
            )
        ),
    ],
)
def test_a_right_that_a_second_user_lacks_is_named(database, missing, reason, advice):
    database.allow(0)
    work(database.url("writer"), 1)
    database.allow(1, without=missing)

    with told(database, "other") as text:
        database.allow(1)

    assert reason in text
    assert advice in text
    assert database.users["other"] in text


def test_a_right_that_the_first_user_lacks_is_named(database):
    database.allow(0, without="GRANT USAGE")
    database.run(f"GRANT USAGE ON SCHEMA {database.name} TO {database.users['writer']}")

    with told(database, "writer", 1) as text:
        database.run(
            f"GRANT CREATE ON SCHEMA {database.name} TO {database.users['writer']}"
        )

    assert "permission denied for schema" in text
    assert "Do not change search_path instead" in text


@pytest.mark.all
def test_temporary_tables_are_named(database):
    database.allow(0)
    name, writer = database.name, database.users["writer"]
    database.run(f"REVOKE TEMPORARY ON DATABASE {name} FROM {writer}")

    with told(database, "writer", 1) as text:
        database.run(f"GRANT TEMPORARY ON DATABASE {name} TO {writer}")

    assert "permission denied to create temporary tables" in text
    assert f"TEMPORARY ON DATABASE {name} TO {writer}" in text


@pytest.mark.parametrize(
    ("change", "back", "reason"),
    [
        *(
            pytest.param(*each, marks=pytest.mark.all)
            for each in (
                (
                    "SET default_transaction_read_only = on",
                    "RESET default_transaction_read_only",
                    "default_transaction_read_only",
                ),
                ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1", "CONNECTION LIMIT"),
            )
        ),
        ("NOLOGIN", "LOGIN", "Check user and password"),
    ],
)
def test_what_somebody_has_switched_off_is_named(database, change, back, reason):
    database.allow(0)
    work(database.url("writer"), 1)
    writer = database.users["writer"]
    database.run(f"ALTER ROLE {writer} {change}")
    with closing(SqlStore(f"{database.url('writer')}?retry_for_ms=0", "job")) as store:
        with pytest.raises(StateError) as caught:
            store.acquire()
        database.run(f"ALTER ROLE {writer} {back}")
        store.acquire()

    assert reason in str(caught.value)


@pytest.mark.all
def test_a_statement_that_takes_too_long_is_named(database):
    database.allow(0)
    url = database.url("writer")
    work(url, 1)
    database.run(f"ALTER ROLE {database.users['writer']} SET statement_timeout = '1s'")
    holding = SqlStore(url, "job")
    waiting = SqlStore(f"{url}?retry_for_ms=0", "job")
    with closing(holding), closing(waiting):
        with holding._database.writing(STORE) as connection:
            assert holding._locked_epoch(connection)
            with pytest.raises(StateUnavailableError, match="statement_timeout = 0"):
                waiting.acquire()
        waiting.acquire()
