"""The connection settings that both clients can follow: librdkafka's keys, with a verdict for each.

The user writes ONE configuration, in the keys of librdkafka. confluent-kafka gets it unchanged for
fetching. The connections of the group RPCs follow the same keys. So both clients reach the same
brokers in the same way, or the configuration is refused. No connection setting is ignored silently:
a security setting that only one of the two connections honours is a security hole.

`CONNECTION_SETTINGS` is the only list of keys. A key is honoured, honoured for some values only, or
concerns only the fetching client (with the reason).

Source of the keys: CONFIGURATION.md of librdkafka 2.x.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attrs import frozen

from coopgroup.kafka.config.librdkafka_values import text
from coopgroup.kafka.config.shown_values import refused

__all__ = ["CONNECTION_SETTINGS", "Setting", "Verdict", "refuse_what_we_cannot_do"]


class Verdict(enum.Enum):
    """How coopgroup treats a connection setting.

    Attributes:
        HONOURED: both clients follow it.
        LIMITED: only the listed values are accepted; all others are refused.
        FETCH_ONLY: it concerns librdkafka's own connections and means nothing for coopgroup's.
    """

    HONOURED = "honoured"
    LIMITED = "limited"
    FETCH_ONLY = "fetch only"


@frozen
class Setting:
    """One row of the table.

    Attributes:
        allowed: the accepted values of a limited setting, in lower case; empty accepts none.
        reason: the reason; for a refused value it completes the sentence "expected …".
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
_ASSERTION: Final = "no such key: fetch tokens in oauth_cb, which serves both clients"
_ASSERTION_KEYS: Final = (
    *("algorithm", "file", "jwt.template.file"),
    *("private.key.file", "private.key.passphrase", "private.key.pem"),
    *("claim.aud", "claim.exp.seconds", "claim.iss", "claim.jti.include", "claim.nbf.seconds"),
    "claim.sub",
)

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
        "broker.version.fallback": _HONOURED,  # if api.version.request is false
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
        "ssl.keystore.location": _HONOURED,
        "ssl.keystore.password": _HONOURED,
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
        "sasl.oauthbearer.method": _limited(
            "default, with tokens from oauth_cb, or oidc", "default", "oidc"
        ),
        "enable.sasl.oauthbearer.unsecure.jwt": _limited(
            "false, with tokens from oauth_cb", "false"
        ),
        "sasl.oauthbearer.client.id": _HONOURED,
        "sasl.oauthbearer.client.secret": _HONOURED,
        "sasl.oauthbearer.client.credentials.client.id": _HONOURED,
        "sasl.oauthbearer.client.credentials.client.secret": _HONOURED,
        "sasl.oauthbearer.scope": _HONOURED,
        "sasl.oauthbearer.extensions": _HONOURED,
        "sasl.oauthbearer.token.endpoint.url": _HONOURED,
        "sasl.oauthbearer.sub.claim.name": _HONOURED,
        "sasl.oauthbearer.grant.type": _limited(
            "client_credentials, or tokens from oauth_cb", "client_credentials"
        ),
        "sasl.oauthbearer.metadata.authentication.type": _limited(
            "none, or tokens from oauth_cb", "none"
        ),
        **{f"sasl.oauthbearer.assertion.{name}": _limited(_ASSERTION) for name in _ASSERTION_KEYS},
        "https.ca.location": _HONOURED,
        "https.ca.pem": _HONOURED,
    }
)
# A key of these families is refused if the table lacks it. It would be ignored silently otherwise.
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


def refuse_what_we_cannot_do(configuration: Mapping[str, Any]) -> None:
    """Refuse settings that the group's connections cannot honour; ignore keys outside the families.

    Raises:
        ConfigurationError: a connection setting is unknown, or its value is not accepted.
    """
    for key in sorted(configuration):
        setting = CONNECTION_SETTINGS.get(key)
        if setting is None:
            if key.startswith(FAMILIES):
                raise refused(key, configuration[key], "a connection setting that coopgroup knows")
            continue
        value = text(configuration[key])
        if setting.verdict is Verdict.LIMITED and value.lower() not in setting.allowed:
            raise refused(key, configuration[key], setting.reason)
