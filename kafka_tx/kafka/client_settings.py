"""From the options a user gives for Kafka to the settings of a librdkafka client.

librdkafka reads PEM (files or text) and, for the client's own certificate, PKCS12.
Other stores of Java are refused with the command that converts them. No file is opened
here: the driver checks the options, and files are read where a client runs. Messages
name a login module and its options, never a value: values are secrets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from kafka_tx.errors import ConfigError
from kafka_tx.kafka import translations
from kafka_tx.kafka.librdkafka_names import (
    COMMON,
    CONSUMER_ONLY,
    ENUMERATIONS,
    PRODUCER_ONLY,
    spelled,
)
from kafka_tx.kafka.tokens import PROVIDER
from kafka_tx.kafka.translations import (
    Purpose,
    refusals,
    room_for_fetches,
    steady_reconnects,
    within_bounds,
    within_buffer,
)
from kafka_tx.logs import event_log

_log = event_log(__name__)
_said: set[str] = set()

_SECRET_PARTS = ("password", "secret", "key.pem", "passphrase", "jaas", "keystore.key")
_SECRET_NAMES = ("sasl.oauthbearer.config", "sasl.oauthbearer.extensions")

_PROTOCOLS = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
"""What the clients take before ``://`` of an address."""

_ALWAYS = {"enable.metrics.push": "false", "reconnect.backoff.max.ms": "1000"}
_DEFAULTS: dict[Purpose, dict[str, str]] = {
    "admin": {"isolation.level": "read_uncommitted", "socket.timeout.ms": "30000"},
    "consumer": {
        "isolation.level": "read_uncommitted",
        "check.crcs": "true",
        "socket.timeout.ms": "30000",
        "fetch.wait.max.ms": "1",  # other requests to the broker wait for a fetch
        "fetch.error.backoff.ms": "50",
        "fetch.queue.backoff.ms": "2",
        "queued.max.messages.kbytes": "16384",
        "topic.metadata.propagation.max.ms": "5000",
        "statistics.interval.ms": "1000",
    },
    "producer": {
        "partitioner": "murmur2_random",
        "allow.auto.create.topics": "true",  # if the brokers do, as for Java's
        "message.max.bytes": "100000000",  # brokers enforce their own limit
        "socket.timeout.ms": "30000",
    },
}
_FIXED_OF_ADMINS = {"allow.auto.create.topics": "false"}
_FIXED_OF_CONSUMERS = {
    **_FIXED_OF_ADMINS,
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}


class ClientSettings(dict[str, str]):
    """Settings of one client: a dict whose text never shows a secret."""

    def __repr__(self) -> str:
        shown = {k: "***" if is_secret(k) else v for k, v in self.items()}
        return f"ClientSettings({shown!r})"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return (ClientSettings, (dict(self),))


def is_secret(name: str) -> bool:
    """Whether the value of this name (Java's or librdkafka's) must not be shown."""
    lowered = name.lower()
    return lowered in _SECRET_NAMES or any(part in lowered for part in _SECRET_PARTS)


def client_settings(options: Mapping[str, str], *, purpose: Purpose) -> ClientSettings:
    """Settings of a client from Spark-style options without their prefix ``kafka.``.

    Names are taken in any case. Java's names are translated; librdkafka's own pass
    through and win. Names of the other kind of client are dropped, so that one set of
    options serves all. Words of enumerations are taken in any case, and become those
    of ``ENUMERATIONS``. Numbers that only Java takes become the nearest one. A name
    without effect is logged, once in a process.

    The settings of an ``admin`` client keep ``isolation.level``: it decides which end
    of a partition is asked for, and is taken out before a client is made.

    Raises:
        ConfigError: A name is refused (with what replaces it) or unknown (with the
            nearest known one), a value is not legal or cannot be translated, or the
            addresses of the brokers are missing.
    """
    given = {name.strip().lower(): str(v).strip() for name, v in options.items()}
    provider = given.pop(PROVIDER, "")
    _refuse(given, purpose)
    _refuse_foreign_mechanism(given)
    if not (given.get("bootstrap.servers") or given.get("metadata.broker.list")):
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka"
            f" {'producer' if purpose == 'producer' else 'consumer'}",
            option="kafka.bootstrap.servers",
        )
    _check_addresses(given)
    _leave_out_levels(given)
    usable = _names_of(purpose)
    chosen: dict[str, str] = {**tls_settings(given), **jaas_settings(given)}
    native: dict[str, str] = {}
    for name, value in given.items():
        _translate(name, value, purpose, chosen, native)
    chosen |= native
    settings = within_bounds({n: v for n, v in chosen.items() if n in usable})
    if purpose == "consumer":
        settings |= {**room_for_fetches(settings), **_FIXED_OF_CONSUMERS}
    if purpose == "admin":
        settings |= _FIXED_OF_ADMINS
    settings = {**_ALWAYS, **_DEFAULTS[purpose], **settings}
    if purpose == "producer":
        settings |= within_buffer(settings)
    if provider:
        settings |= {"sasl.mechanisms": "OAUTHBEARER", PROVIDER: provider}
    return ClientSettings(settings | steady_reconnects(settings))


def _names_of(purpose: Purpose) -> frozenset[str]:
    if purpose == "producer":
        return COMMON | PRODUCER_ONLY
    return COMMON | (CONSUMER_ONLY if purpose == "consumer" else {"isolation.level"})


def _refuse(given: Mapping[str, str], purpose: Purpose) -> None:
    for name, advice in refusals(purpose).items():
        if name in given:
            stop = "" if advice.startswith("as ") else "."
            raise ConfigError(
                f"Kafka option '{name}' is not supported{stop} {advice}",
                option=f"kafka.{name}",
            )


def _refuse_foreign_mechanism(given: Mapping[str, str]) -> None:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    if mechanism.upper() == "AWS_MSK_IAM":
        raise ConfigError.illegal(
            "kafka.sasl.mechanism",
            mechanism,
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI",
            "Amazon's brokers take tokens, too: set it to OAUTHBEARER and"
            f" 'kafka.{PROVIDER}' to a function that signs them: see docs/security.md.",
        )


def _check_addresses(given: Mapping[str, str]) -> None:
    for name in ("bootstrap.servers", "metadata.broker.list"):
        for address in given.get(name, "").split(","):
            scheme, separator, _ = address.strip().partition("://")
            if separator and scheme.upper() not in _PROTOCOLS:
                raise ConfigError.illegal(
                    f"kafka.{name}", given[name], "host:port, separated by commas"
                )


def _leave_out_levels(given: dict[str, str]) -> None:
    """Only the level of the codec that is used counts, as for Java's producers."""
    codec = given.get("compression.type") or given.get("compression.codec") or ""
    for other in {"gzip", "lz4", "zstd"} - {codec.lower()}:
        given.pop(f"compression.{other}.level", None)


def _translate(
    name: str,
    value: str,
    purpose: Purpose,
    chosen: dict[str, str],
    native: dict[str, str],
) -> None:
    if name in translations.ELSEWHERE:
        return
    if name in translations.NO_EFFECT:
        _say_once(name)
        return
    row = translations.find(name, purpose)
    if row is not None:
        for target, text in row.apply(value).items():
            chosen.setdefault(target, _word(name, target, text, purpose))
    elif name in COMMON or name in CONSUMER_ONLY or name in PRODUCER_ONLY:
        native[name] = _word(name, name, value, purpose)
    elif name not in translations.known_names():
        raise _unknown(name)


def _word(name: str, target: str, value: str, purpose: Purpose) -> str:
    """The value as this package compares it: words of one case, numbers as digits."""
    if target not in _names_of(purpose):
        return value
    if target in translations.NUMBERS:
        try:
            return str(int(value))
        except ValueError:
            raise ConfigError.illegal(
                f"kafka.{name}", value, "a whole number"
            ) from None
    word = spelled(target, value)
    if word is None:
        legal = ", ".join(ENUMERATIONS[target])
        raise ConfigError.illegal(f"kafka.{name}", value, legal)
    return word


def _say_once(name: str) -> None:
    if name not in _said:
        _said.add(name)
        _log.warning("option 'kafka.%s' has no effect here", name)


def _unknown(name: str) -> ConfigError:
    known = COMMON | CONSUMER_ONLY | PRODUCER_ONLY | translations.known_names()
    nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    hint = f"did you mean 'kafka.{nearest[0]}'?" if nearest else "leave it out."
    return ConfigError(
        f"option 'kafka.{name}' is known neither to Kafka's Java client nor to"
        f" librdkafka; {hint}",
        option=f"kafka.{name}",
    )


_PEM_ENDINGS = (".pem", ".crt", ".cer", ".cert", ".ca")
_PKCS12_ENDINGS = (".p12", ".pfx", ".pkcs12")
_CONVERT = (
    "keytool -importkeystore -srckeystore {location} -destkeystore store.p12"
    " -deststoretype PKCS12"
)
_EXTRACT = "keytool -list -rfc -keystore {location} > truststore.pem"


def tls_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings for stores of certificates; raises ConfigError for unreadable ones.

    A store's type follows from its ending where it is not given; anything else counts
    as JKS, Java's default.
    """
    return {**_truststore(options), **_keystore(options)}


def _truststore(options: Mapping[str, str]) -> dict[str, str]:
    certificates = options.get("ssl.truststore.certificates")
    if certificates:
        return {"ssl.ca.pem": certificates}
    location = options.get("ssl.truststore.location")
    if not location:
        return {}
    kind = _kind(location, options.get("ssl.truststore.type"))
    if kind == "PEM":
        return {"ssl.ca.location": location}
    command = _EXTRACT.format(location=location)
    raise _refused("truststore", location, kind, "PEM", command, "truststore.pem")


def _keystore(options: Mapping[str, str]) -> dict[str, str]:
    pem = {
        "ssl.certificate.pem": options.get("ssl.keystore.certificate.chain"),
        "ssl.key.pem": options.get("ssl.keystore.key"),
    }
    settings = {name: text for name, text in pem.items() if text}
    location = options.get("ssl.keystore.location")
    if not location or settings:
        return settings
    kind = _kind(location, options.get("ssl.keystore.type"))
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if kind == "PKCS12":
        names = ("ssl.keystore.location", "ssl.keystore.password")
        return {name: options[name] for name in names if name in options}
    command = _CONVERT.format(location=location)
    raise _refused("keystore", location, kind, "PKCS12", command, "store.p12")


def _kind(location: str, given: str | None) -> str:
    if given:
        return given.strip().upper()
    name = location.lower()
    if name.endswith(_PEM_ENDINGS):
        return "PEM"
    return "PKCS12" if name.endswith(_PKCS12_ENDINGS) else "JKS"


def advice_for_old_pkcs12(location: str) -> str:
    """How to convert a keystore with ciphers that OpenSSL reads no longer."""
    return (
        f" The keytool that wrote {location} encrypts with RC2, which OpenSSL does not"
        " read: so do those of Java before 8u301 and 11.0.12. Convert the file with the"
        f" keytool of Java 17 or newer: {_CONVERT.format(location=location)}; then set"
        " 'kafka.ssl.keystore.location' to store.p12. The password may stay."
    )


def _refused(
    store: str, location: str, kind: str, wanted: str, command: str, file: str
) -> ConfigError:
    option = f"kafka.ssl.{store}"
    legal = "a PEM file" if wanted == "PEM" else f"a {wanted} or PEM file"
    return ConfigError.illegal(
        f"{option}.location",
        f"{location} ({kind})",
        legal,
        f"Convert it with the keytool of Java 17 or newer: {command}; then set"
        f" '{option}.location' to {file} and '{option}.type' to {wanted}.",
    )


OPTION = "kafka.sasl.jaas.config"

_TOKEN = re.compile(
    r"""\s*(?:
        "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>[^\s=;"']+)
      | (?P<sign>[=;])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_OIDC_HANDLER = "OAuthBearerLoginCallbackHandler"
_LEGAL = (
    "'<login module> required <option>=\"<value>\" …;' with PlainLoginModule,"
    " ScramLoginModule, OAuthBearerLoginModule or Krb5LoginModule"
)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The class name of the login module and its options; raises ConfigError."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise _malformed("it must have a module, a flag and end with ';'")
    module, _flag, *rest = tokens[:-1]
    if len(rest) % 3:
        raise _malformed('every option must read name="value"')
    options: dict[str, str] = {}
    for (kind, name), equals, (value_kind, value) in zip(
        rest[::3], rest[1::3], rest[2::3], strict=True
    ):
        if kind != "word" or equals != ("sign", "=") or value_kind == "sign":
            raise _malformed('every option must read name="value"')
        options[name] = value
    return module[1], options


def jaas_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings for JAAS and the login callback handler among ``options``.

    The mechanism follows from the login module where ``sasl.mechanism`` is not given.

    Raises:
        ConfigError: The text is malformed, the module is unknown, one of its options is
            missing, or it contradicts ``sasl.mechanism``.
    """
    handler = options.get("sasl.login.callback.handler.class", "")
    if handler and handler.rpartition(".")[2] != _OIDC_HANDLER:
        raise ConfigError.illegal(
            "kafka.sasl.login.callback.handler.class",
            handler,
            f"Kafka's own {_OIDC_HANDLER}",
            "A Java class cannot be loaded here; give 'kafka.sasl.mechanism'"
            " OAUTHBEARER with 'kafka.sasl.oauthbearer.token.endpoint.url', or"
            f" 'kafka.{PROVIDER}' for a function that makes tokens, as for Amazon's"
            " brokers: see docs/security.md.",
        )
    text = options.get("sasl.jaas.config")
    if text is None:
        return {"sasl.oauthbearer.method": "oidc"} if handler else {}
    module, entries = parse_jaas(text)
    translate = _MODULES.get(module.rsplit(".", 1)[-1])
    if translate is None:
        raise _malformed(f"the login module '{module}' is not known here")
    return translate(entries, options)


# --- login modules ------------------------------------------------------------------


def _plain(entries: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    _mechanism(options, ("", "PLAIN"), "PlainLoginModule")
    return {"sasl.mechanisms": "PLAIN", **_user(entries)}


def _scram(entries: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    legal = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    mechanism = _mechanism(options, legal, "ScramLoginModule")
    if entries.get("tokenauth", "").lower() == "true":
        raise _malformed("delegation tokens (tokenauth) are not offered by librdkafka")
    return {"sasl.mechanisms": mechanism, **_user(entries)}


def _oauth(entries: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    _mechanism(options, ("", "OAUTHBEARER"), "OAuthBearerLoginModule")
    settings = {"sasl.mechanisms": "OAUTHBEARER"}
    principal = entries.get("unsecuredLoginStringClaim_sub")
    if principal is not None:
        return {
            **settings,
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={principal}",
        }
    settings |= {"sasl.oauthbearer.method": "oidc", **_renamed(entries, _OAUTH_NAMES)}
    extensions = [
        f"{name.removeprefix('extension_')}={value}"
        for name, value in entries.items()
        if name.startswith("extension_")
    ]
    if extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if "sasl.oauthbearer.token.endpoint.url" not in options:
        raise ConfigError(
            "OAuthBearerLoginModule needs the option"
            " 'kafka.sasl.oauthbearer.token.endpoint.url': where tokens come from",
            option="kafka.sasl.oauthbearer.token.endpoint.url",
        )
    return settings


def _kerberos(entries: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    _mechanism(options, ("", "GSSAPI"), "Krb5LoginModule")
    settings = {"sasl.mechanisms": "GSSAPI", **_renamed(entries, _KERBEROS_NAMES)}
    is_on = {name: entries.get(name, "").lower() == "true" for name in _KERBEROS_WAYS}
    has_keytab = "keyTab" in entries and "principal" in entries
    if is_on["useTicketCache"]:
        if not (has_keytab and is_on["useKeyTab"]):  # Java, too, tries both
            settings["sasl.kerberos.min.time.before.relogin"] = "0"
    elif not has_keytab:
        raise _malformed(
            "Krb5LoginModule needs keyTab and principal, or useTicketCache=true"
        )
    return settings


def _renamed(entries: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {name: entries[java] for java, name in names.items() if java in entries}


_OAUTH_NAMES = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_KERBEROS_NAMES = {
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
}
_KERBEROS_WAYS = ("useTicketCache", "useKeyTab")
_Translate = Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]]
_MODULES: dict[str, _Translate] = {
    "PlainLoginModule": _plain,
    "ScramLoginModule": _scram,
    "OAuthBearerLoginModule": _oauth,
    "Krb5LoginModule": _kerberos,
}


def _user(entries: Mapping[str, str]) -> dict[str, str]:
    for name in ("username", "password"):
        if name not in entries:
            raise _malformed(f"the option {name} is missing")
    return {f"sasl.{name}": entries[name] for name in ("username", "password")}


def _mechanism(options: Mapping[str, str], legal: tuple[str, ...], module: str) -> str:
    given = options.get("sasl.mechanism") or options.get("sasl.mechanisms") or ""
    mechanism = given.strip().upper()
    if mechanism not in legal:
        raise ConfigError.illegal(
            "kafka.sasl.mechanism",
            mechanism,
            f"{' or '.join(filter(None, legal))} with {module}",
        )
    return mechanism


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _malformed("a quote is not closed")
        kind = str(match.lastgroup)
        value = match[kind]
        if kind in ("double", "single"):
            kind, value = "text", _ESCAPE.sub(r"\1", value)
        tokens.append((kind, value))
        at = match.end()
    return tokens


def _malformed(what: str) -> ConfigError:
    return ConfigError(
        f"option '{OPTION}' cannot be used: {what}; legal: {_LEGAL}.", option=OPTION
    )
