"""How a ZooKeeper's URL asks for TLS."""

import socket
import threading

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.zookeeper import session_settings
from kafka_tx.zookeeper.session_settings import Tls, ZooKeeperSettings

parse = ZooKeeperSettings.parse


@pytest.fixture
def pem(tmp_path):
    (tmp_path / "a.pem").touch()
    return tmp_path / "a.pem"


def test_plain_is_the_default_and_any_option_asks_for_tls(pem):
    assert parse("zookeeper://h1/a").tls is None
    assert parse("zookeeper://h1/a?tls=false").tls is None
    assert parse("zookeeper://h1/a?tls=true").tls == Tls()
    assert parse(f"zookeeper://h1/a?tls_ca={pem}").tls == Tls(ca=str(pem))


def test_a_clients_certificate_and_its_key_with_a_password_that_is_not_shown(pem):
    options = f"tls_certificate={pem}&tls_key={pem}&tls_key_password=s3%26cret"
    settings = parse(f"zookeeper://h1/a?{options}&tls_check_hostname=false")

    assert settings.tls is not None
    assert settings.tls.key_password == "s3&cret"
    assert not settings.tls.check_hostname
    assert "s3" not in repr(settings) + repr(settings.tls) + settings.url


@pytest.mark.parametrize(
    "options",
    [
        "tls=yes",
        "tls_check_hostname=1",
        "tls_ca=/no/such/file.pem",
        "tls_key=/no/such/key.pem&tls_key_password=s3cret",
        "tls=false&tls_key_password=s3cret",
        "tls_keystore=a.jks",
    ],
)
def test_what_cannot_be_used_is_refused_without_the_secret(options):
    with pytest.raises(ConfigError) as caught:
        parse(f"zookeeper://h1/a?{options}")

    assert "s3cret" not in str(caught.value)


def test_hosts_without_a_port_are_asked_at_zookeepers(replace_in):
    asked = []

    def refuse(address, _timeout_s):
        asked.append(address)
        raise OSError

    replace_in(session_settings, "socket", create_connection=refuse)

    assert Tls().refusal("h1,[fd00::1],[::1]:2200", 1) is None
    assert asked == [("h1", 2181), ("fd00::1", 2181), ("::1", 2200)]


def test_a_server_that_goes_away_in_the_handshake_refuses_nothing():
    """A port whose server starts, or a proxy that has none, accepts and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            connection, _ = server.accept()
            connection.recv(65_536)  # all of it: else the end is a reset
            connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        why = Tls().refusal(f"127.0.0.1:{server.getsockname()[1]}", 10)
        thread.join()

    assert why is None
