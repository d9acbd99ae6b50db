"""The SASL authentication of a connection, and its renewal (KIP-368).

It differs from kafka-python's own in two ways. The steps of a mechanism run on a thread beside the
loop, because Kerberos asks name servers and a KDC, and SCRAM computes for a long time. The
heartbeats of other connections must go out meanwhile. The second difference: a broker's refusal of
the credentials is a separate error. It is final; all other failures may be temporary.

kafka-python's connection therefore knows nothing of SASL. It is open when this file begins.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import kafka.errors as wire_errors
from attrs import define, field
from kafka.net.connection import KafkaConnection
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest, SaslHandshakeRequest

from coopgroup.kafka.aside import Aside, outcome_of
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.config.sasl import TokenOnce
from coopgroup.kafka.rpc.outcomes import CredentialsRefusedError, HandshakeError

# With fewer, a host that poses as a broker could guess the password quickly. Kafka allows no fewer.
_SCRAM_ITERATIONS_MIN: Final = 4_096
# A session is renewed after a random share of its life. Otherwise, connections that were opened at
# the same time would always be renewed at the same time.
_LIFE_SHARES: Final = (0.85, 0.95)
_LIFETIME_MS_MIN: Final = 1_000
# Time between two looks at a connection while a broker throttles this client (KIP-219).
_PAUSED_POLL_S: Final = 0.02


@define(eq=False)
class Authentication:
    """Authenticates one open connection, several times if its sessions end.

    Attributes:
        renew_at: when to authenticate again, in seconds of the monotonic clock.
    """

    _connection: KafkaConnection
    _settings: ConnectionSettings
    _aside: Aside
    renew_at: float = field(default=math.inf, init=False)
    # Name and password that the broker accepted last.
    _accepted: tuple[str, str] | None = field(default=None, init=False)

    async def run(self, until: float) -> None:
        """Authenticate.

        Raises:
            CredentialsRefusedError: the broker has refused the credentials.
            HandshakeError: the authentication failed for another reason.
            KafkaError: the connection was lost, or the time is over.
        """
        settings, name = self._settings, self._settings.connection["sasl_mechanism"]
        framed = await self._choose_mechanism(name, until)
        token = None if settings.token_source is None else TokenOnce(settings.token_source)
        # Kerberos derives the service's name from the host name that the user configured.
        transport: Any = self._connection.transport
        host = transport.host or transport.getPeer()[0]
        config = {**self._connection.config, **settings.connection}
        config |= {"sasl_oauth_token_provider": token, "host": host}
        login = None
        if settings.credentials is not None:
            login = settings.credentials.newest
            config |= settings.credentials.arguments()
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
        if settings.token_source is not None:
            settings.token_source.accept()
        lifetime_ms = answer.session_lifetime_ms if framed else 0
        if lifetime_ms and lifetime_ms > 0:
            life_s = max(lifetime_ms, _LIFETIME_MS_MIN) / 1000
            share = random.uniform(*_LIFE_SHARES)  # noqa: S311 -- hides nothing
            self.renew_at = time.monotonic() + life_s * share
        else:
            self.renew_at = math.inf

    def _is_final(self, login: tuple[str, str] | None) -> bool:
        """Return whether a refusal of this name and password says that they are wrong.

        A broker also refuses another user on a connection that has one (KIP-368). And a refusal of
        credentials that were replaced meanwhile says nothing about the new ones.
        """
        credentials = self._settings.credentials
        if credentials is None:
            return True
        return login == credentials.newest and self._accepted in {None, login}

    async def _choose_mechanism(self, name: str, until: float) -> bool:
        """Agree on the mechanism; return whether the next bytes are framed as Kafka requests."""
        answer = await self._ask(SaslHandshakeRequest(mechanism=name, max_version=1), until)
        if answer.error_code or name not in answer.mechanisms:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise HandshakeError(f"the broker offers SASL {offered}, not {name}")
        return bool(answer.API_VERSION == 1)

    async def _ask(self, request: object, until: float) -> Any:  # noqa: ANN401  (kafka-python's)
        connection: Any = self._connection
        while connection.paused and time.monotonic() < until:
            await connection.net.sleep(_PAUSED_POLL_S)
        return await connection.send_request(request, (until - time.monotonic()) * 1000)

    async def _beside(self, step: Callable[[], object]) -> Any:  # noqa: ANN401  (whatever it gives)
        return await outcome_of(
            self._connection.net, lambda on_done: self._aside.alone(step, on_done)
        )


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
