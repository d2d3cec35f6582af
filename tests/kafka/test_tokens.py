"""Tokens from a function of the user's."""

from __future__ import annotations

import sys
import time
from types import ModuleType

import pytest

from kafka_tx.errors import AuthenticationError, ConfigError
from kafka_tx.kafka import tokens
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.tokens import token_of
from kafka_tx.native import refusal


@pytest.fixture
def provider(monkeypatch):
    """Makes a provider of a function; gives its name."""
    monkeypatch.setattr(tokens, "_tokens", {})

    def make(function):
        module = ModuleType("token_maker")
        module.make = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "token_maker", module)
        return "token_maker:make"

    return make


def test_a_token_is_made_once_until_it_is_nearly_over(provider, replace_in):
    now = [time.time()]
    replace_in(tokens, "time", time=lambda: now[0])
    made = []

    def make():
        made.append(now[0])
        return f"t{len(made)}", now[0] + 100

    name = provider(make)

    assert [token_of(name)[0] for _ in range(3)] == ["t1"] * 3
    now[0] += 79
    assert token_of(name)[0] == "t1"
    now[0] += 2
    assert token_of(name)[0] == "t2"


def test_a_token_serves_on_while_no_new_one_is_to_be_had(provider, replace_in, caplog):
    now = [time.time()]
    is_away: list[bool] = []
    replace_in(tokens, "time", time=lambda: now[0])

    def make():
        if is_away:
            raise RuntimeError("issuer away")
        return "t", now[0] + 100

    name = provider(make)
    token_of(name)
    is_away.append(True)
    now[0] += 89
    assert token_of(name)[0] == "t"
    assert "issuer away" in caplog.text
    now[0] += 2
    with pytest.raises(AuthenticationError, match="issuer away"):
        token_of(name)


@pytest.mark.parametrize(
    "answer", [None, "token", ("t",), ("t", "soon"), (b"t", 1), ("t", 1.7e12)]
)
def test_another_answer_is_refused(provider, answer):
    with pytest.raises(ConfigError, match="seconds since 1970"):
        token_of(provider(lambda: answer))


def test_a_function_that_fails_and_an_old_token_are_named(provider):
    def fail():
        raise RuntimeError("no credentials")

    with pytest.raises(AuthenticationError, match=r"token_maker:make.*no credentials"):
        token_of(provider(fail))
    with pytest.raises(AuthenticationError, match="expired already"):
        token_of(provider(lambda: ("t", 5)))


@pytest.mark.parametrize("name", ["json", "json:nothing", "no_such:x", "json:__name__"])
def test_what_is_no_function_is_refused(name):
    with pytest.raises(ConfigError, match=r"package\.module:function"):
        token_of(name)


def test_the_option_serves_every_kind_of_client():
    given = {"bootstrap.servers": "b:1", "sasl.oauthbearer.token.provider": "m:f"}
    for purpose in ("consumer", "admin", "producer"):
        made = client_settings(given, purpose=purpose)
        assert made["sasl.mechanisms"] == "OAUTHBEARER"
        assert "function in Python" in str(refusal(made))


def test_amazons_own_mechanism_names_the_option():
    given = {"bootstrap.servers": "b:1", "sasl.mechanism": "AWS_MSK_IAM"}
    with pytest.raises(ConfigError, match=r"token\.provider"):
        client_settings(given, purpose="consumer")
