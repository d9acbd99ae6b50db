"""Tokens for the group's own connections, fetched by OIDC (`sasl.oauthbearer.method=oidc`).

librdkafka fetches tokens for its own connections and keeps them. So this file fetches more for the
group's connections, with the same request. `OAuthTokenSource` calls it like an `oauth_cb`: on a
thread beside the loop, and again late in the life of a token.

Rule of this file: an error contains no URL, no secret, and no text of the endpoint. Errors are
logged.

Source of the request: librdkafka 2.16, and RFC 6749, section 4.4.
"""

from __future__ import annotations

import base64
import json
import random
import re
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from attrs import define, field

from coopgroup.kafka.config.shown_values import refused
from coopgroup.kafka.config.tls import https_context
from coopgroup.kafka.config.values import text

METHOD: Final = "sasl.oauthbearer.method"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"  # noqa: S105 -- the key, not a value
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
# librdkafka's other names of the same two keys.
_ALIASES: Final = {
    _CLIENT_ID: "sasl.oauthbearer.client.credentials.client.id",
    _CLIENT_SECRET: "sasl.oauthbearer.client.credentials.client.secret",
}
# As in librdkafka: time limit of one request.
_TIMEOUT_S: Final = 20.0
_RETRY_FIRST_S: Final = 1.0
_RETRY_MAX_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 1_000_000
# The names of errors that RFC 6749 allows (sections 4.1.2.1 and 5.2). Other text is not shown.
_ERRORS: Final = (
    *("access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope"),
    *("server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_grant_type"),
)
# RFC 7628, section 3.1; librdkafka and Kafka's broker refuse other names and values.
_EXTENSION: Final = re.compile(r"(?!auth=)[A-Za-z]+=[\x20-\x7e\t\r\n]*")


class TokenError(OSError):
    """The endpoint gave no token; the text contains nothing secret."""


@define(kw_only=True, eq=False)
class ClientCredentials:
    """Fetches tokens with the id and the secret of a client.

    After a failure the endpoint is left alone for a second, and longer after each further failure.
    Calls meanwhile fail with the same error.

    Attributes:
        subject_claim: claim of the token that must name the principal.
        tls: None if the endpoint is plain HTTP.
        clock: monotonic seconds.
    """

    url: str = field(repr=False)
    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    scope: str = field(repr=False)
    extensions: Mapping[str, str] = field(repr=False)
    subject_claim: str
    tls: ssl.SSLContext | None
    clock: Callable[[], float] = time.monotonic
    _failures: int = field(default=0, init=False)
    _failure: str = field(default="", init=False)
    _retry_at: float = field(default=0.0, init=False)

    def __call__(self, _: str = "") -> tuple[str, float, str, Mapping[str, str]]:
        """Return a token, its expiry in seconds since the epoch, its principal, and extensions.

        Raises:
            TokenError: the endpoint gave no token now, or none at the last call.
        """
        if self._failures and self.clock() < self._retry_at:
            raise TokenError(self._failure)
        try:
            token, expires_at, principal = _read_token(self._ask(), self.subject_claim)
        except TokenError as error:
            self._failure, self._failures = str(error), self._failures + 1
            wait_s = min(_RETRY_FIRST_S * 2.0 ** min(self._failures - 1, 10), _RETRY_MAX_S)
            # Members that lost the endpoint at one time should not all come back at one time.
            self._retry_at = self.clock() + wait_s * random.uniform(0.8, 1.2)  # noqa: S311
            raise
        self._failures = 0
        return token, expires_at, principal, self.extensions

    def _ask(self) -> bytes:
        """Return the endpoint's answer."""
        handlers: list[BaseHandler] = [_NoRedirects()]
        if self.tls is not None:
            handlers.append(HTTPSHandler(context=self.tls))
        login = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        # librdkafka sends the scope as it is given: users may have encoded it already.
        scope = f"&scope={self.scope}" if self.scope else ""
        request = Request(  # noqa: S310 -- `read_client_credentials` has checked the scheme
            self.url,
            data=f"grant_type=client_credentials{scope}".encode(),
            headers={
                "Accept": "application/json",
                "Authorization": f"Basic {login}",
                "Content-Type": "application/x-www-form-urlencoded",
                "User-Agent": "coopgroup",
            },
        )
        try:
            with build_opener(*handlers).open(request, timeout=_TIMEOUT_S) as response:
                answer: bytes = response.read(_ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            with error:
                raise TokenError(f"the endpoint answered {error.code}{_reason(error)}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise TokenError(f"the endpoint did not answer ({_kind(error)})") from None
        if len(answer) > _ANSWER_BYTES_MAX:
            raise TokenError(f"the endpoint answered with more than {_ANSWER_BYTES_MAX} bytes")
        return answer


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the next host would get the client's secret."""

    def redirect_request(self, *_: object) -> None:
        return None


def _kind(error: Exception) -> str:
    """Return the reason of a failed connection, without text of the other side."""
    reason = getattr(error, "reason", error)  # of a URLError
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    if isinstance(reason, ssl.SSLError):
        return f"TLS: {reason.reason}"
    named = reason.strerror if isinstance(reason, OSError) else None
    return named or type(reason).__name__


def _reason(error: HTTPError) -> str:
    """Return the name of the error in the answer, if it is one of RFC 6749."""
    try:
        name = json.loads(error.read(_ANSWER_BYTES_MAX))["error"]
    except Exception:  # noqa: BLE001 -- the answer has any form, and the status is reported anyway
        return ""
    return f" ({name})" if isinstance(name, str) and name in _ERRORS else ""


def _read_token(answer: bytes, subject_claim: str) -> tuple[str, float, str]:
    """Return the token of an answer, its expiry and its principal.

    Like librdkafka, this reads the token itself, and not `expires_in` beside it.
    """
    try:
        token = json.loads(answer)["access_token"]
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires_at, principal = float(claims["exp"]), claims[subject_claim]
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        token, expires_at, principal = "", 0.0, ""
    if not isinstance(principal, str) or not principal:
        expected = f"a JWT with exp and {subject_claim}"
        raise TokenError(f"the answer has no access_token that is {expected}")
    if not expires_at > time.time():
        raise TokenError("the endpoint gave a token that has expired; are both clocks right?")
    return token, expires_at, principal


def wants_oidc(configuration: Mapping[str, Any]) -> bool:
    """Return whether the tokens come from an endpoint."""
    return text(configuration.get(METHOD)).lower() == "oidc"


def read_client_credentials(configuration: Mapping[str, Any]) -> ClientCredentials:
    """Read the keys of OIDC.

    Raises:
        ConfigurationError: a key is missing or wrong, or contradicts another one.
    """
    if configuration.get("oauth_cb") is not None:
        raise refused("oauth_cb", configuration["oauth_cb"], f"nothing, because {METHOD} is oidc")
    url = _given(configuration, ENDPOINT)
    return ClientCredentials(
        url=_checked_url(url),
        client_id=_given(configuration, _CLIENT_ID),
        client_secret=_given(configuration, _CLIENT_SECRET),
        scope=text(configuration.get("sasl.oauthbearer.scope")),
        extensions=_extensions(text(configuration.get(_EXTENSIONS))),
        subject_claim=text(configuration.get("sasl.oauthbearer.sub.claim.name")) or "sub",
        tls=https_context(configuration) if url.lower().startswith("https:") else None,
    )


def _given(configuration: Mapping[str, Any], key: str) -> str:
    alias = _ALIASES.get(key, key)
    if alias != key and key in configuration and alias in configuration:
        raise refused(alias, configuration[alias], f"nothing, because {key} is given")
    value = text(configuration.get(key)) or text(configuration.get(alias))
    if not value:
        raise refused(key, value, f"a value, because {METHOD} is oidc")
    return value


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_right = (
            parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
        )
        _ = parts.port  # raises if it is no port
    except ValueError:
        is_right = False
    if not is_right or not url.isascii() or not url.isprintable() or " " in url:
        raise refused(ENDPOINT, url, "https://HOST/PATH or http://HOST/PATH, without a user")
    return url


def _extensions(value: str) -> dict[str, str]:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(_EXTENSION.fullmatch(part) for part in parts):
        raise refused(_EXTENSIONS, value, "NAME=VALUE with letters as NAME, more after commas")
    pairs = (part.partition("=") for part in parts)
    return {name: content for name, _, content in pairs}
