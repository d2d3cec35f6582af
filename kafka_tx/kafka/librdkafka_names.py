"""The configuration names of librdkafka 2.x that a user can set as text, and words.

Callbacks, pointers and names without effect are left out. Newer names can be used as
soon as they are listed here. A name that a client of the other kind would only warn
about (a producer's, given to a consumer) is kept apart, so that it can be dropped.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(text.split())


COMMON = words(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request
    api.version.request.timeout.ms bootstrap.servers broker.address.family
    broker.address.ttl broker.version.fallback client.dns.lookup client.id
    client.rack connections.max.idle.ms debug enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    https.ca.location https.ca.pem log.connection.close log.thread.name log_level
    max.in.flight max.in.flight.requests.per.connection message.copy.max.bytes
    message.max.bytes metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol socket.blocking.max.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location
    ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location
    ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
    topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """
)
"""Understood by every client."""

CONSUMER_ONLY = words(
    """
    auto.commit.interval.ms auto.offset.reset check.crcs
    consume.callback.max.messages coordinator.query.interval.ms enable.auto.commit
    enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms
    fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type
    group.remote.assignor heartbeat.interval.ms isolation.level
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages
    session.timeout.ms
    """
)
"""Understood by consumers."""

PRODUCER_ONLY = words(
    """
    acks batch.num.messages batch.size compression.codec compression.level
    compression.type delivery.report.only.error delivery.timeout.ms
    enable.gapless.guarantee enable.idempotence linger.ms message.send.max.retries
    message.timeout.ms partitioner queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms
    request.required.acks request.timeout.ms retries sticky.partitioning.linger.ms
    transaction.timeout.ms transactional.id
    """
)
"""Understood by producers."""

_BOOLEANS = words(
    """
    allow.auto.create.topics api.version.request check.crcs delivery.report.only.error
    enable.auto.commit enable.auto.offset.store enable.gapless.guarantee
    enable.idempotence enable.metrics.push enable.partition.eof enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
    log.connection.close log.thread.name sasl.oauthbearer.assertion.claim.jti.include
    socket.keepalive.enable socket.nagle.disable topic.metadata.refresh.sparse
    """
)
_COMPRESSION = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKS = ("all", "-1", "0", "1")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

ENUMERATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(sorted(_BOOLEANS), ("true", "false")),
    **dict.fromkeys(("acks", "request.required.acks"), _ACKS),
    **dict.fromkeys(("sasl.mechanism", "sasl.mechanisms"), _MECHANISMS),
    "auto.offset.reset": (
        *("smallest", "earliest", "beginning"),
        *("largest", "latest", "end", "error"),
    ),
    "broker.address.family": ("any", "v4", "v6"),
    "client.dns.lookup": (
        "use_all_dns_ips",
        "resolve_canonical_bootstrap_servers_only",
    ),
    "compression.codec": (*_COMPRESSION, "inherit"),
    "compression.type": _COMPRESSION,
    "group.protocol": ("classic", "consumer"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "metadata.recovery.strategy": ("none", "rebootstrap"),
    "partitioner": (
        *("random", "consistent", "consistent_random"),
        *("murmur2", "murmur2_random", "fnv1a", "fnv1a_random"),
    ),
    "sasl.oauthbearer.assertion.algorithm": ("RS256", "ES256"),
    "sasl.oauthbearer.grant.type": (
        "client_credentials",
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
    ),
    "sasl.oauthbearer.metadata.authentication.type": ("none", "azure_imds", "aws_iam"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl.endpoint.identification.algorithm": ("none", "https"),
}
"""The legal words of each such name, in the spelling that this package compares."""

_SHORT = {"t": "true", "1": "true", "f": "false", "0": "false"}


def spelled(name: str, value: str) -> str | None:
    """A word as the table spells it, from any case; None: the name has no such word.

    Names without words keep their value. librdkafka takes booleans in short forms, too.
    """
    legal = ENUMERATIONS.get(name)
    if legal is None:
        return value
    given = value.strip().lower()
    if name in _BOOLEANS:
        given = _SHORT.get(given, given)
    return next((word for word in legal if word.lower() == given), None)
