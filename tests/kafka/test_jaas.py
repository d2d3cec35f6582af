"""``sasl.jaas.config`` becomes settings of librdkafka."""

from __future__ import annotations

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.client_settings import client_settings, jaas_settings, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}
SECRET = "open-sesame"
ALICE = f'{SCRAM} required username="a" password="{SECRET}"'


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="x y";', ("alice", "x y")),
        (f"{PLAIN} required username='alice' password='x';", ("alice", "x")),
        (f"{PLAIN} required username=alice password=x;", ("alice", "x")),
        (f'{PLAIN} required username = "alice"\n  password="x" ;\n', ("alice", "x")),
        (f'{PLAIN} required username="a\\"b" password="c\\\\d;=";', ('a"b', "c\\d;=")),
        (f'{PLAIN} required username="" password="";', ("", "")),
    ],
)
def test_an_entry_is_read_as_java_reads_it(text: str, options: tuple[str, str]) -> None:
    module, found = parse_jaas(text)

    assert module == PLAIN
    assert (found["username"], found["password"]) == options


def test_the_plain_module_gives_user_and_password_and_the_mechanism() -> None:
    text = f'{PLAIN} required username="alice" password="{SECRET}";'

    assert jaas_settings({"sasl.jaas.config": text}) == {
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRET,
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "scram-sha-512"])
def test_the_scram_module_takes_its_mechanism_from_the_option(mechanism: str) -> None:
    text = f'{SCRAM} required username="alice" password="{SECRET}";'

    found = jaas_settings({"sasl.jaas.config": text, "sasl.mechanism": mechanism})

    assert found["sasl.mechanisms"] == mechanism.upper()
    assert found["sasl.username"] == "alice"


def test_client_credentials_of_oauth_are_fetched_by_librdkafka() -> None:
    text = (
        f'{OAUTH} required clientId="me" clientSecret="{SECRET}" scope="read"'
        ' extension_logicalCluster="lkc-1" extension_pool="p";'
    )

    assert jaas_settings({**ENDPOINT, "sasl.jaas.config": text}) == {
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "read",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,pool=p",
    }


def test_unsecured_tokens_of_oauth_are_made_by_librdkafka() -> None:
    text = f'{OAUTH} required unsecuredLoginStringClaim_sub="alice";'

    found = jaas_settings({"sasl.jaas.config": text})

    assert found["enable.sasl.oauthbearer.unsecure.jwt"] == "true"
    assert found["sasl.oauthbearer.config"] == "principal=alice"


def test_a_keytab_logs_in_with_kerberos() -> None:
    text = (
        f"{KERBEROS} required useKeyTab=true storeKey=true"
        ' keyTab="/etc/me.keytab" principal="me@EXAMPLE" serviceName="kafka";'
    )

    assert jaas_settings({"sasl.jaas.config": text}) == {
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.keytab": "/etc/me.keytab",
        "sasl.kerberos.principal": "me@EXAMPLE",
        "sasl.kerberos.service.name": "kafka",
    }


def test_a_ticket_cache_is_not_renewed() -> None:
    text = f"{KERBEROS} required useTicketCache=true;"

    found = jaas_settings({"sasl.jaas.config": text})

    assert found["sasl.kerberos.min.time.before.relogin"] == "0"


def test_a_keytab_beside_a_ticket_cache_is_used() -> None:
    both = "useKeyTab=true useTicketCache=true keyTab='/k' principal='p@R'"

    found = jaas_settings({"sasl.jaas.config": f"{KERBEROS} required {both};"})
    unused = both.replace("useKeyTab=true", "useKeyTab=false")
    cached = jaas_settings({"sasl.jaas.config": f"{KERBEROS} required {unused};"})

    assert found["sasl.kerberos.keytab"] == "/k"
    assert "sasl.kerberos.min.time.before.relogin" not in found
    assert cached["sasl.kerberos.min.time.before.relogin"] == "0"


def test_kafka_s_own_login_callback_handler_means_oidc() -> None:
    handler = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    )

    found = jaas_settings({"sasl.login.callback.handler.class": handler})

    assert found == {"sasl.oauthbearer.method": "oidc"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sasl.jaas.config": ""}, "must have a module, a flag and end with ';'"),
        ({"sasl.jaas.config": f"{PLAIN} required"}, "end with ';'"),
        (
            {"sasl.jaas.config": f"{PLAIN} required username={SECRET} password;"},
            "every option must read",
        ),
        (
            {"sasl.jaas.config": f'{PLAIN} required username="a" password="{SECRET};'},
            "a quote is not closed",
        ),
        (
            {"sasl.jaas.config": f'{PLAIN} required password="{SECRET}";'},
            "the option username is missing",
        ),
        (
            {"sasl.jaas.config": f'com.example.Mine required password="{SECRET}";'},
            "the login module 'com.example.Mine' is not known",
        ),
        (
            {
                "sasl.jaas.config": f"{ALICE};",
                "sasl.mechanism": "PLAIN",
            },
            "SCRAM-SHA-256 or SCRAM-SHA-512 with ScramLoginModule",
        ),
        (
            {
                "sasl.jaas.config": f'{ALICE} tokenauth="true";',
                "sasl.mechanism": "SCRAM-SHA-256",
            },
            "delegation tokens",
        ),
        (
            {"sasl.jaas.config": f'{OAUTH} required clientSecret="{SECRET}";'},
            "kafka.sasl.oauthbearer.token.endpoint.url",
        ),
        (
            {"sasl.jaas.config": f'{KERBEROS} required keyTab="{SECRET}";'},
            "needs keyTab and principal",
        ),
        (
            {"sasl.login.callback.handler.class": "com.example.Mine"},
            "A Java class cannot be loaded here",
        ),
        *(
            (
                {
                    "sasl.login.callback.handler.class": handler,
                    "sasl.oauthbearer.token.endpoint.url": "https://tokens",
                },
                "'kafka.sasl.oauthbearer.token.provider' for a function",
            )
            for handler in (
                "com.example.MineOAuthBearerLoginCallbackHandler",
                "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
            )
        ),
    ],
)
def test_what_cannot_be_used_is_told_without_the_secret(
    options: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        jaas_settings(options)

    assert says in str(caught.value)
    assert SECRET not in f"{caught.value} {caught.value.fields}"


def test_jaas_reaches_the_settings_of_a_client() -> None:
    options = {
        "bootstrap.servers": "one:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "SASL.JAAS.CONFIG": f'{SCRAM} required username="a" password="{SECRET}";',
    }

    settings = client_settings(options, purpose="admin")

    assert settings["sasl.password"] == SECRET
    assert settings["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert "sasl.jaas.config" not in settings
    assert SECRET not in repr(settings)
