"""Keys in the form that Java reads."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization


def as_pkcs8(pem: bytes) -> str:
    """A private key of another PEM form."""
    key = serialization.load_pem_private_key(pem, password=None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
