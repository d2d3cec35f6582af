"""Broker settings: small, quick to start, quick to notice that another one is gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SESSION_MS = 3000
"""A broker that is silent for so long loses its leaderships."""

PATIENT_MS = 300_000
STEADY = {
    "broker.session.timeout.ms": "60000",
    **{
        f"group.{kind}.{most}session.timeout.ms": str(PATIENT_MS)
        for kind in ("share", "streams")
        for most in ("", "max.")
    },
}
"""For a broker that nobody hurts: not fenced where the machine halts for seconds.

Nor are members of groups that tests hold without a heartbeat.
"""

PROTOCOL = "security.protocol"
LOGIN = "LOGIN"
"""Name of the listener whose clients must log in."""

PROXIED = "PROXIED"
"""Name of the listener whose clients come through a proxy."""

CLUSTER_ID = "a2Fma2FfdHgtaW50ZWdyYQ"


PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"


def common(brokers: int) -> dict[str, str]:
    """Settings that fit every kind of broker, in a cluster of ``brokers``.

    Internal topics are replicated to at most three brokers and writable while a single
    one of them lives.
    """
    replicas = str(min(brokers, 3))
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "2",
        "num.io.threads": "4",
        # retention and compaction within seconds, in a small heap
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        # failover within seconds
        "replica.lag.time.max.ms": str(SESSION_MS),
        "replica.socket.timeout.ms": str(SESSION_MS),
        "controller.socket.timeout.ms": str(SESSION_MS),
    }


def kraft(
    node: int, *, brokers: int, voters: Mapping[int, str], directory: str
) -> dict[str, str]:
    """Settings of one KRaft node, but for its listeners.

    ``voters`` maps every node of the controller quorum to ``host:port``. A node above
    ``brokers`` is a controller only.
    """
    replicas = str(min(brokers, 3))
    return {
        **common(brokers),
        "node.id": str(node),
        "process.roles": "broker,controller" if node <= brokers else "controller",
        "controller.quorum.voters": ",".join(f"{n}@{at}" for n, at in voters.items()),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": PROTOCOLS,
        "controller.quorum.fetch.timeout.ms": "1000",
        "controller.quorum.election.timeout.ms": "500",
        "controller.quorum.request.timeout.ms": "1000",
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": "1000",
        "metadata.max.idle.interval.ms": "0",  # an idle broker writes nothing
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "log.dirs": directory,
    }


def on_zookeeper(
    broker: int, *, brokers: int, connect: str, directory: str
) -> dict[str, str]:
    """Settings of one broker in ZooKeeper mode, but for its listeners."""
    return {
        **common(brokers),
        "broker.id": str(broker),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "log.dirs": directory,
    }


def login_listener(login: Mapping[str, str], protocols: str) -> dict[str, str]:
    """Settings of the listener ``LOGIN`` beside those with these ``protocols``."""
    own = {name: value for name, value in login.items() if name != PROTOCOL}
    return {
        "listener.security.protocol.map": f"{protocols},{LOGIN}:{login[PROTOCOL]}",
        **{f"listener.name.{LOGIN.lower()}.{n}": value for n, value in own.items()},
    }


def proxied(others: Iterable[str], address: str) -> dict[str, str]:
    """Settings of the listener ``PROXIED`` beside others: clients see ``address``."""
    return {
        "listener.security.protocol.map": f"{PROTOCOLS},{PROXIED}:PLAINTEXT",
        "advertised.listeners": ",".join([*others, f"{PROXIED}://{address}"]),
    }


def nodes_of_quorum(brokers: int) -> tuple[int, ...]:
    """Node ids of a cluster: an odd quorum that outlives any one of its brokers.

    One broker is its own controller. An even number of brokers gets one more node,
    which is a controller only.
    """
    more = 1 if brokers % 2 == 0 else 0
    return tuple(range(1, brokers + more + 1))


def as_properties(settings: Mapping[str, str]) -> str:
    """Write settings as a ``server.properties``."""
    return "".join(f"{name}={one_line(text)}\n" for name, text in settings.items())


def one_line(text: str) -> str:
    """How such a file keeps the lines of a value apart."""
    return text.replace("\n", "\\n")
