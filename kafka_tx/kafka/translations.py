"""The names of Kafka's Java client and what they become for librdkafka.

One table; ``markdown()`` prints it for the documentation. Stores of certificates
(``ssl.keystore.*``, ``ssl.truststore.*``) and ``sasl.jaas.config`` need more than a
change of name and are handled in ``tls`` and ``jaas``; the table names them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.refusals import REFUSED, REFUSED_SOMEWHERE, Purpose


@dataclass(frozen=True, slots=True)
class Translation:
    """One Java name.

    Attributes:
        java: The name users write after ``kafka.``.
        librdkafka: The names it sets; empty where it has no effect here.
        note: What differs or why there is no effect.
        convert: From Java's value to librdkafka's.
        purposes: The kinds of client it is translated for; the others follow the name
            as librdkafka knows it.
    """

    java: str
    librdkafka: tuple[str, ...] = ()
    note: str = ""
    convert: Callable[[str], str] | None = None
    purposes: frozenset[Purpose] = frozenset({"consumer", "admin", "producer"})

    def apply(self, value: str) -> dict[str, str]:
        """The settings that ``value`` of this name becomes."""
        text = self.convert(value) if self.convert else value
        return dict.fromkeys(self.librdkafka, text)


# --- values -------------------------------------------------------------------------


def _buffer_bytes(value: str) -> str:
    """Java's -1 (leave it to the system) is librdkafka's 0."""
    return "0" if value.strip() == "-1" else value


def _bytes_to_kbytes(value: str) -> str:
    if not value.strip().isdigit():
        raise ConfigError.illegal("kafka.buffer.memory", value, "a number of bytes")
    return str(max(1, int(value) // 1024))


def _endpoint_check(value: str) -> str:
    return value.strip().lower() or "none"


def _cipher_suites(value: str) -> str:
    if "_WITH_" in value:
        raise ConfigError.illegal(
            "kafka.ssl.cipher.suites",
            value,
            "OpenSSL's cipher names, separated by colons",
            "Java's names are not understood; `openssl ciphers -stdname` lists both.",
        )
    return value


def _kinit(value: str) -> str:
    """Java gives a path, librdkafka wants the whole command."""
    command = value.strip()
    if not command or " " in command:
        return command
    keytab, principal = "%{sasl.kerberos.keytab}", "%{sasl.kerberos.principal}"
    login = f'-t "{keytab}" -k {principal}'
    return f"{command} -R {login} || {command} {login}"


_PARTITIONERS = {
    "defaultpartitioner": "murmur2_random",
    "uniformstickypartitioner": "random",
    "roundrobinpartitioner": "random",
}


def _partitioner(value: str) -> str:
    try:
        return _PARTITIONERS[value.rsplit(".", 1)[-1].strip().lower()]
    except KeyError:
        raise ConfigError.illegal(
            "kafka.partitioner.class",
            value,
            "DefaultPartitioner, UniformStickyPartitioner or RoundRobinPartitioner",
            "A Java class cannot be loaded here; write the column 'partition' instead.",
        ) from None


def _partitioner_ignores_keys(value: str) -> str:
    return "random" if value.strip().lower() == "true" else "murmur2_random"


# --- the table ----------------------------------------------------------------------

_READERS: frozenset[Purpose] = frozenset({"consumer", "admin"})
_PRODUCERS: frozenset[Purpose] = frozenset({"producer"})
_JVM = "belongs to the Java virtual machine"
_BROKER_ONLY = "read by the broker only"
_NO_MEMBER = "partitions are assigned, no group is joined"

TABLE: tuple[Translation, ...] = (
    # fetching
    Translation("fetch.max.wait.ms", ("fetch.wait.max.ms",)),
    Translation("max.partition.fetch.bytes", ("fetch.message.max.bytes",)),
    Translation("max.poll.records", note="batches are bounded by bytes"),
    Translation("max.poll.interval.ms", note=_NO_MEMBER),
    Translation(
        "receive.buffer.bytes", ("socket.receive.buffer.bytes",), "", _buffer_bytes
    ),
    Translation("send.buffer.bytes", ("socket.send.buffer.bytes",), "", _buffer_bytes),
    # requests and metadata
    Translation(
        "request.timeout.ms",
        ("socket.timeout.ms",),
        "librdkafka uses the name `request.timeout.ms` for something else",
        purposes=_READERS,
    ),
    Translation(
        "request.timeout.ms",
        ("socket.timeout.ms", "request.timeout.ms"),
        purposes=_PRODUCERS,
    ),
    Translation(
        "default.api.timeout.ms", note="use the option `kafkaConsumer.pollTimeoutMs`"
    ),
    Translation("metadata.max.age.ms", ("topic.metadata.refresh.interval.ms",)),
    Translation("socket.connection.setup.timeout.max.ms", note="does not grow here"),
    # groups
    Translation("session.timeout.ms", note=_NO_MEMBER),
    Translation("heartbeat.interval.ms", note=_NO_MEMBER),
    Translation("partition.assignment.strategy", note=_NO_MEMBER),
    Translation("group.protocol", note=_NO_MEMBER),
    Translation("group.remote.assignor", note=_NO_MEMBER),
    Translation("group.instance.id", note=_NO_MEMBER),
    Translation("auto.commit.interval.ms", note="offsets are never stored by itself"),
    Translation(
        "exclude.internal.topics", note="a pattern never matches internal ones"
    ),
    # metrics
    Translation("metric.reporters", note=_JVM),
    Translation("metrics.num.samples", note=_JVM),
    Translation("metrics.recording.level", note=_JVM),
    Translation("metrics.sample.window.ms", note=_JVM),
    Translation("auto.include.jmx.reporter", note=_JVM),
    Translation("config.providers", note=_JVM),
    # TLS
    Translation(
        "ssl.endpoint.identification.algorithm",
        ("ssl.endpoint.identification.algorithm",),
        "an empty value becomes `none`",
        _endpoint_check,
    ),
    Translation(
        "ssl.cipher.suites", ("ssl.cipher.suites",), "OpenSSL's names", _cipher_suites
    ),
    Translation("ssl.protocol", note="the newest version both sides know is used"),
    Translation("ssl.enabled.protocols", note="TLS 1.2 and 1.3"),
    Translation("ssl.provider", note=_JVM),
    Translation("ssl.keymanager.algorithm", note=_JVM),
    Translation("ssl.trustmanager.algorithm", note=_JVM),
    Translation("ssl.secure.random.implementation", note=_JVM),
    Translation("security.providers", note=_JVM),
    # SASL
    Translation("sasl.mechanism", ("sasl.mechanisms",)),
    Translation(
        "sasl.kerberos.kinit.cmd",
        ("sasl.kerberos.kinit.cmd",),
        "a bare path becomes the command that logs in with the keytab",
        _kinit,
    ),
    Translation("sasl.kerberos.ticket.renew.window.factor", note="renewed in time"),
    Translation("sasl.kerberos.ticket.renew.jitter", note="renewed in time"),
    Translation("sasl.login.refresh.window.factor", note="renewed in time"),
    Translation("sasl.login.refresh.window.jitter", note="renewed in time"),
    Translation("sasl.login.refresh.min.period.seconds", note="renewed in time"),
    Translation("sasl.login.refresh.buffer.seconds", note="renewed in time"),
    Translation("sasl.login.connect.timeout.ms", note="fixed in librdkafka"),
    Translation("sasl.login.read.timeout.ms", note="fixed in librdkafka"),
    Translation("sasl.login.retry.backoff.ms", note="fixed in librdkafka"),
    Translation("sasl.login.retry.backoff.max.ms", note="fixed in librdkafka"),
    Translation("sasl.oauthbearer.header.urlencode", note="fixed in librdkafka"),
    Translation("sasl.oauthbearer.scope.claim.name", note=_BROKER_ONLY),
    Translation("sasl.oauthbearer.jwks.endpoint.url", note=_BROKER_ONLY),
    Translation("sasl.oauthbearer.expected.audience", note=_BROKER_ONLY),
    Translation("sasl.oauthbearer.expected.issuer", note=_BROKER_ONLY),
    Translation("sasl.oauthbearer.clock.skew.seconds", note=_BROKER_ONLY),
    *(
        Translation(f"sasl.oauthbearer.jwks.endpoint.{name}", note=_BROKER_ONLY)
        for name in ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
    ),
    Translation(
        "sasl.oauthbearer.assertion.template.file",
        ("sasl.oauthbearer.assertion.jwt.template.file",),
    ),
    # share groups
    Translation("share.acknowledgement.mode", note=_NO_MEMBER),
    Translation("share.acquire.mode", note=_NO_MEMBER),
    # Kafka's own tests
    Translation("internal.leave.group.on.close", note=_NO_MEMBER),
    Translation(
        "internal.throw.on.fetch.stable.offset.unsupported", note="always an error"
    ),
    # producing
    Translation(
        "buffer.memory", ("queue.buffering.max.kbytes",), "in KiB", _bytes_to_kbytes
    ),
    Translation("max.request.size", ("message.max.bytes",), purposes=_PRODUCERS),
    Translation("max.block.ms", note="a full buffer waits until the write times out"),
    Translation("compression.gzip.level", ("compression.level",)),
    Translation("compression.lz4.level", ("compression.level",)),
    Translation("compression.zstd.level", ("compression.level",)),
    Translation("partitioner.class", ("partitioner",), "Kafka's own", _partitioner),
    Translation(
        "partitioner.ignore.keys", ("partitioner",), "", _partitioner_ignores_keys
    ),
    Translation("partitioner.adaptive.partitioning.enable", note="always sticky"),
    Translation("partitioner.availability.timeout.ms", note="always sticky"),
    Translation("metadata.max.idle.ms", note="fixed in librdkafka"),
    Translation(
        "transaction.two.phase.commit.enable", note="not offered by librdkafka"
    ),
)

IN_TLS = {
    "ssl.truststore.location": "`ssl.ca.location` (PEM)",
    "ssl.truststore.certificates": "`ssl.ca.pem`",
    "ssl.truststore.type": "PEM; others are refused with the command that converts",
    "ssl.truststore.password": "no effect, PEM has none",
    "ssl.keystore.location": "`ssl.keystore.location` (PKCS12) or"
    " `ssl.certificate.location` and `ssl.key.location` (PEM)",
    "ssl.keystore.type": "PEM or PKCS12; JKS is refused with the command that converts",
    "ssl.keystore.key": "`ssl.key.pem`",
    "ssl.keystore.certificate.chain": "`ssl.certificate.pem`",
}
"""Names handled in ``tls``: what they become."""

IN_JAAS = {
    "sasl.jaas.config": "`sasl.username`, `sasl.password`, `sasl.oauthbearer.*` or"
    " `sasl.kerberos.*`",
    "sasl.login.callback.handler.class": "`sasl.oauthbearer.method=oidc` for Kafka's"
    " own OAuthBearerLoginCallbackHandler; others are refused",
}
"""Names handled in ``jaas``: what they become."""


# --- looking up --------------------------------------------------------------------


def find(name: str, purpose: Purpose) -> Translation | None:
    """The row for a Java name, or None where librdkafka's own meaning holds."""
    return _BY_NAME.get((name, purpose))


_BY_NAME = {
    (row.java, purpose): row for row in TABLE for purpose in sorted(row.purposes)
}


def known_names() -> set[str]:
    """Every Java name this module can say something about."""
    return (
        {row.java for row in TABLE}
        | set(IN_TLS)
        | set(IN_JAAS)
        | set(REFUSED)
        | REFUSED_SOMEWHERE
    )


def markdown() -> str:
    """The table as the documentation shows it, sorted by name."""
    rows: dict[str, str] = {**IN_TLS, **IN_JAAS}
    for row in TABLE:
        target = ", ".join(f"`{name}`" for name in row.librdkafka) or "no effect"
        note = f"; {row.note}" if row.note else ""
        only = f" ({'/'.join(sorted(row.purposes))})" if len(row.purposes) < 3 else ""
        text = f"{target}{only}{note}"
        rows[row.java] = f"{rows[row.java]} · {text}" if row.java in rows else text
    for name in {*REFUSED, *REFUSED_SOMEWHERE}:
        rows[name] = "refused"
    lines = [f"| `kafka.{name}` | {text} |" for name, text in sorted(rows.items())]
    return "\n".join(["| Java client | here |", "| --- | --- |", *lines])
