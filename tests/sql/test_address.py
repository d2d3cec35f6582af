"""No secret of a URL is ever shown."""

import pyarrow as pa
import pytest
from sqlalchemy.engine import make_url

from kafka_tx import assembly
from kafka_tx.errors import ConfigError, StateError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sql.database_failures import address, without_secrets
from kafka_tx.sql.maps import TransactionalMap
from kafka_tx.sql.store import SqlStore
from kafka_tx.sql.tables import append_rows

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://me:{SECRET}@db/x", "postgresql://me:***@db/x"),
        (
            f"postgresql://me@db/x?password={SECRET}",
            "postgresql://me@db/x?password=***",
        ),
        (
            f"postgresql://me@db/x?sslpassword={SECRET}&sslmode=require",
            "postgresql://me@db/x?sslmode=require&sslpassword=***",
        ),
        ("sqlite:////tmp/state.db", "sqlite:////tmp/state.db"),
    ],
)
def test_secrets_are_hidden_wherever_they_stand(url, shown):
    found = address(make_url(url))

    assert SECRET not in found
    assert sorted(found.replace("?", "&").split("&")) == sorted(
        shown.replace("?", "&").split("&")
    )


def test_texts_of_the_driver_are_cleaned():
    url = make_url(f"postgresql://me@db/x?password={SECRET}")

    assert without_secrets(f"bad password {SECRET}", url) == "bad password ***"


def test_an_unreachable_store_is_named_without_its_password_and_without_a_chain():
    url = f"postgresql+psycopg://me@127.0.0.1:1/x?password={SECRET}&connect_timeout=2"

    with pytest.raises(StateError) as refusal:
        SqlStore(url, "job").acquire()

    assert SECRET not in str(refusal.value)
    assert "127.0.0.1:1" in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


def test_a_scheme_that_sqlalchemy_no_longer_knows_is_named():
    with pytest.raises(ConfigError, match="write postgresql:// instead of") as refusal:
        SqlStore(f"postgres://me:{SECRET}@db/x", "job")

    assert SECRET not in str(refusal.value)
    assert "pip install" not in str(refusal.value)


FORMS = [
    f"host=db user=me password={SECRET}",
    f"host=db:5432 password={SECRET}",
    f"{SECRET}@db/jobs",
    f"postgresql+psycopg://me:{SECRET}@db/jobs",
    f"postgresql://me:{SECRET}@two@hosts/jobs",
    f"zookeeper:auth=digest:me:{SECRET}",
]


@pytest.mark.parametrize("text", FORMS)
def test_a_refused_text_is_shown_as_far_as_it_is_harmless(tmp_path, text):
    url = f"sqlite:///{tmp_path}/t.db"
    attempt, rows = TransactionAttempt(1, 1), pa.table({"key": ["a"], "value": [1]})
    for call in (
        lambda: TransactionalMap("counts", text),
        lambda: append_rows(url, text, attempt, rows),
        lambda: append_rows("counts", text, attempt, rows),
        lambda: assembly.open_store(url, text),
    ):
        with pytest.raises(ConfigError) as refused:
            call()
        shown = f"{refused.value} {refused.value.__dict__}"
        assert SECRET not in shown
    if "://" not in text:
        with pytest.raises(ConfigError) as refused:
            assembly.open_store(text, "job")
        assert SECRET not in f"{refused.value} {refused.value.__dict__}"


def test_a_harmless_text_is_shown():
    with pytest.raises(ConfigError, match="'my-counts'"):
        TransactionalMap("sqlite:////tmp/x.db", "my-counts")
    with pytest.raises(ConfigError, match="'jobs.db'"):
        assembly.open_store("jobs.db", "job")
