"""A ZooKeeper that speaks TLS only to those it knows, with nodes that have an owner."""

import gc
import traceback

import pytest
import trustme

from integration.cluster.pem import as_pkcs8
from integration.cluster.processes.zookeeper import ProcessZooKeeper
from integration.cluster.running import running
from kafka_tx import assembly
from kafka_tx.errors import StateError
from kafka_tx.zookeeper.brokers import ZooKeeperTopics


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    """PEM files of the server, a client, and the authorities, the wrong one too."""
    place = tmp_path_factory.mktemp("pem")
    authority.cert_pem.write_to_path(str(place / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(place / "other-ca.pem"))
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        chain = "".join(pem.bytes().decode() for pem in issued.cert_chain_pems)
        key = as_pkcs8(issued.private_key_pem.bytes())
        (place / f"{name}.pem").write_text(key + chain)
    return place


@pytest.fixture(scope="module")
def secured(files):
    server = ProcessZooKeeper(
        {
            "ssl.keyStore.location": str(files / "server.pem"),
            "ssl.trustStore.location": str(files / "ca.pem"),
            "ssl.hostnameVerification": "false",  # of clients; ours verify the server
        }
    )
    with running(server):
        yield server


def url(secured, files, ca="ca.pem", certificate=True, **more):
    options = {"tls": "true", "tls_ca": files / ca, "connection_timeout_ms": 8000}
    if certificate:
        both = files / "client.pem"
        options |= {"tls_certificate": both, "tls_key": both}
    query = "&".join(f"{name}={value}" for name, value in (options | more).items())
    return f"zookeeper://{secured.secure_hosts}/secured?{query}"


def test_a_store_is_kept_over_tls_and_its_nodes_belong_to_the_user(secured, files):
    owner = assembly.open_store(url(secured, files, auth="digest:me:s3cret"), "orders")
    other = assembly.open_store(url(secured, files, auth="digest:me:wrong"), "orders")
    plain = assembly.open_store(f"zookeeper://{secured.hosts}/secured", "orders")
    try:
        owner.write(owner.acquire(), {"a": "1"})

        assert owner.read() == {"a": "1"}
        for stranger in (other, plain):
            with pytest.raises(StateError, match="refuses access") as caught:
                stranger.read()
            assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    finally:
        for store in (owner, other, plain):
            store.close()


@pytest.mark.filterwarnings(  # kazoo leaves sockets of failed handshakes to collect
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:unclosed <ssl.SSLSocket:ResourceWarning",
)
@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"ca": "other-ca.pem"}, "CERTIFICATE_VERIFY_FAILED"),
        ({"certificate": False}, ""),
    ],
)
def test_what_tls_refuses_is_named_and_no_time_out(secured, files, wrong, word):
    store = assembly.open_store(url(secured, files, retry_for_ms=0, **wrong), "orders")

    with pytest.raises(StateError, match=r"refuses the TLS connection") as caught:
        store.acquire()

    assert word in str(caught.value)
    assert secured.secure_hosts in str(caught.value)
    store.close()
    gc.collect()


def test_brokers_are_looked_up_over_tls(secured, files):
    topics = ZooKeeperTopics(url(secured, files).replace("/secured", ""))

    assert topics._client.children(["/"]) == {"/": ["secured", "zookeeper"]}
    topics.close()
