"""One configuration in librdkafka's keys gives both clients the same connections."""

import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kafka.net.connection import KafkaConnection
from kafka.net.sasl.oauth import AbstractTokenProvider

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.security import (
    CONNECTION_SETTINGS,
    ConnectionSettings,
    OAuthTokenSource,
    Verdict,
    read_connection_settings,
)

SERVER = {"bootstrap.servers": "localhost:9092"}
SCRAM = SERVER | {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "user",
    "sasl.password": "secret",
}
PASSWORD = "key-password"  # noqa: S105 -- of a key made below


def test_settings_are_the_defaults_when_only_servers_are_given() -> None:
    """Nothing but the address is needed."""
    assert read_connection_settings(SERVER) == ConnectionSettings(
        bootstrap_servers=(("localhost", 9092),),
        client_id="coopgroup",
        request_timeout_ms=30_000,
        connect_timeout_ms=10_000,
        reconnect_backoff_ms=50,
        reconnect_backoff_max_ms=1_000,
        metadata_max_age_ms=900_000,
        address_family=socket.AF_UNSPEC,
        socket_options=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),),
        ssl_context=None,
        token_source=None,
        connection={"security_protocol": "PLAINTEXT", "receive_message_max_bytes": 100_000_000},
    )


def test_settings_follow_when_everything_about_sockets_is_given() -> None:
    """Every key of brokers and sockets reaches its place, as a number or as text."""
    assert read_connection_settings(
        {
            "bootstrap.servers": "PLAINTEXT://a:1, b ,[::1]:3",
            "client.id": "me",
            "socket.timeout.ms": "2000",
            "socket.connection.setup.timeout.ms": 3000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
            "metadata.max.age.ms": 1234,
            "broker.address.family": "v4",
            "socket.nagle.disable": False,
            "socket.keepalive.enable": "true",
            "socket.send.buffer.bytes": 4096,
            "socket.receive.buffer.bytes": 8192,
            "receive.message.max.bytes": 5000,
            "group.id": "not ours to read",
        }
    ) == ConnectionSettings(
        bootstrap_servers=(("a", 1), ("b", 9092), ("::1", 3)),
        client_id="me",
        request_timeout_ms=2_000,
        connect_timeout_ms=3_000,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=20,
        metadata_max_age_ms=1_234,
        address_family=socket.AF_INET,
        socket_options=(
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.SOL_SOCKET, socket.SO_SNDBUF, 4096),
            (socket.SOL_SOCKET, socket.SO_RCVBUF, 8192),
        ),
        ssl_context=None,
        token_source=None,
        connection={"security_protocol": "PLAINTEXT", "receive_message_max_bytes": 5_000},
    )


def test_password_settings_follow_when_the_mechanism_is_scram() -> None:
    """The name is escaped as RFC 5802 asks, since kafka-python sends it as it is."""
    settings = read_connection_settings(SCRAM | {"sasl.username": "a=b,c"})
    assert dict(settings.connection) == {
        "security_protocol": "SASL_PLAINTEXT",
        "receive_message_max_bytes": 100_000_000,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "a=3Db=2Cc",
        "sasl_plain_password": "secret",
    }


def test_name_is_left_alone_when_the_mechanism_is_plain() -> None:
    """PLAIN has no escapes."""
    settings = read_connection_settings(
        SCRAM | {"sasl.mechanism": "plain", "sasl.username": "a=b,c"}
    )
    assert settings.connection["sasl_plain_username"] == "a=b,c"


def test_connection_arguments_are_known_to_kafka_python() -> None:
    """kafka-python drops arguments that it does not know without a word; ours are all known."""
    oauth = SCRAM | {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("t", 0)}
    for configuration in (SERVER, SCRAM, oauth):
        arguments = read_connection_settings(configuration).connection
        assert set(arguments) <= set(KafkaConnection.DEFAULT_CONFIG)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"broker.version.fallback": "2.3.0"}, None),
        ({"api.version.request": False, "broker.version.fallback": "2.3.0"}, (2, 3)),
        ({"api.version.request": "false"}, (0, 10)),
    ],
)
def test_version_is_fixed_when_it_is_not_negotiated(
    changes: dict[str, Any], expected: tuple[int, ...] | None
) -> None:
    """The fall-back counts only where no version may be asked for, as in librdkafka."""
    assert read_connection_settings(SERVER | changes).api_version == expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("bootstrap.servers", "", "HOST:PORT, more after commas"),
        ("bootstrap.servers", "host:x", "HOST:PORT, more after commas"),
        ("bootstrap.servers", "host:70000", "HOST:PORT, more after commas"),
        ("security.protocol", "tls", "one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("broker.address.family", "v5", "one of any, v4, v6"),
        ("socket.timeout.ms", "soon", "a whole number from 10 to 2147483647"),
        ("socket.timeout.ms", -1, "a whole number from 10 to 2147483647"),
        ("socket.keepalive.enable", "maybe", "one of true, false"),
        ("ssl.new.option", "x", "a connection setting that coopgroup knows"),
        ("sasl.oauthbearer.method", "oidc", "default, with tokens from oauth_cb"),
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only", None),
        ("ssl.keystore.location", "store.p12", None),
    ],
)
def test_setting_is_refused_when_it_cannot_be_honoured(
    key: str, value: object, expected: str | None
) -> None:
    """The error is one line that names the key, the value and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        read_connection_settings(SERVER | {key: value})
    assert (caught.value.field, caught.value.value) == (key, value)
    assert caught.value.expected == (expected or CONNECTION_SETTINGS[key].reason)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism"),
        ({"sasl.username": ""}, "sasl.username"),
        ({"sasl.password": None}, "sasl.password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "oauth_cb"),
    ],
)
def test_sasl_is_refused_when_something_is_missing(changes: dict[str, Any], key: str) -> None:
    """A mechanism without what it needs fails in the constructor, not at the first connect."""
    with pytest.raises(ConfigurationError) as caught:
        read_connection_settings(SCRAM | changes)
    assert caught.value.field == key


def test_every_setting_exists_in_librdkafka() -> None:
    """The table holds no key that confluent-kafka would not know (or build without)."""
    unknown = []
    for key in sorted(CONNECTION_SETTINGS):
        try:
            Consumer({"group.id": "g", key: "no such value"}).close()
        except KafkaException as error:
            if "No such configuration property" in str(error):
                unknown.append(key)
        except (TypeError, ValueError):
            continue
    # OpenSSL engines and the Windows stores are left out of some builds of librdkafka.
    assert unknown == []


def test_every_setting_has_a_reason_when_it_is_not_honoured() -> None:
    """The documentation can say why for every key."""
    without = [
        key
        for key, setting in CONNECTION_SETTINGS.items()
        if setting.verdict is not Verdict.HONOURED and not setting.reason
    ]
    assert without == []


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate (its own authority), its key, plain and encrypted, and a CRL."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(tz=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    revoked = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(name)
        .last_update(now)
        .next_update(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    (folder / "ca.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "crl.pem").write_bytes(revoked.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    (folder / "locked.pem").write_bytes(key.private_bytes(pem, pkcs8, encryption))
    return folder


def context_of(configuration: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the TLS context of a configuration."""
    context = read_connection_settings(
        SERVER | {"security.protocol": "SSL"} | dict(configuration)
    ).ssl_context
    assert context is not None
    return context


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
    """Certificates and names are verified unless the user says otherwise."""
    context = context_of(configuration)
    assert (context.check_hostname, context.verify_mode) == (check_hostname, verify_mode)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_authority_is_loaded_when_it_is_a_file_or_text(folder: Path) -> None:
    """Both give the same single authority, in place of those of the machine."""
    text = (folder / "ca.pem").read_text(encoding="ascii")
    from_file = context_of({"ssl.ca.location": str(folder / "ca.pem")}).get_ca_certs()
    assert len(from_file) == 1
    assert context_of({"ssl.ca.pem": text}).get_ca_certs() == from_file


def test_revocations_are_checked_when_there_is_a_list(folder: Path) -> None:
    """A list of revoked certificates is loaded and switched on."""
    context = context_of(
        {
            "ssl.ca.location": str(folder / "ca.pem"),
            "ssl.crl.location": str(folder / "crl.pem"),
        }
    )
    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert context.cert_store_stats()["crl"] == 1


def test_certificate_is_loaded_when_it_is_files_or_text(folder: Path) -> None:
    """A client certificate loads from files and from text, its key locked or not."""
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
        assert context_of(configuration).verify_mode is ssl.CERT_REQUIRED


def test_ciphers_are_limited_when_they_are_given() -> None:
    """Of TLS 1.2 only the named suite is left (1.3 has its own, always on)."""
    name = "ECDHE-RSA-AES256-GCM-SHA384"
    suites = context_of({"ssl.cipher.suites": name}).get_ciphers()
    assert [suite["name"] for suite in suites if suite["protocol"] == "TLSv1.2"] == [name]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.ca.location", "/no/such/file"),
        ("ssl.crl.location", "/no/such/file"),
        ("ssl.cipher.suites", "no-such-suite"),
    ],
)
def test_file_is_refused_when_tls_cannot_load_it(key: str, value: str) -> None:
    """The error names the key at once instead of failing at the first connect."""
    with pytest.raises(ConfigurationError, match="what TLS can load") as caught:
        context_of({key: value})
    assert (caught.value.field, caught.value.value) == (key, value)


def test_text_is_not_shown_when_tls_cannot_load_it(folder: Path) -> None:
    """An error never prints a key, and a wrong password does not ask at the terminal."""
    locked = (folder / "locked.pem").read_text(encoding="ascii")
    certificate = (folder / "ca.pem").read_text(encoding="ascii")
    for password in ("", "wrong"):
        with pytest.raises(ConfigurationError) as caught:
            context_of(
                {
                    "ssl.certificate.pem": certificate,
                    "ssl.key.pem": locked,
                    "ssl.key.password": password,
                }
            )
        assert (caught.value.field, caught.value.value) == ("ssl.certificate.pem", "(PEM)")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("ssl.certificate.location", "ssl.key.location"),
        ("ssl.key.location", "ssl.certificate.location"),
    ],
)
def test_half_a_certificate_is_refused(given: str, missing: str, folder: Path) -> None:
    """A certificate without its key, or a key without certificate, is a mistake."""
    with pytest.raises(ConfigurationError) as caught:
        context_of({given: str(folder / "ca.pem")})
    assert caught.value.field == missing


# --- OAuth ---------------------------------------------------------------------------------------


def test_token_is_used_again_when_it_is_still_good() -> None:
    """The callback is asked again when 80 % of the token's life is over, and not before."""
    asked: list[str] = []
    now = 1_000.0

    def callback(argument: str) -> tuple[str, float]:
        asked.append(argument)
        return f"token-{len(asked)}", now + 100

    source = OAuthTokenSource(callback=callback, argument="text", clock=lambda: now)
    tokens = [source.token()]
    now += 79
    tokens.append(source.token())
    now += 2
    tokens.append(source.token())
    assert (tokens, asked) == (["token-1", "token-1", "token-2"], ["text", "text"])


def test_extensions_come_along_when_the_callback_gives_them() -> None:
    """The long form of the callback's result brings extensions (KIP-342)."""
    source = OAuthTokenSource(
        callback=lambda _: ("token", 2e9, "principal", {"a": 1}), argument="", clock=lambda: 1e9
    )
    assert (source.token(), source.extensions()) == ("token", {"a": "1"})
    assert isinstance(source, AbstractTokenProvider)


def test_callback_is_refused_when_it_returns_no_token() -> None:
    """A result of the wrong shape names the callback."""
    source = OAuthTokenSource(callback=lambda _: ("token",), argument="")
    with pytest.raises(ConfigurationError) as caught:
        source.renew()
    assert caught.value.field == "oauth_cb"


def test_token_source_reaches_the_connection_when_it_is_oauthbearer() -> None:
    """Both the connection and the transport, which renews it off the loop, have the source."""
    settings = read_connection_settings(
        SCRAM
        | {
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda argument: (argument, 2e9),
            "sasl.oauthbearer.config": "scope=x",
        }
    )
    assert settings.token_source is not None
    assert settings.token_source.token() == "scope=x"
    assert settings.connection["sasl_oauth_token_provider"] is settings.token_source
