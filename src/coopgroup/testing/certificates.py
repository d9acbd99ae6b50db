"""Certificates for one test cluster, as PEM files: an authority, a server and a client.

trustme makes them. Its keys are P-256: their creation takes a millisecond, RSA would take half a
second.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from coopgroup.testing.errors import ToolMissingError

__all__ = ["write_certificates"]


def write_certificates(folder: Path) -> None:
    """Write `ca.pem`, `server.pem` (key and chain), `client.crt` and `client.key`.

    Raises:
        ToolMissingError: the Python package `trustme` is not installed.
    """
    if find_spec("trustme") is None:
        raise ToolMissingError("the Python package trustme", "pip install trustme")
    # Imported late: only clusters with TLS need it, and coopgroup does not depend on it.
    import trustme  # noqa: PLC0415

    folder.mkdir(mode=0o700)
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1", common_name="localhost")
    client = authority.issue_cert("client.test", common_name="coopgroup test client")
    ca_pem = authority.cert_pem.bytes()
    (folder / "ca.pem").write_bytes(ca_pem)
    (folder / "server.pem").write_bytes(
        _pkcs8(server.private_key_pem.bytes()) + server.cert_chain_pems[0].bytes() + ca_pem
    )
    (folder / "client.crt").write_bytes(client.cert_chain_pems[0].bytes())
    (folder / "client.key").write_bytes(_pkcs8(client.private_key_pem.bytes()))


def _pkcs8(key_pem: bytes) -> bytes:
    """Return a private key as unencrypted PKCS#8, the only form that Kafka's PEM store reads."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - trustme needs it

    return serialization.load_pem_private_key(key_pem, password=None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
