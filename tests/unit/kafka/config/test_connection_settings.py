"""One configuration with librdkafka's keys gives both clients the same connections."""

import socket
from typing import Any

import pytest
from kafka.net.connection import KafkaConnection

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.connection_settings import ConnectionSettings, read_connection_settings
from tests.support.programs import output_of

SERVER = {"bootstrap.servers": "localhost:9092"}
HOST_PORT = "HOST:PORT, more after commas; an address of IPv6 in brackets: [::1]:9092"
# librdkafka reads an address without brackets in another way: the member would fetch no record.
NO_SERVERS = (
    *("host:x", "host:70000", "host:0", "host:", ":9092"),
    *("::1", "::1:9092", "[::1", "::1]", "::1]:9092", "[[::1]]:9092", "[]:9092", "[::1]9092"),
)
SCRAM = SERVER | {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "user",
    "sasl.password": "secret",
}
OIDC = SERVER | {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.oauthbearer.client.id": "u",
    "sasl.oauthbearer.client.secret": "p",
}

NO_SCHEME = "HOST:PORT without ://, or plaintext:// as security.protocol says"


def test_settings_follow_when_everything_about_sockets_is_given() -> None:
    assert read_connection_settings(
        {
            "bootstrap.servers": "PLAINTEXT://a:1, b ,[::1]:3,[fe80::1%eth0]",
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
        bootstrap_servers=(("a", 1), ("b", 9092), ("::1", 3), ("fe80::1%eth0", 9092)),
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


def test_connection_arguments_are_known_to_kafka_python() -> None:
    """kafka-python silently drops unknown arguments."""
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
def test_version_is_fixed_or_negotiated(
    changes: dict[str, Any], expected: tuple[int, ...] | None
) -> None:
    """The fallback version counts only if negotiation is off, as in librdkafka."""
    assert read_connection_settings(SERVER | changes).api_version == expected


def test_setting_without_effect_is_refused(subtests: pytest.Subtests) -> None:
    for key, value, expected in [
        ("bootstrap.servers", "", HOST_PORT),
        *(("bootstrap.servers", server, HOST_PORT) for server in NO_SERVERS),
        ("bootstrap.servers", "http://host:9092", NO_SCHEME),
        ("bootstrap.servers", "SASL_SSL://host:9092", NO_SCHEME),
        ("security.protocol", "tls", "one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("broker.address.family", "v5", "one of any, v4, v6"),
        ("socket.timeout.ms", "soon", "a whole number from 10 to 300000"),
        ("socket.timeout.ms", -1, "a whole number from 10 to 300000"),
        ("socket.keepalive.enable", "maybe", "one of true, false"),
        ("ssl.new.option", "x", "a connection setting that coopgroup knows"),
        ("sasl.oauthbearer.method", "jwt", "default, with tokens from oauth_cb, or oidc"),
        ("client.dns.lookup", "x", "use_all_dns_ips, which both clients know"),
        (
            "ssl.engine.location",
            "engine.so",
            "no such key: give PEM files or strings (ssl.certificate.*, ssl.key.*, ssl.ca.*)",
        ),
    ]:
        with subtests.test(key=key, value=value):
            with pytest.raises(ConfigurationError) as caught:
                read_connection_settings(SERVER | {key: value})
            # Errors show a value only if its key is known to be harmless.
            shown = "(not shown)" if key in {"ssl.new.option", "ssl.engine.location"} else value
            assert (caught.value.field, caught.value.value) == (key, shown)
            assert caught.value.expected == expected
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keys", [SCRAM, OIDC], ids=["SCRAM", "OIDC"])
def test_modules_of_sasl_are_imported_on_the_thread_of_the_caller(keys: dict[str, str]) -> None:
    """A child that is forked while another thread imports a module can never import it."""
    late = ("coopgroup.kafka.rpc.authentication", "http.client", "urllib.error", "urllib.request")
    program = (
        "import sys\n"
        "from coopgroup.kafka.config.connection_settings import read_connection_settings\n"
        "from coopgroup.kafka.rpc.transport import load_connections\n"
        f"load_connections(read_connection_settings({keys}))\n"
        f"print(*set({late}) - set(sys.modules))\n"
    )
    assert output_of(program) == "\n"
