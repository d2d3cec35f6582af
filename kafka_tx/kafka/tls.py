"""Java's key and trust stores as settings of librdkafka.

librdkafka reads PEM (files or text) and, for the client's own certificate, PKCS12. What
it cannot read is refused with the command that converts it. No file is opened here: the
options are checked in the driver and the files are read where a client runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_tx.errors import ConfigError

_PEM_ENDINGS = (".pem", ".crt", ".cer", ".cert", ".ca")
_PKCS12_ENDINGS = (".p12", ".pfx", ".pkcs12")
_CONVERT = (
    "keytool -importkeystore -srckeystore {location} -destkeystore store.p12"
    " -deststoretype PKCS12"
)
_EXTRACT = "openssl pkcs12 -in {location} -nokeys -out truststore.pem"


def tls_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings that the stores among ``options`` become.

    A store's type follows from its ending where it is not given; anything else counts
    as JKS, Java's default.

    Raises:
        ConfigError: A store has a form librdkafka cannot read.
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
    first = "" if kind == "PKCS12" else _CONVERT.format(location=location) + " && "
    source = location if kind == "PKCS12" else "store.p12"
    raise _refused(
        "kafka.ssl.truststore.location",
        f"{location} ({kind})",
        "a PEM file",
        first + _EXTRACT.format(location=source),
        "'kafka.ssl.truststore.location' to truststore.pem and"
        " 'kafka.ssl.truststore.type' to PEM",
    )


def _keystore(options: Mapping[str, str]) -> dict[str, str]:
    settings = {}
    chain = options.get("ssl.keystore.certificate.chain")
    key = options.get("ssl.keystore.key")
    if chain:
        settings["ssl.certificate.pem"] = chain
    if key:
        settings["ssl.key.pem"] = key
    location = options.get("ssl.keystore.location")
    if not location or settings:
        return settings
    kind = _kind(location, options.get("ssl.keystore.type"))
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if kind == "PKCS12":
        return _pkcs12(location, options)
    raise _refused(
        "kafka.ssl.keystore.location",
        f"{location} ({kind})",
        "a PKCS12 or PEM file",
        _CONVERT.format(location=location),
        "'kafka.ssl.keystore.location' to store.p12 and 'kafka.ssl.keystore.type' to"
        " PKCS12",
    )


def _pkcs12(location: str, options: Mapping[str, str]) -> dict[str, str]:
    settings = {"ssl.keystore.location": location}
    password = options.get("ssl.keystore.password")
    if password is not None:
        settings["ssl.keystore.password"] = password
    return settings


def _kind(location: str, given: str | None) -> str:
    if given:
        return given.strip().upper()
    name = location.lower()
    if name.endswith(_PEM_ENDINGS):
        return "PEM"
    return "PKCS12" if name.endswith(_PKCS12_ENDINGS) else "JKS"


def _refused(
    option: str, value: str, legal: str, command: str, then: str
) -> ConfigError:
    return ConfigError.illegal(
        option, value, legal, f"Convert it: {command}; then set {then}."
    )
