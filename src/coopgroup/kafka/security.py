"""The connection settings of a user's configuration, for the connections of the group RPCs.

The user writes ONE configuration, in the keys of librdkafka. confluent-kafka gets it as it is for
fetching; this file maps the same keys to what kafka-python's connection takes. So both clients
reach the same brokers in the same way, or the configuration is refused: a connection setting is
never left out silently, because a security setting that only one of two connections honours is a
hole.

Rules of this file: `CONNECTION_SETTINGS` is the only list of keys. Each is honoured, honoured for
some values only, or means the fetching client only (with the reason; the documentation prints
this table). Certificates and keys are loaded here, once, so that a wrong file is an error of the
constructor and not of some later reconnect.

Source of the keys and of their defaults: CONFIGURATION.md of librdkafka 2.x.
"""

from __future__ import annotations

import enum
import importlib.util
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from attrs import define, field, frozen
from kafka.net.sasl.oauth import AbstractTokenProvider

from coopgroup.errors import ConfigurationError

__all__ = [
    "CONNECTION_SETTINGS",
    "ConnectionSettings",
    "OAuthTokenSource",
    "Setting",
    "Verdict",
    "read_connection_settings",
]

PORT_DEFAULT: Final = 9092
# Java's client lets a token live for this share of its lifetime before it asks for the next one.
TOKEN_LIFE_SHARE: Final = 0.8
OAUTH_PLAIN_RESULT: Final = 2
OAUTH_FULL_RESULT: Final = 4
INT32_MAX: Final = 2**31 - 1


class Verdict(enum.Enum):
    """What coopgroup makes of a connection setting.

    Attributes:
        HONOURED: both clients follow it.
        LIMITED: only the values listed beside it are accepted, all others are refused.
        FETCH_ONLY: it speaks about librdkafka's own connections and has no meaning for ours.
    """

    HONOURED = "honoured"
    LIMITED = "limited"
    FETCH_ONLY = "fetch only"


@frozen
class Setting:
    """One row of the table.

    Attributes:
        verdict: see `Verdict`.
        allowed: the accepted values of a limited setting, in lower case; empty accepts none.
        reason: why; for a refused value it ends the sentence "expected …".
    """

    verdict: Verdict
    allowed: tuple[str, ...] = ()
    reason: str = ""


def _limited(reason: str, *allowed: str) -> Setting:
    return Setting(Verdict.LIMITED, allowed, reason)


def _fetch_only(reason: str) -> Setting:
    return Setting(Verdict.FETCH_ONLY, (), reason)


_HONOURED: Final = Setting(Verdict.HONOURED)
_PEM: Final = "no such key: give PEM files or strings (ssl.certificate.*, ssl.key.*, ssl.ca.*)"
_KINIT: Final = _fetch_only(
    "librdkafka runs kinit with it; our connections use the ticket cache that kinit fills"
)
_OIDC: Final = "no such key: fetch tokens in oauth_cb, which serves both clients"

CONNECTION_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        # --- brokers and sockets ---
        "bootstrap.servers": _HONOURED,
        "metadata.broker.list": _HONOURED,
        "client.id": _HONOURED,
        "broker.address.family": _HONOURED,
        "broker.address.ttl": _fetch_only("names are looked up again at every connect"),
        "client.dns.lookup": _limited(
            "use_all_dns_ips, which both clients know", "use_all_dns_ips"
        ),
        "socket.timeout.ms": _HONOURED,
        "socket.connection.setup.timeout.ms": _HONOURED,
        "socket.keepalive.enable": _HONOURED,
        "socket.nagle.disable": _HONOURED,
        "socket.send.buffer.bytes": _HONOURED,
        "socket.receive.buffer.bytes": _HONOURED,
        "socket.blocking.max.ms": _fetch_only("deprecated in librdkafka, without effect"),
        "socket.max.fails": _fetch_only("a group RPC that times out always ends its connection"),
        "connections.max.idle.ms": _fetch_only("heartbeats keep the group's connections busy"),
        "max.in.flight.requests.per.connection": _fetch_only("the group needs few at a time"),
        "max.in.flight": _fetch_only("the group needs few at a time"),
        "receive.message.max.bytes": _HONOURED,
        "reconnect.backoff.ms": _HONOURED,
        "reconnect.backoff.max.ms": _HONOURED,
        "reconnect.backoff.jitter.ms": _fetch_only("deprecated in librdkafka, without effect"),
        "metadata.max.age.ms": _HONOURED,
        "metadata.recovery.strategy": _fetch_only("look-ups always try the bootstrap brokers too"),
        "metadata.recovery.rebootstrap.trigger.ms": _fetch_only(
            "look-ups always try the bootstrap brokers too"
        ),
        "api.version.request": _HONOURED,
        "api.version.request.timeout.ms": _fetch_only("the set-up time-out bounds the negotiation"),
        "api.version.fallback.ms": _fetch_only("versions are negotiated at every connect"),
        "broker.version.fallback": _HONOURED,  # where api.version.request is false
        # --- security ---
        "security.protocol": _HONOURED,
        "enable.ssl.certificate.verification": _HONOURED,
        "ssl.endpoint.identification.algorithm": _HONOURED,
        "ssl.ca.location": _HONOURED,
        "ssl.ca.pem": _HONOURED,
        "ssl.certificate.location": _HONOURED,
        "ssl.certificate.pem": _HONOURED,
        "ssl.key.location": _HONOURED,
        "ssl.key.pem": _HONOURED,
        "ssl.key.password": _HONOURED,
        "ssl.crl.location": _HONOURED,
        "ssl.cipher.suites": _HONOURED,
        "ssl.ca.certificate.stores": _limited("no such key: use ssl.ca.location or ssl.ca.pem"),
        "ssl.curves.list": _limited("no such key: Python's TLS chooses the curves"),
        "ssl.sigalgs.list": _limited("no such key: Python's TLS chooses the signatures"),
        "ssl.keystore.location": _limited(_PEM),
        "ssl.keystore.password": _limited(_PEM),
        "ssl.engine.location": _limited(_PEM),
        "ssl.engine.id": _limited(_PEM),
        "ssl.providers": _limited(_PEM),
        "ssl.certificate.verify_cb": _limited("no such key: Python's TLS verifies certificates"),
        "sasl.mechanism": _HONOURED,
        "sasl.mechanisms": _HONOURED,
        "sasl.username": _HONOURED,
        "sasl.password": _HONOURED,
        "sasl.kerberos.service.name": _HONOURED,
        "sasl.kerberos.principal": _KINIT,
        "sasl.kerberos.kinit.cmd": _KINIT,
        "sasl.kerberos.keytab": _KINIT,
        "sasl.kerberos.min.time.before.relogin": _KINIT,
        "oauth_cb": _HONOURED,
        "sasl.oauthbearer.config": _HONOURED,
        "sasl.oauthbearer.method": _limited("default, with tokens from oauth_cb", "default"),
        "enable.sasl.oauthbearer.unsecure.jwt": _limited(
            "false, with tokens from oauth_cb", "false"
        ),
        "sasl.oauthbearer.client.id": _limited(_OIDC),
        "sasl.oauthbearer.client.secret": _limited(_OIDC),
        "sasl.oauthbearer.scope": _limited(_OIDC),
        "sasl.oauthbearer.extensions": _limited(_OIDC),
        "sasl.oauthbearer.token.endpoint.url": _limited(_OIDC),
        "https.ca.location": _limited(_OIDC),
        "https.ca.pem": _limited(_OIDC),
    }
)
# A key of these families that the table does not know would be a setting left out silently.
FAMILIES: Final = (
    "api.version.",
    "broker.",
    "connections.",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
    "ssl_",
)
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (*_PASSWORD_MECHANISMS, "GSSAPI", "OAUTHBEARER")
_ADDRESS_FAMILIES: Final[Mapping[str, socket.AddressFamily]] = MappingProxyType(
    {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}
)


@define(kw_only=True)
class OAuthTokenSource:
    """Tokens from confluent-kafka's `oauth_cb`, in the form that kafka-python asks for.

    The callback gets the text of `sasl.oauthbearer.config` and returns (token, expiry in seconds
    since the epoch), or (token, expiry, principal, extensions). A token is used again until
    80 % of its life is over.

    `renew` may wait for a token service and therefore runs on a thread of its own, before a
    connection is made; `token` is what the connection's loop calls, and as a rule only reads.
    """

    callback: Callable[[str], tuple[Any, ...]]
    argument: str
    clock: Callable[[], float] = time.time
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _token: str = field(default="", init=False)
    _extensions: dict[str, str] = field(factory=dict, init=False)
    _renew_at: float = field(default=0.0, init=False)

    def renew(self) -> None:
        """Ask the callback for a token unless the last one is still good.

        Raises:
            ConfigurationError: the callback returned something else than a token.
            Exception: whatever the callback raises.
        """
        with self._lock:
            now = self.clock()
            if self._token and now < self._renew_at:
                return
            answer = self.callback(self.argument)
            if len(answer) not in {OAUTH_PLAIN_RESULT, OAUTH_FULL_RESULT}:
                raise ConfigurationError(
                    "oauth_cb",
                    f"{len(answer)} values",
                    "(token, expiry_s) or (token, expiry_s, principal, extensions)",
                )
            self._token = str(answer[0])
            self._renew_at = now + (float(answer[1]) - now) * TOKEN_LIFE_SHARE
            if len(answer) == OAUTH_FULL_RESULT:
                self._extensions = {str(key): str(value) for key, value in answer[3].items()}

    def token(self) -> str:
        """Return a token that is good now (the name is kafka-python's)."""
        self.renew()
        return self._token

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions (KIP-342) that came with the token."""
        return dict(self._extensions)


# kafka-python checks the type; being registered spares us inheriting from its class.
AbstractTokenProvider.register(OAuthTokenSource)


@frozen(kw_only=True)
class ConnectionSettings:
    """How to reach and convince the brokers.

    Attributes:
        bootstrap_servers: (host, port) in the user's order.
        client_id: name of this client in the brokers' logs and quotas.
        request_timeout_ms: a request without an answer for so long has failed.
        connect_timeout_ms: bound of connect, TLS and SASL together.
        reconnect_backoff_ms: first wait after a failed connect; it doubles with each failure.
        reconnect_backoff_max_ms: longest such wait.
        metadata_max_age_ms: the list of brokers is read again after so long.
        address_family: which IP family to use.
        socket_options: (level, option, value) for every socket.
        ssl_context: None without TLS.
        token_source: OAuth tokens, None with every other mechanism.
        connection: further arguments of kafka-python's connection.
        api_version: brokers to speak like, (2, 3) say, for librdkafka's mock; None negotiates.
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
    connection: Mapping[str, Any]
    api_version: tuple[int, ...] | None = None


def read_connection_settings(configuration: Mapping[str, Any]) -> ConnectionSettings:
    """Read the connection settings of a configuration; keys of other matters are left alone.

    Args:
        configuration: the user's configuration in the keys of confluent_kafka.Consumer.

    Raises:
        ConfigurationError: a connection setting is unknown, wrong, contradicts another one, or
            cannot be honoured on the group's connections.
    """
    _refuse_what_we_cannot_do(configuration)
    protocol = _choice(configuration, "security.protocol", _PROTOCOLS, "plaintext")
    sasl, token_source = _sasl_arguments(configuration) if "sasl" in protocol else ({}, None)
    receive_max = _whole(configuration, "receive.message.max.bytes", 100_000_000, 1000)
    reconnect_backoff_ms = _whole(configuration, "reconnect.backoff.ms", 50, 0)
    return ConnectionSettings(
        bootstrap_servers=_bootstrap_servers(configuration),
        client_id=str(configuration.get("client.id", "coopgroup")),
        request_timeout_ms=_whole(configuration, "socket.timeout.ms", 30_000, 10),
        connect_timeout_ms=_whole(configuration, "socket.connection.setup.timeout.ms", 10_000, 10),
        reconnect_backoff_ms=max(reconnect_backoff_ms, 1),
        # librdkafka waits up to 10 s; a member that waits so long loses its session.
        reconnect_backoff_max_ms=max(
            _whole(configuration, "reconnect.backoff.max.ms", 1_000, 0), reconnect_backoff_ms, 1
        ),
        metadata_max_age_ms=_whole(configuration, "metadata.max.age.ms", 900_000, 1),
        address_family=_ADDRESS_FAMILIES[
            _choice(configuration, "broker.address.family", tuple(_ADDRESS_FAMILIES), "any")
        ],
        socket_options=_socket_options(configuration),
        ssl_context=_ssl_context(configuration) if "ssl" in protocol else None,
        token_source=token_source,
        api_version=_api_version(configuration),
        connection=MappingProxyType(
            {
                "security_protocol": protocol.upper(),
                "receive_message_max_bytes": receive_max,
                **sasl,
            }
        ),
    )


def _refuse_what_we_cannot_do(configuration: Mapping[str, Any]) -> None:
    for key in sorted(configuration):
        setting = CONNECTION_SETTINGS.get(key)
        if setting is None:
            if key.startswith(FAMILIES):
                raise ConfigurationError(
                    key, configuration[key], "a connection setting that coopgroup knows"
                )
            continue
        value = _text(configuration[key])
        if setting.verdict is Verdict.LIMITED and value.lower() not in setting.allowed:
            raise ConfigurationError(key, _shown(key, configuration[key]), setting.reason)


def _shown(key: str, value: object) -> object:
    """The value as an error may show it: not a secret."""
    return "***" if key.endswith((".secret", ".password", ".pem")) else value


def _text(value: object) -> str:
    """Return a value as librdkafka spells it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _choice(
    configuration: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str
) -> str:
    value = _text(configuration.get(key, default)).lower()
    if value not in allowed:
        raise ConfigurationError(key, configuration[key], "one of " + ", ".join(allowed))
    return value


def _switch(configuration: Mapping[str, Any], key: str, *, default: bool) -> bool:
    return _choice(configuration, key, ("true", "false"), _text(default)) == "true"


def _api_version(configuration: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The version that brokers are taken to have if it is not negotiated.

    librdkafka's mock broker knows no newer request for it than the first, to which kafka-python
    cannot read the answer.
    """
    key = "broker.version.fallback"
    if _switch(configuration, "api.version.request", default=True):
        return None
    numbers = _text(configuration.get(key, "0.10.0")).split(".")
    if not all(number.isdigit() for number in numbers) or len(numbers) < 2:
        raise ConfigurationError(key, configuration.get(key), "a version of Kafka such as 2.3.0")
    return tuple(int(number) for number in numbers[:2])


def _whole(configuration: Mapping[str, Any], key: str, default: int, minimum: int) -> int:
    value = configuration.get(key, default)
    try:
        number = int(_text(value))
    except ValueError:
        number = -1
    if not minimum <= number <= INT32_MAX:
        raise ConfigurationError(key, value, f"a whole number from {minimum} to {INT32_MAX}")
    return number


def _bootstrap_servers(configuration: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    key = "bootstrap.servers" if "bootstrap.servers" in configuration else "metadata.broker.list"
    servers = [part.strip() for part in _text(configuration.get(key)).split(",") if part.strip()]
    if not servers:
        raise ConfigurationError(
            "bootstrap.servers", configuration.get(key, ""), "HOST:PORT, more after commas"
        )
    return tuple(_server(key, server) for server in servers)


def _server(key: str, server: str) -> tuple[str, int]:
    """Split "PROTOCOL://HOST:PORT"; IPv6 addresses stand in brackets."""
    address = server.rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT_DEFAULT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ConfigurationError(key, server, "HOST:PORT, more after commas")
    return host, int(port)


def _socket_options(configuration: Mapping[str, Any]) -> tuple[tuple[int, int, int], ...]:
    options = []
    # Group RPCs are small and wait for their answers: Nagle's delay only harms here.
    if _switch(configuration, "socket.nagle.disable", default=True):
        options.append((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1))
    if _switch(configuration, "socket.keepalive.enable", default=False):
        options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    for key, option in (
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ):
        size = _whole(configuration, key, 0, 0)
        if size:
            options.append((socket.SOL_SOCKET, option, size))
    return tuple(options)


def _sasl_arguments(
    configuration: Mapping[str, Any],
) -> tuple[dict[str, Any], OAuthTokenSource | None]:
    key = "sasl.mechanism" if "sasl.mechanism" in configuration else "sasl.mechanisms"
    mechanism = _text(configuration.get(key, "GSSAPI")).upper()
    if mechanism not in _MECHANISMS:
        raise ConfigurationError(key, configuration[key], "one of " + ", ".join(_MECHANISMS))
    arguments: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism in _PASSWORD_MECHANISMS:
        arguments |= _password_arguments(configuration, mechanism)
    elif mechanism == "GSSAPI":
        if importlib.util.find_spec("gssapi") is None:
            raise ConfigurationError(key, mechanism, "the Python package gssapi to be installed")
        arguments["sasl_kerberos_service_name"] = _text(
            configuration.get("sasl.kerberos.service.name", "kafka")
        )
    else:
        token_source = _token_source(configuration)
        return {**arguments, "sasl_oauth_token_provider": token_source}, token_source
    return arguments, None


def _password_arguments(configuration: Mapping[str, Any], mechanism: str) -> dict[str, str]:
    username, password = (
        _text(configuration.get(key)) for key in ("sasl.username", "sasl.password")
    )
    for key, value in (("sasl.username", username), ("sasl.password", password)):
        if not value:
            raise ConfigurationError(key, value, f"a value, because the mechanism is {mechanism}")
    if mechanism != "PLAIN":
        # RFC 5802, saslname: kafka-python sends the name as it is given.
        username = username.replace("=", "=3D").replace(",", "=2C")
    return {"sasl_plain_username": username, "sasl_plain_password": password}


def _token_source(configuration: Mapping[str, Any]) -> OAuthTokenSource:
    callback = configuration.get("oauth_cb")
    if not callable(callback):
        raise ConfigurationError("oauth_cb", callback, "a callable, because it is OAUTHBEARER")
    return OAuthTokenSource(
        callback=callback, argument=_text(configuration.get("sasl.oauthbearer.config"))
    )


def _ssl_context(configuration: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    identification = _choice(
        configuration, "ssl.endpoint.identification.algorithm", ("none", "https"), "https"
    )
    verify = _switch(configuration, "enable.ssl.certificate.verification", default=True)
    context.check_hostname = verify and identification == "https"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    _load_authorities(context, configuration)
    _load_certificate(context, configuration)
    crl = _text(configuration.get("ssl.crl.location"))
    if crl:
        _load("ssl.crl.location", crl, lambda: context.load_verify_locations(cafile=crl))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    ciphers = _text(configuration.get("ssl.cipher.suites"))
    if ciphers:
        _load("ssl.cipher.suites", ciphers, lambda: context.set_ciphers(ciphers))
    return context


def _load(key: str, value: str, load: Callable[[], object]) -> None:
    """Run a loader of Python's TLS and name the key in its error."""
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(key, value, f"what TLS can load ({reason})") from error


def _load_authorities(context: ssl.SSLContext, configuration: Mapping[str, Any]) -> None:
    location = _text(configuration.get("ssl.ca.location"))
    pem = _text(configuration.get("ssl.ca.pem"))
    if pem:
        _load("ssl.ca.pem", "(PEM)", lambda: context.load_verify_locations(cadata=pem))
    elif location and location != "probe":
        _load("ssl.ca.location", location, lambda: _load_locations(context, location))
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
    if not chain and not key:
        return
    if not chain:
        raise ConfigurationError("ssl.certificate.location", "", f"a value, as {key_key} has one")
    if not key:
        raise ConfigurationError("ssl.key.location", "", f"a value, as {chain_key} has one")
    # An empty password, not None: None would let OpenSSL ask at the terminal.
    password = _text(configuration.get("ssl.key.password"))
    shown = "(PEM)" if chain_key.endswith(".pem") else chain
    # Python's TLS reads files only; the folder can be read by this user alone.
    with tempfile.TemporaryDirectory(prefix="coopgroup-") as folder:
        chain_file = _as_file(chain, chain_key, Path(folder))
        key_file = _as_file(key, key_key, Path(folder))
        _load(chain_key, shown, lambda: context.load_cert_chain(chain_file, key_file, password))


def _one_of(configuration: Mapping[str, Any], pem_key: str, location_key: str) -> tuple[str, str]:
    """Return the value that is given and its key; a PEM string wins, as in librdkafka."""
    pem = _text(configuration.get(pem_key))
    if pem:
        return pem, pem_key
    return _text(configuration.get(location_key)), location_key


def _as_file(value: str, key: str, folder: Path) -> Path:
    """Return the file of a location, or of a PEM string that is written into the folder."""
    if not key.endswith(".pem"):
        return Path(value)
    file = folder / key
    file.write_text(value, encoding="ascii", errors="replace")
    return file
