"""No secret of a URL is ever shown."""

import pytest
from sqlalchemy.engine import make_url

from kafka_tx.errors import StateError
from kafka_tx.sql.database_failures import address, without_secrets
from kafka_tx.sql.store import SqlStore

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
