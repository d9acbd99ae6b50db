"""Create X.509 certificates. It imports `cryptography`, so only `certificates.py` imports it."""

from __future__ import annotations

import datetime as dt
from ipaddress import IPv4Address, IPv6Address

from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Identity", "issue", "make_authority"]

CLOCK_SLACK = dt.timedelta(hours=1)


@frozen(kw_only=True)
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        """The unencrypted key as PKCS#8 PEM, the only form that Kafka's PEM store reads."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def make_authority(name: str, validity: dt.timedelta) -> Identity:
    """Return a self-signed certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        draft(name, name, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return Identity(key=key, certificate=builder.sign(key, hashes.SHA256()))


def issue(
    authority: Identity,
    name: str,
    validity: dt.timedelta,
    *,
    addresses: tuple[IPv4Address | IPv6Address, ...],
) -> Identity:
    """Return a certificate of the authority, for `name` as host name and for the addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    names = [x509.DNSName(name), *(x509.IPAddress(address) for address in addresses)]
    builder = (
        draft(str(issuer), name, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        # Python 3.13 checks strictly and requires the id of the authority's key.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    return Identity(key=key, certificate=builder.sign(authority.key, hashes.SHA256()))


def draft(
    issuer: str, subject: str, key: ec.EllipticCurvePublicKey, validity: dt.timedelta
) -> x509.CertificateBuilder:
    """Return an unsigned certificate with names, key and dates."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + validity)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
