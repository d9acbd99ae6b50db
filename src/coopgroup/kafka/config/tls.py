"""TLS of the group's own connections: librdkafka's ssl.* and https.* keys as TLS contexts.

Rule of this file: certificates and keys are loaded here, once, so that a wrong file fails in the
constructor and not in a later reconnect.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from coopgroup.extras import install_command
from coopgroup.kafka.config.shown_values import refused
from coopgroup.kafka.config.values import choice, switch, text
from coopgroup.nameless_file import nameless_file, path_of

_STORE: Final = "ssl.keystore.location"
_STORE_PASSWORD: Final = "ssl.keystore.password"  # noqa: S105 -- the key, not a value


def tls_context(configuration: Mapping[str, Any]) -> ssl.SSLContext:
    """Load the TLS settings of a configuration.

    Raises:
        ConfigurationError: a value is wrong, or its file cannot be loaded; the error names the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    identification = choice(configuration, "ssl.endpoint.identification.algorithm")
    verify = switch(configuration, "enable.ssl.certificate.verification")
    context.check_hostname = verify and identification == "https"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    _load_authorities(context, configuration, "ssl.ca")
    _load_certificate(context, configuration)
    crl = text(configuration.get("ssl.crl.location"))
    if crl:
        _load("ssl.crl.location", crl, lambda: context.load_verify_locations(cafile=crl))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    ciphers = text(configuration.get("ssl.cipher.suites"))
    if ciphers:
        _load("ssl.cipher.suites", ciphers, lambda: context.set_ciphers(ciphers))
    return context


def https_context(configuration: Mapping[str, Any]) -> ssl.SSLContext:
    """Load the certificates that are trusted over HTTPS; host names are always checked.

    Raises:
        ConfigurationError: they cannot be loaded; the error names the key.
    """
    location, pem = configuration.get("https.ca.location"), configuration.get("https.ca.pem")
    if text(location) and text(pem):
        raise refused("https.ca.pem", pem, "nothing, because https.ca.location is given")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_authorities(context, configuration, "https.ca")
    return context


def _load(key: str, value: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or str(error)
        raise refused(key, value, f"what TLS can load ({reason})") from None


def _load_authorities(
    context: ssl.SSLContext, configuration: Mapping[str, Any], prefix: str
) -> None:
    location = text(configuration.get(f"{prefix}.location"))
    pem = text(configuration.get(f"{prefix}.pem"))
    if pem:
        _load(f"{prefix}.pem", pem, lambda: context.load_verify_locations(cadata=pem))
    elif location and location != "probe":
        _load(f"{prefix}.location", location, lambda: _load_locations(context, location))
    else:
        context.load_default_certs()


def _load_locations(context: ssl.SSLContext, location: str) -> None:
    try:
        context.load_verify_locations(cafile=location)
    except IsADirectoryError:
        context.load_verify_locations(capath=location)


def _load_certificate(context: ssl.SSLContext, configuration: Mapping[str, Any]) -> None:
    chain, chain_key = _one_of(configuration, "ssl.certificate.pem", "ssl.certificate.location")
    key, key_key = _one_of(configuration, "ssl.key.pem", "ssl.key.location")
    store = text(configuration.get(_STORE))
    if store and (chain or key):
        raise refused(_STORE, store, f"nothing, because {chain_key if chain else key_key} is given")
    if store:
        _load_keystore(context, store, text(configuration.get(_STORE_PASSWORD)))
    if not chain and not key:
        return
    if not chain:
        raise refused("ssl.certificate.location", "", f"a value, as {key_key} has one")
    if not key:
        raise refused("ssl.key.location", "", f"a value, as {chain_key} has one")
    # An empty password: with None, OpenSSL would ask at the terminal.
    password = text(configuration.get("ssl.key.password"))
    with (
        _as_file(chain, chain_key) as chain_file,
        _as_file(key, key_key) as key_file,
    ):
        _load(chain_key, chain, lambda: context.load_cert_chain(chain_file, key_file, password))


def _load_keystore(context: ssl.SSLContext, store: str, password: str) -> None:
    """Load a certificate, its chain and its key from a PKCS#12 file."""
    if not password:
        raise refused(_STORE_PASSWORD, password, f"a value, because {_STORE} is given")
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - an extra
    except ImportError:
        expected = f"the package cryptography to be installed: {install_command('keystore')}"
        raise refused(_STORE, store, expected) from None
    try:
        found = pkcs12.load_pkcs12(Path(store).read_bytes(), password.encode())
    except OSError as error:
        raise refused(_STORE, store, f"a file that can be read ({error.strerror})") from None
    except ValueError:  # its text is the same for a wrong password and for a wrong file
        raise refused(_STORE, store, f"a PKCS#12 file that {_STORE_PASSWORD} opens") from None
    key, certificate = found.key, found.cert
    if key is None or certificate is None:
        raise refused(_STORE, store, "a PKCS#12 file with a certificate and its private key")
    # Where the file is on a disk, its blocks may stay there. So the key is encrypted, by a password
    # that is nowhere else.
    secret = secrets.token_bytes(32).hex().encode()
    pem = serialization.Encoding.PEM
    parts = [
        key.private_bytes(
            pem,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(secret),
        ),
        *(one.certificate.public_bytes(pem) for one in (certificate, *found.additional_certs)),
    ]
    with _readable(b"".join(parts), _STORE, store) as file:
        _load(_STORE, store, lambda: context.load_cert_chain(file, password=secret))


def _one_of(configuration: Mapping[str, Any], pem_key: str, location_key: str) -> tuple[str, str]:
    """Return the given value and its key; a PEM string takes precedence, as in librdkafka."""
    pem = text(configuration.get(pem_key))
    if pem:
        return pem, pem_key
    return text(configuration.get(location_key)), location_key


@contextmanager
def _as_file(value: str, key: str) -> Iterator[str]:
    """Yield the path of a file with the value, which is a path or a text."""
    if not key.endswith(".pem"):
        yield value
        return
    with _readable(value.encode("ascii", "replace"), key, value) as path:
        yield path


@contextmanager
def _readable(content: bytes, key: str, value: str) -> Iterator[str]:
    """Yield the path of a file with a content, because Python's TLS reads files only."""
    try:
        file = nameless_file(content)
    except OSError as error:
        expected = f"TMPDIR to be a folder to write in ({error.strerror})"
        raise refused(key, value, expected) from None
    with file:
        yield path_of(file)
