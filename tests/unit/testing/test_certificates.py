"""Certificates of a cluster with TLS."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from coopgroup.testing.certificates import write_certificates
from coopgroup.testing.errors import ToolMissingError


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """Handshake in memory; return the name in the client's certificate, or "" without one."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = server.wrap_bio(to_server, to_client, server_side=True)
    asked = client.wrap_bio(to_client, to_server, server_hostname=host)
    for side in (asked, served, asked, served):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    der = served.getpeercert(binary_form=True)
    if der is None:
        return ""
    subject = x509.load_der_x509_certificate(der).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_certificates(tmp_path / "tls")
    return tmp_path / "tls"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_server_and_client_trust_each_other(folder: Path, host: str) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    server.load_cert_chain(folder / "server.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_cert_chain(folder / "client.crt", folder / "client.key")
    assert shake_hands(server, client, host) == "coopgroup test client"


def test_authority_of_another_cluster_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    write_certificates(tmp_path / "other")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "server.pem")
    client = ssl.create_default_context(cafile=str(tmp_path / "other" / "ca.pem"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "127.0.0.1")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("coopgroup.testing.certificates.find_spec", lambda name: None)
    with pytest.raises(ToolMissingError, match="install it with pip install trustme"):
        write_certificates(tmp_path / "tls")
    assert not (tmp_path / "tls").exists()
