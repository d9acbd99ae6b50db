"""Authentication of the group's own connections: librdkafka's sasl.* keys and `oauth_cb`.

Tokens come from `oauth_cb`, or from an OIDC endpoint (`oidc`).
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.aside import Aside, OnDone
from coopgroup.kafka.config.oidc import METHOD, read_client_credentials, wants_oidc
from coopgroup.kafka.config.shown_values import refused
from coopgroup.kafka.config.values import text

# Java's client renews a token after this share of its lifetime, too.
TOKEN_LIFE_SHARE: Final = 0.8
# After this time without a return, a second call runs beside the first, and later a third.
TOKEN_PATIENCE_S: Final = 30.0
TOKEN_THREADS_MAX: Final = 3
TOKENS_REFUSED_MAX: Final = 2
_OAUTH_ANSWER: Final = "(token, expiry_s) or (token, expiry_s, principal, extensions)"
OAUTH_PLAIN_RESULT: Final = 2
OAUTH_FULL_RESULT: Final = 4
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (*_PASSWORD_MECHANISMS, "GSSAPI", "OAUTHBEARER")


@define(eq=False)
class SaslCredentials:
    """Name and password of PLAIN and SCRAM, for all connections of a group member.

    They may change while connections are open. Each authentication takes the newest.
    """

    mechanism: str
    newest: tuple[str, str] = field(repr=False)
    _is_changed: bool = field(default=False, init=False)

    def arguments(self) -> dict[str, str]:
        """Return the arguments of kafka-python's mechanism."""
        username, password = self.newest
        if self.mechanism != "PLAIN":
            # RFC 5802, saslname: kafka-python sends the name unchanged.
            username = username.replace("=", "=3D").replace(",", "=2C")
        return {"sasl_plain_username": username, "sasl_plain_password": password}

    def replace(self, username: str, password: str) -> None:
        """Use these from the next authentication on.

        Raises:
            TypeError: an argument is not a string.
            ValueError: a string contains NUL.
        """
        for name, value in (("username", username), ("password", password)):
            if not isinstance(value, str):
                raise TypeError(f"{name}: got a {type(value).__name__}, expected a string")
            if "\0" in value:
                raise ValueError(f"{name}: got a string with NUL, expected one without")
        self.newest, self._is_changed = (username, password), True

    def give(self, client: Any) -> None:  # noqa: ANN401  (any of librdkafka's clients)
        """Give them to a client that was made with the credentials of the configuration."""
        if self._is_changed:
            client.set_sasl_credentials(*self.newest)


@frozen(kw_only=True, eq=False)
class _Token:
    text: str = field(repr=False)
    extensions: Mapping[str, str] = field(repr=False)
    renew_at: float
    expires_at: float


@define(kw_only=True, eq=False)
class OAuthTokenSource:
    """Tokens for all connections of a group member, from an `oauth_cb` or what is called like one.

    The callback gets the text of `sasl.oauthbearer.config`. It returns (token, expiry in seconds
    since the epoch) or (token, expiry, principal, extensions). A token is reused until 80 % of its
    life is over.

    The callback may wait for a token service, but heartbeats must not wait. So `prepare` runs it on
    a separate thread, before a connection is made. The connections call `take`, which never waits.
    They call it again late in a token's life (KIP-368). Then `take` returns the old token once more
    and requests a new one.
    """

    callback: Callable[[str], tuple[Any, ...]]
    argument: str = field(repr=False)
    clock: Callable[[], float] = time.time
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _last: _Token | None = field(default=None, init=False)
    # Tokens that brokers refused since they last accepted one.
    _refused: int = field(default=0, init=False)
    _aside: Aside = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Limit the threads, because a callback that hangs blocks its thread."""
        self._aside = Aside(
            name="coopgroup-token", threads_max=TOKEN_THREADS_MAX, patience_s=TOKEN_PATIENCE_S
        )

    @property
    def is_fresh(self) -> bool:
        """Return whether there is a token that needs no renewal yet."""
        last = self._last
        return last is not None and self.clock() < last.renew_at

    def prepare(self, waiter: object, on_done: OnDone) -> None:
        """Get a token ready, then call `on_done` on another thread."""
        self._aside.share(waiter, self.renew, on_done)

    def renew(self) -> None:
        """Ask the callback for a token unless the last one is still fresh.

        Raises:
            ConfigurationError: the callback did not return a token.
            Exception: raised by the callback.
        """
        if self.is_fresh:
            return
        now = self.clock()
        answer = self.callback(self.argument)
        if len(answer) not in {OAUTH_PLAIN_RESULT, OAUTH_FULL_RESULT}:
            raise ConfigurationError(
                "oauth_cb",
                f"{len(answer)} values",
                _OAUTH_ANSWER,
            )
        try:
            expires_at = float(answer[1])
            given = answer[3] if len(answer) == OAUTH_FULL_RESULT else {}
            extensions = {str(key): str(value) for key, value in given.items()}
        except (ValueError, TypeError, AttributeError):
            # Python's message would show a token that is in the place of its expiry.
            kinds = ", ".join(type(one).__name__ for one in answer)
            raise ConfigurationError("oauth_cb", f"({kinds})", _OAUTH_ANSWER) from None
        with self._lock:
            if self._last is not None and self._last.expires_at > expires_at:
                return  # this call hung, and a later one was faster
            self._last = _Token(
                text=str(answer[0]),
                extensions=extensions,
                renew_at=now + (expires_at - now) * TOKEN_LIFE_SHARE,
                expires_at=expires_at,
            )

    def take(self) -> _Token:
        """Return a token that is valid now.

        Raises:
            TimeoutError: no token is valid; the connection is made again after `prepare`.
        """
        last, now = self._last, self.clock()
        if last is None or now >= last.expires_at:
            raise TimeoutError("the OAuth token has expired, and there is no other one yet")
        if now >= last.renew_at:
            # Ignore the result: the next `take` tries again, and new connections report errors.
            self._aside.share(self, self.renew, _ignore)
        return last

    def refuse(self, token: _Token) -> bool:
        """Drop a token that a broker refused, so that the next connection asks for another one.

        Returns:
            Whether the refusal is definite: the token before it was refused, too. A single refusal
            says little, because a token may be revoked or a key rotated at any time.
        """
        with self._lock:
            if self._last is not token:
                return False  # another connection reported it before
            self._last = None
            self._refused += 1
            return self._refused >= TOKENS_REFUSED_MAX

    def accept(self) -> None:
        """Note that a broker has accepted a token."""
        with self._lock:
            self._refused = 0


@define(eq=False)
class TokenOnce:
    """The token of one authentication, in kafka-python's form."""

    source: OAuthTokenSource
    used: _Token | None = field(default=None, init=False)

    def token(self) -> str:
        """Return the token (the name is kafka-python's)."""
        self.used = self.source.take()
        return self.used.text

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions (KIP-342) that came with the token."""
        return {} if self.used is None else dict(self.used.extensions)


def _ignore(_: object, __: BaseException | None) -> None:
    pass


def sasl_arguments(
    configuration: Mapping[str, Any],
) -> tuple[dict[str, Any], OAuthTokenSource | None, SaslCredentials | None]:
    """Return arguments of kafka-python's connection, and the source of a token or a password.

    Raises:
        ConfigurationError: the mechanism is unknown, or a setting for it is missing.
    """
    key = "sasl.mechanism" if "sasl.mechanism" in configuration else "sasl.mechanisms"
    mechanism = text(configuration.get(key, "GSSAPI")).upper()
    if mechanism not in _MECHANISMS:
        raise refused(key, configuration[key], "one of " + ", ".join(_MECHANISMS))
    arguments: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism in _PASSWORD_MECHANISMS:
        return arguments, None, _credentials(configuration, mechanism)
    if mechanism == "OAUTHBEARER":
        return arguments, _token_source(configuration), None
    if importlib.util.find_spec("gssapi") is None:
        if key not in configuration:  # GSSAPI is librdkafka's default
            raise refused("sasl.mechanism", None, "one of " + ", ".join(_MECHANISMS))
        raise refused(key, mechanism, "the Python package gssapi to be installed")
    arguments["sasl_kerberos_service_name"] = text(
        configuration.get("sasl.kerberos.service.name", "kafka")
    )
    return arguments, None, None


def _credentials(configuration: Mapping[str, Any], mechanism: str) -> SaslCredentials:
    username, password = (
        text(configuration.get(key)) for key in ("sasl.username", "sasl.password")
    )
    for key, value in (("sasl.username", username), ("sasl.password", password)):
        if not value:
            raise refused(key, value, f"a value, because the mechanism is {mechanism}")
    return SaslCredentials(mechanism, (username, password))


def _token_source(configuration: Mapping[str, Any]) -> OAuthTokenSource:
    if wants_oidc(configuration):
        return OAuthTokenSource(callback=read_client_credentials(configuration), argument="")
    callback = configuration.get("oauth_cb")
    if not callable(callback):
        expected = f"a callable, because it is OAUTHBEARER (or set {METHOD} to oidc)"
        raise refused("oauth_cb", callback, expected)
    return OAuthTokenSource(
        callback=callback, argument=text(configuration.get("sasl.oauthbearer.config"))
    )
