import pytest
from sqlalchemy.engine import make_url

from kafka_tx.errors import ConfigError
from kafka_tx.sql.database import Database, Waits
from kafka_tx.sql.maps import TransactionalMap
from kafka_tx.sql.postgresql import CONNECT_ARGUMENTS, _watched

URL = "postgresql+psycopg://me@db.example/orders"


def test_a_url_without_parameters_has_the_defaults():
    assert Waits.taken_from(make_url(URL), "tx.store") == (make_url(URL), Waits())
    assert Waits().retry_for_ms == 120_000


def test_a_silent_connection_is_given_up_within_30_seconds():
    """It falls silent, the server cannot be asked, and a new one is not to be had."""
    connect_s = CONNECT_ARGUMENTS["connect_timeout"]
    assert Waits().silence_ms / 1000 + 2 * connect_s < 30
    keepalives_s = CONNECT_ARGUMENTS["keepalives_idle"] + (
        CONNECT_ARGUMENTS["keepalives_interval"] * CONNECT_ARGUMENTS["keepalives_count"]
    )
    assert keepalives_s < 30
    assert CONNECT_ARGUMENTS["tcp_user_timeout"] < 30_000


def test_parameters_of_ours_win_and_do_not_reach_the_driver():
    given = make_url(f"{URL}?retry_for_ms=5&silence_ms=0&sslmode=require")

    url, waits = Waits.taken_from(given, "tx.store")

    assert waits == Waits(retry_for_ms=5, silence_ms=0)
    assert dict(url.query) == {"sslmode": "require"}
    database = Database(f"{URL}?retry_for_ms=5")
    assert database.retry_policy.limit_ms == 5
    assert "retry_for_ms" not in database.url


@pytest.mark.parametrize("text", ["soon", "-1", "1.5"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ConfigError, match="retry_for_ms"):
        TransactionalMap(f"sqlite:///file.db?retry_for_ms={text}", "counts")


def waiting(answers):
    """As one of psycopg's generators: it waits until something is ready."""
    seen: list[int] = []
    while len(seen) < answers:
        if ready := (yield "read"):
            seen.append(ready)
    return seen


def test_a_watched_wait_is_the_wait(monkeypatch):
    watched = _watched(waiting(2), 1e9, lambda _: pytest.fail("it was not silent"))

    assert next(watched) == "read"
    for ready in (0, 1, 0):
        assert watched.send(ready) == "read"
    with pytest.raises(StopIteration) as end:
        watched.send(2)
    assert end.value.value == [1, 2]


def test_silence_is_noticed_and_may_go_on():
    asked: list[int] = []
    watched = _watched(waiting(1), -1.0, asked.append)

    next(watched)
    watched.send(0)
    watched.send(0)
    with pytest.raises(StopIteration):
        watched.send(1)
    assert asked == [1, 2]
