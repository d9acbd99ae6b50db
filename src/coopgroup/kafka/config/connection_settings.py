"""Read a user's connection settings for the connections of the group RPCs.

The user writes ONE configuration, in the keys of librdkafka. confluent-kafka gets it unchanged for
fetching. The connections of the group RPCs follow the same keys, so both clients reach the same
brokers in the same way, or the configuration is refused. No connection setting is ignored silently:
a security setting that only one of the two connections honours is a security hole.

This file maps librdkafka's keys to the arguments of kafka-python's
connection, with librdkafka's defaults. `sasl` reads the authentication, `tls` the trusted
certificates; both are imported only if the configuration asks for them.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from coopgroup.kafka.config.keys import KEYS
from coopgroup.kafka.config.shown_values import refused
from coopgroup.kafka.config.values import check_keys, choice, switch, text, whole

if TYPE_CHECKING:
    import ssl

    from coopgroup.kafka.config.sasl import OAuthTokenSource, SaslCredentials

PORT_DEFAULT: Final = 9092
_SERVERS: Final = "HOST:PORT, more after commas; an address of IPv6 in brackets: [::1]:9092"
# librdkafka reads ::1:9092 in another way: the member would join, and fetch no record. A user and a
# password before an @ would appear in logs, as part of the broker's name.
_SERVER: Final = re.compile(r"(?:\[([^\[\]@]+)\]|([^\[\]:@]+))(?::([0-9]+))?")
# A shorter time would end a connection after one or two lost packets.
_USER_TIMEOUT_MS_MIN: Final = 1_000
_KEEPALIVE: Final = "socket.keepalive.enable"
_ADDRESS_FAMILIES: Final[Mapping[str, socket.AddressFamily]] = MappingProxyType(
    {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}
)


@frozen(kw_only=True)
class ConnectionSettings:
    """Settings to reach the brokers and to authenticate.

    Attributes:
        request_timeout_ms: time after which a request without an answer has failed.
        connect_timeout_ms: bound of connect, TLS and SASL together.
        reconnect_backoff_ms: first wait after a failed connect; it doubles with each failure.
        metadata_max_age_ms: time after which the list of brokers is read again.
        dead_peer_options: (level, option, value) for every socket, if the system has the option.
            They define how soon the kernel ends a connection with a silent peer.
        api_version: assumed version of the brokers, such as (2, 3) for librdkafka's mock; None
            negotiates the version.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    address_family: socket.AddressFamily
    socket_options: tuple[tuple[int, int, int], ...]
    ssl_context: ssl.SSLContext | None
    token_source: OAuthTokenSource | None
    connection: Mapping[str, Any] = field(repr=False)
    credentials: SaslCredentials | None = None
    dead_peer_options: tuple[tuple[int, int, int], ...] = ()
    api_version: tuple[int, ...] | None = None


def read_connection_settings(
    configuration: Mapping[str, Any], *, dead_peer_ms: int | None = None
) -> ConnectionSettings:
    """Read the connection settings, which end a connection with a silent peer after `dead_peer_ms`.

    Raises:
        ConfigurationError: a connection setting is unknown, wrong, contradicts another setting, or
            cannot be honoured on the group's connections.
    """
    check_keys(configuration)
    protocol = choice(configuration, "security.protocol")
    sasl: Mapping[str, Any] = {}
    token_source = credentials = context = None
    if "sasl" in protocol:
        from coopgroup.kafka.config.sasl import sasl_arguments  # noqa: PLC0415 - slow to import

        sasl, token_source, credentials = sasl_arguments(configuration)
    if "ssl" in protocol:
        from coopgroup.kafka.config.tls import tls_context  # noqa: PLC0415 - slow to import

        context = tls_context(configuration)
    receive_max = whole(configuration, "receive.message.max.bytes")
    reconnect_backoff_ms = whole(configuration, "reconnect.backoff.ms")
    return ConnectionSettings(
        bootstrap_servers=_bootstrap_servers(configuration, protocol),
        client_id=str(configuration.get("client.id", "coopgroup")),
        request_timeout_ms=whole(configuration, "socket.timeout.ms"),
        connect_timeout_ms=whole(configuration, "socket.connection.setup.timeout.ms"),
        reconnect_backoff_ms=max(reconnect_backoff_ms, 1),
        # librdkafka waits up to 10 s. A member that waits so long loses its session.
        reconnect_backoff_max_ms=max(
            whole(configuration, "reconnect.backoff.max.ms"), reconnect_backoff_ms, 1
        ),
        metadata_max_age_ms=whole(configuration, "metadata.max.age.ms"),
        address_family=_ADDRESS_FAMILIES[choice(configuration, "broker.address.family")],
        socket_options=_socket_options(configuration),
        dead_peer_options=() if dead_peer_ms is None else _dead_peer(configuration, dead_peer_ms),
        ssl_context=context,
        token_source=token_source,
        credentials=credentials,
        api_version=_api_version(configuration),
        connection=MappingProxyType(
            {
                "security_protocol": protocol.upper(),
                "receive_message_max_bytes": receive_max,
                **sasl,
            }
        ),
    )


def _api_version(configuration: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the assumed version of the brokers, or None if versions are negotiated.

    librdkafka's mock broker supports only the first version of the negotiation request, and
    kafka-python cannot read its answer.
    """
    key = "broker.version.fallback"
    if switch(configuration, "api.version.request"):
        return None
    numbers = text(configuration.get(key, KEYS[key].default)).split(".")
    if not all(number.isdigit() for number in numbers) or len(numbers) < 2:
        raise refused(key, configuration.get(key), "a version of Kafka such as 2.3.0")
    return tuple(int(number) for number in numbers[:2])


def _bootstrap_servers(
    configuration: Mapping[str, Any], protocol: str
) -> tuple[tuple[str, int], ...]:
    key = "bootstrap.servers" if "bootstrap.servers" in configuration else "metadata.broker.list"
    servers = [part.strip() for part in text(configuration.get(key)).split(",") if part.strip()]
    if not servers:
        raise refused("bootstrap.servers", configuration.get(key, ""), _SERVERS)
    return tuple(_server(key, server, protocol) for server in servers)


def _server(key: str, server: str, protocol: str) -> tuple[str, int]:
    """Split "PROTOCOL://HOST:PORT"; IPv6 addresses are in brackets."""
    scheme, mark, address = server.rpartition("://")
    if mark and scheme.lower() != protocol:
        # librdkafka ignores such a broker. The member would join, and fetch no record.
        expected = f"HOST:PORT without ://, or {protocol}:// as security.protocol says"
        raise refused(key, server, expected)
    found = _SERVER.fullmatch(address)
    if found is None or not 0 < (port := int(found[3] or PORT_DEFAULT)) < 2**16:
        raise refused(key, server, _SERVERS)
    return found[1] or found[2], port


def _socket_options(configuration: Mapping[str, Any]) -> tuple[tuple[int, int, int], ...]:
    options = []
    # Group RPCs are small and wait for their answers, so Nagle's delay only harms.
    if switch(configuration, "socket.nagle.disable"):
        options.append((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1))
    if _KEEPALIVE in configuration and switch(configuration, _KEEPALIVE):
        options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    for key, option in (
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ):
        size = whole(configuration, key)
        if size:
            options.append((socket.SOL_SOCKET, option, size))
    return tuple(options)


def _dead_peer(
    configuration: Mapping[str, Any], within_ms: int
) -> tuple[tuple[int, int, int], ...]:
    """Return socket options that let the kernel notice a silent peer after about a given time.

    A JoinGroup may wait for minutes, so its silence proves nothing. Without these options, a
    connection that a firewall forgot would only be noticed at the end of `max.poll.interval.ms`.
    """
    options = []
    if switch(configuration, _KEEPALIVE):
        # Probes, in whole seconds, cover a connection that waits for an answer and sends nothing.
        pace_s = max(within_ms // 3_000, 1)
        probes = max((within_ms // 1_000 - pace_s) // pace_s, 1)
        options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
        options += [
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in (
                ("TCP_KEEPIDLE", pace_s),
                ("TCP_KEEPALIVE", pace_s),  # its name on macOS
                ("TCP_KEEPINTVL", pace_s),
                ("TCP_KEEPCNT", probes),
            )
            if hasattr(socket, name)
        ]
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # This covers data that was sent and not acknowledged, including probes.
        timeout_ms = max(within_ms, _USER_TIMEOUT_MS_MIN)
        options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms))
    return tuple(options)
