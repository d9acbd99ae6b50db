"""How the connections of the group RPCs authenticate: librdkafka's sasl.* keys and `oauth_cb`."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field, frozen
from kafka.net.sasl.oauth import AbstractTokenProvider

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.librdkafka_values import text
from coopgroup.kafka.shown_values import refused

__all__ = ["OAuthTokenSource", "sasl_arguments"]

# Java's client lets a token live for this share of its lifetime before it asks for the next one.
TOKEN_LIFE_SHARE: Final = 0.8
OAUTH_PLAIN_RESULT: Final = 2
OAUTH_FULL_RESULT: Final = 4
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (*_PASSWORD_MECHANISMS, "GSSAPI", "OAUTHBEARER")


@frozen(kw_only=True)
class _Token:
    text: str = field(repr=False)
    extensions: Mapping[str, str] = field(repr=False)
    renew_at: float
    expires_at: float


@define(kw_only=True)
class OAuthTokenSource:
    """Tokens from confluent-kafka's `oauth_cb`, in the form that kafka-python asks for.

    The callback gets the text of `sasl.oauthbearer.config` and returns (token, expiry in seconds
    since the epoch), or (token, expiry, principal, extensions). A token is used again until
    80 % of its life is over.

    `renew` may wait for a token service and therefore runs on a thread of its own, before a
    connection is made. `token` is what the connection's loop calls, which must not wait: heartbeats
    go out from there. It comes again late in a token's life (KIP-368), and then gives the old token
    once more while another one is asked for.
    """

    callback: Callable[[str], tuple[Any, ...]]
    argument: str = field(repr=False)
    clock: Callable[[], float] = time.time
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _last: _Token | None = field(default=None, init=False)
    _renewing: threading.Thread | None = field(default=None, init=False)

    def renew(self) -> None:
        """Ask the callback for a token unless the last one is still good.

        Raises:
            ConfigurationError: the callback returned something else than a token.
            Exception: whatever the callback raises.
        """
        with self._lock:
            now = self.clock()
            if self._last is not None and now < self._last.renew_at:
                return
            answer = self.callback(self.argument)
            if len(answer) not in {OAUTH_PLAIN_RESULT, OAUTH_FULL_RESULT}:
                raise ConfigurationError(
                    "oauth_cb",
                    f"{len(answer)} values",
                    "(token, expiry_s) or (token, expiry_s, principal, extensions)",
                )
            expires_at = float(answer[1])
            given = answer[3] if len(answer) == OAUTH_FULL_RESULT else {}
            self._last = _Token(
                text=str(answer[0]),
                extensions={str(key): str(value) for key, value in given.items()},
                renew_at=now + (expires_at - now) * TOKEN_LIFE_SHARE,
                expires_at=expires_at,
            )

    def token(self) -> str:
        """Return a token that is good now (the name is kafka-python's).

        Raises:
            TimeoutError: the last one has expired; the connection is made anew, after `renew`.
        """
        if self._last is None:
            self.renew()
        last, now = self._last, self.clock()
        if last is None or now >= last.expires_at:
            raise TimeoutError("the OAuth token has expired, and oauth_cb gave no other one yet")
        if now >= last.renew_at:
            self._renew_aside()
        return last.text

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions (KIP-342) that came with the token."""
        return {} if self._last is None else dict(self._last.extensions)

    def _renew_aside(self) -> None:
        if self._renewing is None or not self._renewing.is_alive():
            self._renewing = threading.Thread(
                target=self._try_to_renew, name="coopgroup-token", daemon=True
            )
            self._renewing.start()

    def _try_to_renew(self) -> None:
        # Whoever asks next tries again; the errors are heard where a connection is made.
        with contextlib.suppress(Exception):
            self.renew()


# kafka-python checks the type; being registered spares us inheriting from its class.
AbstractTokenProvider.register(OAuthTokenSource)


def sasl_arguments(
    configuration: Mapping[str, Any],
) -> tuple[dict[str, Any], OAuthTokenSource | None]:
    """Read how to authenticate.

    Args:
        configuration: the user's configuration in the keys of confluent_kafka.Consumer.

    Returns:
        Arguments of kafka-python's connection, and the source of tokens among them; None with
        every mechanism but OAUTHBEARER.

    Raises:
        ConfigurationError: the mechanism is unknown, or lacks what it needs.
    """
    key = "sasl.mechanism" if "sasl.mechanism" in configuration else "sasl.mechanisms"
    mechanism = text(configuration.get(key, "GSSAPI")).upper()
    if mechanism not in _MECHANISMS:
        raise refused(key, configuration[key], "one of " + ", ".join(_MECHANISMS))
    arguments: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism in _PASSWORD_MECHANISMS:
        arguments |= _password_arguments(configuration, mechanism)
    elif mechanism == "GSSAPI":
        if importlib.util.find_spec("gssapi") is None:
            raise refused(key, mechanism, "the Python package gssapi to be installed")
        arguments["sasl_kerberos_service_name"] = text(
            configuration.get("sasl.kerberos.service.name", "kafka")
        )
    else:
        token_source = _token_source(configuration)
        return {**arguments, "sasl_oauth_token_provider": token_source}, token_source
    return arguments, None


def _password_arguments(configuration: Mapping[str, Any], mechanism: str) -> dict[str, str]:
    username, password = (
        text(configuration.get(key)) for key in ("sasl.username", "sasl.password")
    )
    for key, value in (("sasl.username", username), ("sasl.password", password)):
        if not value:
            raise refused(key, value, f"a value, because the mechanism is {mechanism}")
    if mechanism != "PLAIN":
        # RFC 5802, saslname: kafka-python sends the name as it is given.
        username = username.replace("=", "=3D").replace(",", "=2C")
    return {"sasl_plain_username": username, "sasl_plain_password": password}


def _token_source(configuration: Mapping[str, Any]) -> OAuthTokenSource:
    callback = configuration.get("oauth_cb")
    if not callable(callback):
        raise refused("oauth_cb", callback, "a callable, because it is OAUTHBEARER")
    return OAuthTokenSource(
        callback=callback, argument=text(configuration.get("sasl.oauthbearer.config"))
    )
