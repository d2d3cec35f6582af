"""Encrypted connections to ZooKeeper, and why one was refused."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_tx.errors import ConfigError

TLS_OPTIONS = frozenset(
    {
        "tls",
        "tls_ca",
        "tls_certificate",
        "tls_key",
        "tls_key_password",
        "tls_check_hostname",
    }
)
_PORT = 2181


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """Whom to trust and what to show; servers are always verified.

    Attributes:
        ca: PEM file of the authorities; empty: those of the system.
        certificate: PEM file with the client's certificate; empty: none is shown.
        key: PEM file with its key.
        key_password: What the key is encrypted with; never shown.
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
        """Why one of the hosts cannot be spoken to; None where it is not for TLS.

        Args:
            hosts: Tried in turn, until one shakes hands.
            timeout_s: For each.
            listen_s: Under TLS 1.3 a server refuses the client's certificate only
                after the handshake: how long to wait for that.
        """
        found = None
        for host in hosts.split(","):
            try:
                self._shake_hands(host, timeout_s, listen_s)
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
        name, _, port = host.rpartition(":") if ":" in host else (host, "", _PORT)
        with (
            socket.create_connection((name.strip("[]"), int(port)), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=name.strip("[]")) as secured,
        ):
            if listen_s:
                secured.settimeout(listen_s)
                with suppress(TimeoutError):
                    secured.recv(1)


def tls_of(options: Mapping[str, str]) -> Tls | None:
    """What a URL says; any of its options but ``tls=false`` asks for TLS.

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
