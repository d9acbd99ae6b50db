"""Certificates of the group's connections: trusted authorities, and the client's own."""

import json
import ssl
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.tls import tls_context
from tests.support.programs import result_on_macos

PASSWORD = "key-password"  # noqa: S105 -- of a key made below


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a self-signed certificate, its key (plain and encrypted) and a CRL."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = datetime.now(tz=UTC)
    revoked = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject)
        .last_update(now)
        .next_update(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "crl.pem").write_bytes(revoked.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    (folder / "locked.pem").write_bytes(key.private_bytes(pem, pkcs8, encryption))
    return folder


@pytest.mark.parametrize(
    ("configuration", "check_hostname", "verify_mode"),
    [
        ({}, True, ssl.CERT_REQUIRED),
        ({"ssl.endpoint.identification.algorithm": "none"}, False, ssl.CERT_REQUIRED),
        ({"enable.ssl.certificate.verification": False}, False, ssl.CERT_NONE),
    ],
)
def test_verification_follows_when_it_is_given(
    configuration: Mapping[str, Any], check_hostname: bool, verify_mode: ssl.VerifyMode
) -> None:
    context = tls_context(configuration)
    assert (context.check_hostname, context.verify_mode) == (check_hostname, verify_mode)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_authority_is_loaded_when_it_is_a_file_or_text(folder: Path) -> None:
    ca, crl = folder / "ca.pem", folder / "crl.pem"
    context = tls_context({"ssl.ca.location": str(ca), "ssl.crl.location": str(crl)})
    assert len(context.get_ca_certs()) == 1
    assert tls_context({"ssl.ca.pem": ca.read_text("ascii")}).get_ca_certs() == (
        context.get_ca_certs()
    )
    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert context.cert_store_stats()["crl"] == 1


def test_certificate_is_loaded_when_it_is_files_or_text(folder: Path) -> None:
    certificate, key, locked = (
        (folder / name).read_text(encoding="ascii") for name in ("ca.pem", "key.pem", "locked.pem")
    )
    as_files = {
        "ssl.certificate.location": str(folder / "ca.pem"),
        "ssl.key.location": str(folder / "locked.pem"),
        "ssl.key.password": PASSWORD,
    }
    as_text = {"ssl.certificate.pem": certificate, "ssl.key.pem": key}
    locked_text = as_text | {"ssl.key.pem": locked, "ssl.key.password": PASSWORD}
    for configuration in (as_files, as_text, locked_text):
        assert tls_context(configuration).verify_mode is ssl.CERT_REQUIRED


STORE_PASSWORD = "store-canary-é"  # noqa: S105 -- of the keystores made below


def keystore(path: Path, folder: Path, *, has_key: bool = True) -> dict[str, str]:
    """Write a keystore of the certificate in `folder`, and return the keys for it."""
    certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    data = pkcs12.serialize_key_and_certificates(
        b"client",
        key if has_key else None,
        certificate if has_key else None,
        [certificate],
        serialization.BestAvailableEncryption(STORE_PASSWORD.encode()),
    )
    path.write_bytes(data)
    return {"ssl.keystore.location": str(path), "ssl.keystore.password": STORE_PASSWORD}


def certificates(folder: Path, tmp_path: Path) -> list[dict[str, str]]:
    """Return each way to give a certificate and its key."""
    files = {
        "ssl.certificate.location": str(folder / "ca.pem"),
        "ssl.key.location": str(folder / "key.pem"),
    }
    texts = {
        "ssl.certificate.pem": (folder / "ca.pem").read_text("ascii"),
        "ssl.key.pem": (folder / "key.pem").read_text("ascii"),
    }
    return [
        files,
        texts,
        {"ssl.ca.pem": texts["ssl.certificate.pem"], **texts},
        dict([*files.items()][:1] + [*texts.items()][1:]),
        dict([*texts.items()][:1] + [*files.items()][1:]),
        keystore(tmp_path / "store.p12", folder),
    ]


def test_certificate_needs_no_folder_for_temporary_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container with a read-only root has none."""
    monkeypatch.setattr(tempfile, "tempdir", "/proc/no-folder")
    monkeypatch.setenv("TMPDIR", "/proc/no-folder")
    before = len([*Path("/proc/self/fd").iterdir()])
    for configuration in certificates(folder, tmp_path):
        assert tls_context(configuration).verify_mode is ssl.CERT_REQUIRED
    assert len([*Path("/proc/self/fd").iterdir()]) == before


LOAD_ON_MACOS = """
import ssl
from coopgroup.kafka.config.tls import tls_context
seen = []
load = ssl.SSLContext.load_cert_chain
def watched(self, *more, **named):
    seen.extend(os.listdir(os.environ["TMPDIR"]))
    load(self, *more, **named)
ssl.SSLContext.load_cert_chain = watched
for one in json.loads(sys.argv[1]):
    tls_context(one)
print(json.dumps([seen, os.listdir(os.environ["TMPDIR"])]))
"""
REFUSED_ON_MACOS = """
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.tls import tls_context
os.environ["TMPDIR"] = "/no/folder"
try:
    tls_context(json.loads(sys.argv[1]))
except ConfigurationError as error:
    print(json.dumps(str(error)))
"""


def test_no_file_of_a_key_has_a_name_where_files_in_memory_are_missing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed would leave it behind."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    given = certificates(folder, tmp_path)
    assert result_on_macos(LOAD_ON_MACOS, json.dumps(given)) == [[], []]
    refused = [result_on_macos(REFUSED_ON_MACOS, json.dumps(one)) for one in (given[1], given[-1])]
    for key, said in zip(("ssl.certificate.pem", "ssl.keystore.location"), refused, strict=True):
        assert said.startswith(f"{key}: got ")
        assert "TMPDIR to be a folder to write in (No such file or directory)" in said


def test_keystore_that_cannot_be_used_is_refused_without_its_password(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = keystore(tmp_path / "store.p12", folder)
    empty = keystore(tmp_path / "empty.p12", folder, has_key=False)
    location, password = "ssl.keystore.location", "ssl.keystore.password"
    for given, key, said in (
        (right | {password: "wrong-canary"}, location, f"a PKCS#12 file that {password} opens"),
        (right | {password: ""}, password, f"a value, because {location} is given"),
        (right | {location: "/no/such/file"}, location, "(No such file or directory)"),
        (right | {location: str(folder / "ca.pem")}, location, "a PKCS#12 file that"),
        (empty, location, "with a certificate and its private key"),
        (right | {"ssl.key.pem": "x"}, location, "nothing, because ssl.key.pem is given"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            tls_context(given)
        assert caught.value.field == key
        assert said in str(caught.value)
        assert "canary" not in str(caught.value)
        assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigurationError, match="package cryptography to be installed"):
        tls_context(right)


def test_file_or_text_that_tls_cannot_load_is_refused_and_no_text_is_shown(folder: Path) -> None:
    certificate, key = folder / "ca.pem", folder / "locked.pem"
    text = {
        "ssl.certificate.pem": certificate.read_text("ascii"),
        "ssl.key.pem": key.read_text("ascii"),
    }
    refused: list[tuple[dict[str, Any], str, object]] = [
        ({"ssl.ca.location": "/no/such/file"}, "ssl.ca.location", "/no/such/file"),
        ({"ssl.crl.location": "/no/such/file"}, "ssl.crl.location", "/no/such/file"),
        ({"ssl.cipher.suites": "no-such-suite"}, "ssl.cipher.suites", "no-such-suite"),
        (text | {"ssl.key.password": ""}, "ssl.certificate.pem", "(not shown)"),
        (text | {"ssl.key.password": "wrong"}, "ssl.certificate.pem", "(not shown)"),
    ]
    for given, field, value in refused:
        with pytest.raises(ConfigurationError, match="what TLS can load") as caught:
            tls_context(given)
        assert (caught.value.field, caught.value.value) == (field, value)
