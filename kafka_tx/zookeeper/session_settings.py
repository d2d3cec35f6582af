"""Settings of a ZooKeeper session, and their URL."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import parse_qsl, urlsplit

from kafka_tx.errors import ConfigError
from kafka_tx.model import with_port
from kafka_tx.transactions.ownership.retry_policy import DEFAULT_MS

_PORT = 2181


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """Trusted authorities and the client's certificate; servers are always verified.

    Attributes:
        ca: PEM file of the authorities; empty: those of the system.
        certificate: PEM file with the client's certificate; empty: none is shown.
        key: PEM file with its key, which ``key_password`` decrypts.
        check_hostname: Whether the certificate has to name the host.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    check_hostname: bool = True

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ConfigError(
                "options 'zookeeper tls_certificate' and 'zookeeper tls_key' belong"
                " together: give both, or none",
                option="zookeeper tls_key",
            )
        for name in ("ca", "certificate", "key"):
            file = getattr(self, name)
            if file and not Path(file).is_file():
                raise ConfigError.illegal(
                    f"zookeeper tls_{name}", file, "a PEM file that this machine has"
                )

    def of_kazoo(self) -> dict[str, Any]:
        """The arguments of its client."""
        return {
            "use_ssl": True,
            "ca": self.ca or None,
            "certfile": self.certificate or None,
            "keyfile": self.key or None,
            "keyfile_password": self.key_password or None,
            "verify_certs": True,
            "check_hostname": self.check_hostname,
        }

    def refusal(
        self, hosts: str, timeout_s: float, *, listen_s: float = 0.0
    ) -> str | None:
        """Why TLS fails; None: it is not the reason. Hosts are tried until one works.

        Under TLS 1.3 a server refuses the client's certificate only after the
        handshake: ``listen_s`` is how long to wait for that.
        """
        found = None
        for host in hosts.split(","):
            try:
                self._shake_hands(host, timeout_s, listen_s)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                continue  # it went away in the middle: the session says so
            except ssl.SSLError as error:
                found = f"{host}: {error}"
            except OSError:
                continue
            else:
                return None
        return found

    def _shake_hands(self, host: str, timeout_s: float, listen_s: float) -> None:
        context = ssl.create_default_context(cafile=self.ca or None)
        context.check_hostname = self.check_hostname
        if self.certificate:
            context.load_cert_chain(
                self.certificate, self.key, self.key_password or None
            )
        name, _, port = with_port(host, _PORT).rpartition(":")
        with (
            socket.create_connection((name.strip("[]"), int(port)), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=name.strip("[]")) as secured,
        ):
            if listen_s:
                secured.settimeout(listen_s)
                with suppress(TimeoutError):
                    secured.recv(1)


TLS_OPTIONS = frozenset({"tls", *(f"tls_{each.name}" for each in fields(Tls))})


def tls_of(options: Mapping[str, str]) -> Tls | None:
    """The settings in a URL; any of its options but ``tls=false`` asks for TLS.

    Raises:
        ConfigError: A switch is neither true nor false, a file is absent, or options
            are given with ``tls=false``.
    """
    given = dict(options)
    is_on = _switch("tls", given.pop("tls", "true" if given else "false"))
    if not is_on:
        if given:
            raise ConfigError(
                f"options {', '.join(sorted(given))} of the ZooKeeper URL have no"
                " meaning with tls=false: leave them out, or say tls=true",
                option="zookeeper tls",
            )
        return None
    check = _switch("tls_check_hostname", given.pop("tls_check_hostname", "true"))
    named = {name.removeprefix("tls_"): value for name, value in given.items()}
    return Tls(check_hostname=check, **named)


def _switch(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise ConfigError.illegal(f"zookeeper {name}", text, "true, false")
    return text == "true"


DEFAULT_ROOT = "/kafka_tx"

Acl = Literal["open", "creator"]

_LEGAL = (
    "zookeeper://host:port[,host:port…]/root with the options auth=digest:user:password"
    " (special characters as %XX), acl=open|creator, session_timeout_ms,"
    " connection_timeout_ms, retry_times, retry_interval_ms, retry_interval_ceiling_ms,"
    " retry_for_ms, tls=true|false, tls_ca, tls_certificate, tls_key, tls_key_password,"
    " tls_check_hostname=true|false"
)
_MAY_BE_0 = {"retry_times", "retry_for_ms"}
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?")
_ROOT = re.compile(r"(?:/[A-Za-z0-9._=:@-]+)+")


def check_root(node: str, option: str = "zookeeper root") -> str:
    """Return ``node`` if it can lead to nodes of ours; raises ConfigError."""
    parts = node.split("/")
    if not _ROOT.fullmatch(node) or "." in parts or ".." in parts:
        raise ConfigError.illegal(
            option,
            node,
            "an absolute path such as /kafka_tx/orders, of A-Z a-z 0-9 . _ = : @ -",
        )
    return node


@dataclass(frozen=True, kw_only=True, slots=True)
class ZooKeeperSettings:
    """Address, rights and retries of a ZooKeeper client.

    Attributes:
        hosts: ``host:port`` of every server, comma separated; port 2181 if not given.
        root: The node below which everything is stored, absolute.
        auth: ``user:password`` of the digest scheme; never shown.
        tls: None: plain connections.
        acl: Who may use our nodes: everybody, or only the owner of our ``auth``.
        session_timeout_ms: How long the servers keep a session without a sign of life.
        connection_timeout_ms: How long to wait for the first connection, and for one
            answer.
        retry_times: How often an answer lost with its connection is asked for again.
        retry_interval_ms: Pause before the first repetition; doubles each time, up to
            ``retry_interval_ceiling_ms``.
        retry_for_ms: How long a failed call is retried as a whole; 0: no retry.

    Source: Storm, ``storm.zookeeper.*`` (names and defaults).
    """

    hosts: str
    root: str = DEFAULT_ROOT
    auth: str = ""
    acl: Acl = "open"
    tls: Tls | None = None
    session_timeout_ms: int = 20_000
    connection_timeout_ms: int = 15_000
    retry_times: int = 5
    retry_interval_ms: int = 1_000
    retry_interval_ceiling_ms: int = 30_000
    retry_for_ms: int = DEFAULT_MS

    def __post_init__(self) -> None:
        for host in self.hosts.split(","):
            if not _HOST.fullmatch(host):
                raise ConfigError.illegal("zookeeper hosts", host, "host or host:port")
        check_root(self.root)
        if self.acl not in {"open", "creator"}:
            raise ConfigError.illegal("zookeeper acl", self.acl, "open, creator")
        if self.acl == "creator" and not self.auth:
            raise ConfigError(
                "option 'zookeeper acl' is 'creator' and no auth is given: nobody could"
                " use the nodes. Add auth=digest:user:password",
                option="zookeeper acl",
                value=self.acl,
            )
        if self.auth and not all(self.auth.partition(":")):
            raise ConfigError(
                "option 'zookeeper auth' is malformed; legal: digest:user:password",
                option="zookeeper auth",
            )
        for name in _NUMBERS:
            if getattr(self, name) < (0 if name in _MAY_BE_0 else 1):
                raise ConfigError.illegal(
                    f"zookeeper {name}", getattr(self, name), "a positive number"
                )

    def __repr__(self) -> str:
        return f"ZooKeeperSettings({self.url!r})"

    @property
    def url(self) -> str:
        """Hosts and root, without options and secrets."""
        return f"zookeeper://{self.hosts}{self.root}"

    @classmethod
    def parse(
        cls, url: str, option: str = "tx.store", *, default_root: str = DEFAULT_ROOT
    ) -> ZooKeeperSettings:
        """Read ``zookeeper://h1:2181,…/root?auth=digest:user:password``.

        A ConfigError does not repeat possible secrets.
        """
        try:
            parts = urlsplit(url)
        except ValueError:  # such as half of the brackets of an address
            raise _malformed(option) from None
        given = parse_qsl(parts.query, keep_blank_values=True)
        options = dict(given)
        known = {"auth", "acl", *TLS_OPTIONS, *_NUMBERS}
        if parts.scheme != "zookeeper" or "@" in parts.netloc or parts.fragment:
            raise _malformed(option)
        if len(options) != len(given) or not set(options) <= known:
            raise _malformed(option, ": an option is unknown or given twice")
        scheme, _, auth = options.pop("auth", "digest:").partition(":")
        if scheme != "digest":
            raise _malformed(option, ": the only kind of auth is digest")
        acl = options.pop("acl", "creator" if auth else "open")
        tls = {name: options.pop(name) for name in TLS_OPTIONS & options.keys()}
        return cls(
            hosts=parts.netloc,
            root=parts.path.rstrip("/") or default_root,
            auth=auth,
            acl=cast("Acl", acl),
            tls=tls_of(tls),
            **{name: _number(name, text) for name, text in options.items()},
        )


_NUMBERS = [each.name for each in fields(ZooKeeperSettings) if each.type == "int"]


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError.illegal(f"zookeeper {name}", text, "a positive number")
    return int(text)


def _malformed(option: str, reason: str = "") -> ConfigError:
    return ConfigError(
        f"option '{option}' is no ZooKeeper URL{reason}; legal: {_LEGAL}", option=option
    )
