"""kafka-python's connection with coopgroup's own authentication.

It differs from kafka-python's in two ways. The steps of a SASL mechanism run on a thread beside the
loop, because Kerberos asks name servers and a KDC, and SCRAM computes for a long time. The
heartbeats of other connections must go out meanwhile. The second difference: a broker's refusal of
the credentials is a separate error. It is final; all other failures may be temporary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import kafka.errors as wire_errors
from kafka.net.connection import KafkaConnection
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest, SaslHandshakeRequest

from coopgroup.kafka.aside import Aside, outcome_of
from coopgroup.kafka.config.sasl import OAuthTokenSource, SaslCredentials, TokenOnce
from coopgroup.kafka.rpc.outcomes import CredentialsRefusedError, HandshakeError

__all__ = ["BrokerConnection"]

# With fewer, a host that poses as a broker could guess the password quickly. Kafka allows no fewer.
_SCRAM_ITERATIONS_MIN: Final = 4_096


class BrokerConnection(KafkaConnection):
    """A connection that authenticates without blocking its loop."""

    def __init__(
        self,
        net: NetworkSelector,
        *,
        aside: Aside,
        token_source: OAuthTokenSource | None,
        credentials: SaslCredentials | None,
        **arguments: Any,  # noqa: ANN401  (kafka-python's own)
    ) -> None:
        super().__init__(net, **arguments)  # type: ignore[no-untyped-call]
        self.aside = aside
        self.token_source = token_source
        self.credentials = credentials
        self._accepted: tuple[str, str] | None = None

    async def _sasl_authenticate(self, timeout_at: float | None = None) -> None:
        base: Any = self  # kafka-python's code has no types
        until = base._timeout_at() if timeout_at is None else timeout_at  # noqa: SLF001
        framed = await self._choose_mechanism(until)
        token = None if self.token_source is None else TokenOnce(self.token_source)
        name = base.config["sasl_mechanism"]
        # Kerberos derives the service's name from the host name that the user configured.
        host = base.transport.host or base.transport.getPeer()[0]
        config = base.config | {"sasl_oauth_token_provider": token, "host": host}
        login = None
        if self.credentials is not None:
            login = self.credentials.newest
            config |= self.credentials.arguments()
        mechanism = await self._beside(lambda: get_sasl_mechanism(name)(**config))
        answer: Any = None
        while not mechanism.is_done() and time.monotonic() < until:
            step = await self._beside(mechanism.auth_bytes)
            answer = await self._ask(_in_frames(step) if framed else _bare(step), until)
            if answer.error_code:
                raise _refusal(answer, token, is_final=self._is_final(login))
            # Without frames, Kerberos ends with the client's bytes.
            if not framed and mechanism.is_done():
                break
            await self._beside(partial(_receive, mechanism, name, answer.auth_bytes))
        if not (mechanism.is_done() and mechanism.is_authenticated()):
            raise wire_errors.KafkaTimeoutError(f"SASL {name} did not end in time")
        self._accepted = login
        if self.token_source is not None:
            self.token_source.accept()
        if framed:
            base._reauth.session_updated(answer.session_lifetime_ms)  # noqa: SLF001

    def _is_final(self, login: tuple[str, str] | None) -> bool:
        """Return whether a refusal of this name and password says that they are wrong.

        A broker also refuses another user on a connection that has one (KIP-368). And a refusal of
        credentials that were replaced meanwhile says nothing about the new ones.
        """
        if self.credentials is None:
            return True
        return login == self.credentials.newest and self._accepted in {None, login}

    async def _choose_mechanism(self, until: float) -> bool:
        """Agree on the mechanism; return whether the next bytes are framed as Kafka requests."""
        name = str(self.config["sasl_mechanism"])
        answer = await self._ask(SaslHandshakeRequest(mechanism=name, max_version=1), until)
        if answer.error_code or name not in answer.mechanisms:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise HandshakeError(f"the broker offers SASL {offered}, not {name}")
        return bool(answer.API_VERSION == 1)

    async def _ask(self, request: object, until: float) -> Any:  # noqa: ANN401  (kafka-python's)
        base: Any = self
        return await base._send_request(request, timeout_at=until)  # noqa: SLF001

    async def _beside(self, step: Callable[[], object]) -> Any:  # noqa: ANN401  (whatever it gives)
        return await outcome_of(self.net, lambda on_done: self.aside.alone(step, on_done))


# kafka-python checks the type; registering avoids inheriting from its class.
AbstractTokenProvider.register(TokenOnce)

_in_frames: Final[Any] = SaslAuthenticateRequest
_bare: Final[Any] = SaslBytesRequest


def _receive(mechanism: Any, name: str, message: bytes) -> None:  # noqa: ANN401
    """Give a broker's answer to a mechanism.

    Raises:
        HandshakeError: an answer of SCRAM that no honest broker gives. It may come from another
            host, which does not know the password.
    """
    if not name.startswith("SCRAM"):
        mechanism.receive(message)
        return
    try:
        # As kafka-python reads it.
        fields = dict(pair.split("=", 1) for pair in message.decode().split(","))
        iterations = int(fields.get("i", _SCRAM_ITERATIONS_MIN))
        if iterations >= _SCRAM_ITERATIONS_MIN:
            mechanism.receive(message)
            return
    except (ValueError, LookupError) as error:
        # Kafka-python compares the signature last.
        what = "signature is wrong" if "signature" in str(error) else "message is invalid"
        raise HandshakeError(f"{name}: the broker's {what}, so it may be another host") from None
    raise HandshakeError(
        f"{name}: the broker asks for {iterations} iterations, expected at least "
        f"{_SCRAM_ITERATIONS_MIN} (RFC 7677), so it may be another host"
    )


def _refusal(answer: Any, token: TokenOnce | None, *, is_final: bool) -> Exception:  # noqa: ANN401
    name = wire_errors.for_code(answer.error_code).__name__
    message = f"{name}: {answer.error_message}"
    if answer.error_code != wire_errors.SaslAuthenticationFailedError.errno or not is_final:
        return HandshakeError(message)
    if token is None or token.used is None or token.source.refuse(token.used):
        return CredentialsRefusedError(message)
    return HandshakeError(message)
