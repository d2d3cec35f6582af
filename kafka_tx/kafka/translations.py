"""The names and values of Kafka's Java client and what they become for librdkafka.

Stores of certificates (``ssl.keystore.*``, ``ssl.truststore.*``) and
``sasl.jaas.config`` need more than a change of name: ``client_settings`` translates
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kafka_tx.errors import ConfigError
from kafka_tx.kafka.librdkafka_names import words
from kafka_tx.logs import event_log

_log = event_log(__name__)
_said: set[tuple[str, str]] = set()

_INT = 2_147_483_647
_BACKOFF = (1, 300_000)
BOUNDS: dict[str, tuple[int, int]] = {
    "connections.max.idle.ms": (0, _INT),
    "fetch.max.bytes": (1_000, _INT - 512),
    "fetch.message.max.bytes": (1, 1_000_000_000),
    "fetch.min.bytes": (1, 100_000_000),
    "fetch.wait.max.ms": (0, 300_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "metadata.recovery.rebootstrap.trigger.ms": (0, _INT),
    "receive.message.max.bytes": (1_000, _INT),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "retry.backoff.max.ms": _BACKOFF,
    "retry.backoff.ms": _BACKOFF,
    "socket.connection.setup.timeout.ms": (1_000, _INT),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.send.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (10, 300_000),
    "topic.metadata.refresh.interval.ms": (-1, 3_600_000),
    # producers
    "batch.num.messages": (1, 1_000_000),
    "batch.size": (1, _INT),
    "compression.level": (-1, 12),
    "linger.ms": (0, 900_000),
    "max.in.flight.requests.per.connection": (1, 1_000_000),
    "message.max.bytes": (1_000, 1_000_000_000),
    "queue.buffering.max.kbytes": (1, _INT),
    "request.timeout.ms": (1, 900_000),
    "transaction.timeout.ms": (1_000, _INT),
}
"""By librdkafka's names: least and greatest value that it takes."""

NUMBERS = {*BOUNDS, "max.in.flight", "message.send.max.retries", "retries"} - {
    "linger.ms"  # may have a fraction
}
"""Whole numbers, which this package reads, too."""

_NEVER = {"connections.max.idle.ms": "0", "topic.metadata.refresh.interval.ms": "-1"}
"""What a negative number, Java's "never", becomes."""

_RECEIVED_BYTES = 1 << 30
_FETCH_OVERHEAD = 512
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 100, 10_000
_DEFAULT_MESSAGE_BYTES = 1_000_000


def within_bounds(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with numbers cut to librdkafka's bounds; logs once in a process."""
    return {name: _within(name, value) for name, value in settings.items()}


def _within(name: str, value: str) -> str:
    bounds = BOUNDS.get(name)
    try:
        number = int(value)
    except ValueError:
        return value  # the client says what is wrong
    if bounds is None or bounds[0] <= number <= bounds[1]:
        return value
    low, high = bounds
    taken = str(min(max(number, low), high))
    if number < 0:
        taken = _NEVER.get(name, taken)
    if (name, value) not in _said:
        _said.add((name, value))
        text = "librdkafka takes %d to %d for %s: %s becomes %s"
        _log.warning(text, low, high, name, value, taken)
    return taken


def room_for_fetches(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings that let a consumer take everything a broker may send.

    A response, and each batch of records once it is unpacked, may have
    ``receive.message.max.bytes``: enough for every batch that fits into memory, unless
    it is given. A ``fetch.max.bytes`` below the largest message is legal in Java only.
    """
    more = {}
    fetch = _number(settings.get("fetch.max.bytes", ""), 0)
    message = _number(settings.get("message.max.bytes", ""), _DEFAULT_MESSAGE_BYTES)
    if "receive.message.max.bytes" not in settings:
        received = max(_RECEIVED_BYTES, fetch + _FETCH_OVERHEAD)
        more["receive.message.max.bytes"] = str(received)
    if 0 < fetch < message:
        more["message.max.bytes"] = str(fetch)
    return more


def within_buffer(settings: Mapping[str, str]) -> dict[str, str]:
    """Let a producer refuse, as Java's, a record for which its buffer never has room.

    librdkafka says that the buffer is full, as if waiting could help.
    """
    room = 1024 * _number(settings.get("queue.buffering.max.kbytes", ""), _INT)
    is_less = room < int(settings["message.max.bytes"])
    return {"message.max.bytes": str(room)} if is_less else {}


def steady_reconnects(settings: Mapping[str, str]) -> dict[str, str]:
    """Cap ``reconnect.backoff.ms`` at ``reconnect.backoff.max.ms``, as Java does."""
    longest = _number(settings.get("reconnect.backoff.max.ms", ""), _LONGEST_PAUSE_MS)
    first = _number(settings.get("reconnect.backoff.ms", ""), _FIRST_PAUSE_MS)
    return {"reconnect.backoff.ms": str(longest)} if first > longest else {}


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isdigit() else otherwise


@dataclass(frozen=True, slots=True)
class Translation:
    """One Java name, which users write after ``kafka.``, and the names that it sets.

    ``purposes`` are the kinds of client it is translated for; the others take the name
    as librdkafka knows it.
    """

    java: str
    librdkafka: tuple[str, ...]
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

TABLE: tuple[Translation, ...] = (
    Translation("fetch.max.wait.ms", ("fetch.wait.max.ms",)),
    Translation("max.partition.fetch.bytes", ("fetch.message.max.bytes",)),
    Translation(
        "receive.buffer.bytes", ("socket.receive.buffer.bytes",), _buffer_bytes
    ),
    Translation("send.buffer.bytes", ("socket.send.buffer.bytes",), _buffer_bytes),
    Translation(
        "request.timeout.ms",
        ("socket.timeout.ms",),
        purposes=_READERS,  # to librdkafka, ``request.timeout.ms`` is something else
    ),
    Translation(
        "request.timeout.ms",
        ("socket.timeout.ms", "request.timeout.ms"),
        purposes=_PRODUCERS,
    ),
    Translation("metadata.max.age.ms", ("topic.metadata.refresh.interval.ms",)),
    Translation(
        "ssl.endpoint.identification.algorithm",
        ("ssl.endpoint.identification.algorithm",),
        lambda value: value.strip().lower() or "none",
    ),
    Translation("ssl.cipher.suites", ("ssl.cipher.suites",), _cipher_suites),
    Translation("sasl.mechanism", ("sasl.mechanisms",)),
    Translation("sasl.kerberos.kinit.cmd", ("sasl.kerberos.kinit.cmd",), _kinit),
    Translation(
        "sasl.oauthbearer.assertion.template.file",
        ("sasl.oauthbearer.assertion.jwt.template.file",),
    ),
    Translation("buffer.memory", ("queue.buffering.max.kbytes",), _bytes_to_kbytes),
    Translation("max.request.size", ("message.max.bytes",), purposes=_PRODUCERS),
    Translation("compression.gzip.level", ("compression.level",)),
    Translation("compression.lz4.level", ("compression.level",)),
    Translation("compression.zstd.level", ("compression.level",)),
    Translation("partitioner.class", ("partitioner",), _partitioner),
    Translation("partitioner.ignore.keys", ("partitioner",), _partitioner_ignores_keys),
)

NO_EFFECT = words(
    """
    auto.commit.interval.ms auto.include.jmx.reporter config.providers
    default.api.timeout.ms exclude.internal.topics group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms internal.leave.group.on.close
    internal.throw.on.fetch.stable.offset.unsupported max.block.ms
    max.poll.interval.ms max.poll.records metadata.max.idle.ms metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name
    security.providers session.timeout.ms share.acknowledgement.mode
    share.acquire.mode socket.connection.setup.timeout.max.ms ssl.enabled.protocols
    ssl.keymanager.algorithm ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm
    transaction.two.phase.commit.enable
    """
)
"""Without effect: librdkafka, the broker or Spark decides, or they concern a JVM."""

ELSEWHERE = words(
    """
    sasl.jaas.config sasl.login.callback.handler.class ssl.keystore.certificate.chain
    ssl.keystore.key ssl.keystore.location ssl.keystore.type
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type
    """
)
"""Names that ``client_settings`` translates by itself."""


# --- looking up --------------------------------------------------------------------


def find(name: str, purpose: Purpose) -> Translation | None:
    """The row for a Java name, or None where librdkafka's own meaning holds."""
    return _BY_NAME.get((name, purpose))


_BY_NAME = {
    (row.java, purpose): row for row in TABLE for purpose in sorted(row.purposes)
}


def known_names() -> set[str]:
    """Every Java name in this module."""
    java = {row.java for row in TABLE}
    return java | NO_EFFECT | ELSEWHERE | set(REFUSED) | REFUSED_SOMEWHERE


Purpose = Literal["consumer", "admin", "producer"]
"""The kind of client that settings are for."""

_JAVA_CLASS = "A Java class cannot be loaded by this connector."
_BYTES = "are deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame"

REFUSED_FOR_READING = {
    "auto.offset.reset": (
        "Instead set the source option 'startingOffsets' to 'earliest' or 'latest' to"
        " specify where to start. Structured Streaming manages which offsets are"
        " consumed internally, rather than relying on the kafkaConsumer to do it. This"
        " will ensure that no data is missed when new topics/partitions are dynamically"
        " subscribed. Note that 'startingOffsets' only applies when a new Streaming"
        " query is started, and that resuming will always pick up from where the query"
        " left off. See the docs for more details."
    ),
    "key.deserializer": (
        f"as keys {_BYTES} operations to explicitly deserialize the keys."
    ),
    "value.deserializer": (
        f"as values {_BYTES} operations to explicitly deserialize the values."
    ),
    "enable.auto.commit": (
        "Offsets are kept in the checkpoint and, with the option 'tx.id', in the store;"
        " 'tx.commitGroupId' mirrors them to a consumer group."
    ),
}
"""Spark's refusals of its source, and what replaces each."""

REFUSED_FOR_WRITING = {
    "key.serializer": "as keys are serialized with ByteArraySerializer.",
    "value.serializer": "as value are serialized with ByteArraySerializer.",
}
"""Spark's refusals of its sink."""

REFUSED = {
    "interceptor.classes": (
        f"{_JAVA_CLASS} Use DataFrame operations to look at or change the records."
    ),
    "ssl.engine.factory.class": f"{_JAVA_CLASS} Use PEM files or a PKCS12 keystore.",
    "sasl.login.class": f"{_JAVA_CLASS} Use 'kafka.sasl.jaas.config'.",
    "sasl.client.callback.handler.class": (
        f"{_JAVA_CLASS} Use 'kafka.sasl.jaas.config' with PLAIN, SCRAM, OAUTHBEARER or"
        " Kerberos, or 'kafka.sasl.oauthbearer.token.provider' with a function in"
        " Python."
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        f"{_JAVA_CLASS} Use 'kafka.sasl.oauthbearer.token.endpoint.url'."
    ),
    "sasl.oauthbearer.jwt.validator.class": f"{_JAVA_CLASS} Leave it out.",
}
"""Refused for every kind of client: they name Java classes."""

REFUSED_SOMEWHERE = frozenset(REFUSED_FOR_READING) | frozenset(REFUSED_FOR_WRITING)
"""Names that are refused for one kind of client and without meaning for the others."""


def refusals(purpose: Purpose) -> dict[str, str]:
    """Every refused name for this kind of client and what replaces it."""
    special = REFUSED_FOR_WRITING if purpose == "producer" else REFUSED_FOR_READING
    return {**REFUSED, **special}
