"""Failures of TLS and SASL: which are final, which are retried, and how heartbeats continue."""

import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.rpc import broker_connection
from coopgroup.kafka.rpc.channel import _kind
from coopgroup.kafka.rpc.transport import FailureKind, GroupTransport, TransportFailure
from coopgroup.member.effects import Lane
from coopgroup.model.group_api import Coordinator, HeartbeatAnswer, HeartbeatRequest
from tests.support.oidc_provider import oidc_provider
from tests.support.sasl_broker import REFUSED, SaslBroker, sasl_broker

WAIT_S = 10.0
HEARTBEAT = HeartbeatRequest(group_id="g", generation=1, member_id="m", group_instance_id=None)
ALIVE = HeartbeatAnswer(error_code=0)


class Tokens:
    """An `oauth_cb` that returns a new token each time."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, _: str) -> tuple[str, float]:
        self.given += 1
        return f"token-{self.given}", time.time() + 3600


@contextmanager
def transport_with(
    settings: ConnectionSettings, reported: list[BaseException] | None = None
) -> Iterator[GroupTransport]:
    errors = [] if reported is None else reported
    transport = GroupTransport(settings, errors.append)
    transport.start()
    try:
        yield transport
    finally:
        assert transport.close()


def begin(
    transport: GroupTransport, broker: SaslBroker, lane: Lane = Lane.COMMIT, timeout_ms: int = 5_000
) -> "queue.SimpleQueue[Any]":
    host, _, port = broker.address.partition(":")
    node = Coordinator(node_id=1, host=host, port=int(port))
    outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    transport.send(lane, HEARTBEAT, outcomes.put, node=node, timeout_ms=timeout_ms)
    return outcomes


def ask(transport: GroupTransport, broker: SaslBroker, lane: Lane = Lane.COMMIT) -> Any:  # noqa: ANN401
    return begin(transport, broker, lane).get(timeout=WAIT_S)


def kind_of(outcome: object) -> FailureKind | None:
    return outcome.kind if isinstance(outcome, TransportFailure) else None


def test_refused_token_is_fetched_anew() -> None:
    """A token that is revoked early costs one attempt, not the membership."""
    tokens = Tokens()
    with (
        sasl_broker(lambda given: REFUSED if b"token-1" in given else 0) as broker,
        transport_with(broker.settings(oauth_cb=tokens)) as transport,
    ):
        assert kind_of(ask(transport, broker)) is FailureKind.HANDSHAKE
        assert ask(transport, broker) == ALIVE
        assert ask(transport, broker, Lane.JOIN) == ALIVE
    assert tokens.given == 2
    assert [b"token-2" in one for one in broker.seen] == [False, True, True]


def test_refusal_of_a_new_token_is_final() -> None:
    tokens = Tokens()
    with (
        sasl_broker(lambda _: REFUSED) as broker,
        transport_with(broker.settings(oauth_cb=tokens)) as transport,
    ):
        kinds = [kind_of(ask(transport, broker)) for _ in range(2)]
    assert kinds == [FailureKind.HANDSHAKE, FailureKind.AUTHENTICATION]


def test_token_refused_in_mid_stream_is_fetched_anew() -> None:
    """The broker may end a session at any time (KIP-368). The new session needs a valid token."""
    tokens = Tokens()
    revoked, refused = threading.Event(), threading.Event()

    def judge(given: bytes) -> int:
        if revoked.is_set() and b"token-1" in given:
            refused.set()
            return REFUSED
        return 0

    with (
        sasl_broker(judge, lifetime_ms=600) as broker,
        transport_with(broker.settings(oauth_cb=tokens)) as transport,
    ):
        assert ask(transport, broker) == ALIVE
        revoked.set()
        assert refused.wait(WAIT_S)
        outcomes = [ask(transport, broker) for _ in range(3)]
    assert (tokens.given, outcomes[-1]) == (2, ALIVE)
    assert {kind_of(one) for one in outcomes} <= {None, FailureKind.HANDSHAKE}


def test_replaced_credentials_are_not_refused_before_a_new_connection_has_tried_them() -> None:
    """A broker refuses another user when a session ends (KIP-368), but not on a new connection."""
    codes, refused = iter([0, REFUSED]), threading.Event()

    def judge(_: bytes) -> int:
        code = next(codes, 0)
        if code:
            refused.set()
        return code

    with (
        sasl_broker(judge, mechanisms=("PLAIN",), lifetime_ms=600) as broker,
        transport_with(
            settings := broker.settings(**{"sasl.username": "me", "sasl.password": "old"})
        ) as transport,
    ):
        assert ask(transport, broker) == ALIVE
        assert settings.credentials is not None
        settings.credentials.replace("you", "new")
        assert refused.wait(WAIT_S)
        outcomes = [ask(transport, broker) for _ in range(3)]
    assert outcomes[-1] == ALIVE
    assert {kind_of(one) for one in outcomes} <= {None, FailureKind.HANDSHAKE}
    logins = [given.rsplit(b"\0", 2)[1:] for given in broker.seen]
    assert logins[:3] == [[b"me", b"old"], [b"you", b"new"], [b"you", b"new"]]


def test_missing_token_is_reported_as_a_failed_handshake() -> None:
    """Without a report, a member that never joins would be silent about its cause."""

    def fails(_: str) -> tuple[str, float]:
        raise OSError("token-canary")

    with oidc_provider(answer=(401, {}, b'{"error": "invalid_client"}')) as provider:
        for keys, said in (
            (provider.configuration(), "the endpoint answered 401 (invalid_client)"),
            ({"oauth_cb": fails}, "OSError"),
        ):
            with (
                sasl_broker(lambda _: 0) as broker,
                transport_with(broker.settings(**keys)) as transport,
            ):
                assert ask(transport, broker) == TransportFailure(
                    kind=FailureKind.HANDSHAKE, message=f"no OAuth token: {said}"
                )


def test_password_that_is_refused_is_final() -> None:
    """No retry helps, and each attempt may count towards a lock of the account."""
    with (
        sasl_broker(lambda _: REFUSED, mechanisms=("PLAIN",)) as broker,
        transport_with(
            broker.settings(**{"sasl.username": "me", "sasl.password": "wrong"})
        ) as transport,
    ):
        outcome = ask(transport, broker)
    assert outcome == TransportFailure(
        kind=FailureKind.AUTHENTICATION, message="SaslAuthenticationFailedError: no"
    )


@pytest.mark.parametrize(
    ("code", "mechanisms", "kind"),
    [
        (None, ("PLAIN",), FailureKind.DISCONNECTED),
        (34, ("PLAIN",), FailureKind.HANDSHAKE),
        (-1, ("PLAIN",), FailureKind.HANDSHAKE),
        (0, ("SCRAM-SHA-512",), FailureKind.HANDSHAKE),
    ],
    ids=["hangs up", "illegal state", "broker's own error", "mechanism is not on yet"],
)
def test_sasl_that_fails_otherwise_may_pass(
    code: int | None, mechanisms: tuple[str, ...], kind: FailureKind
) -> None:
    """A broker that is starting or being configured has refused no credentials."""
    with sasl_broker(lambda _: code, mechanisms=mechanisms) as broker:
        settings = broker.settings(
            **{"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "right"}
        )
        with transport_with(settings) as transport:
            assert kind_of(ask(transport, broker)) is kind


def test_handshakes_that_fail_are_reported_less_and_less_often() -> None:
    reported: list[BaseException] = []
    with sasl_broker(lambda _: -1, mechanisms=("PLAIN",)) as broker:
        settings = broker.settings(**{"sasl.username": "me", "sasl.password": "right"})
        with transport_with(settings, reported) as transport:
            counts = []
            for _ in range(5):
                ask(transport, broker)
                counts.append(len(reported))
    assert counts == [1, 2, 2, 3, 3]
    assert "UnknownError: no" in str(reported[0])


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", FailureKind.AUTHENTICATION),
        ("TLSV1_ALERT_UNKNOWN_CA", FailureKind.AUTHENTICATION),
        ("SSL/TLS_ALERT_BAD_CERTIFICATE", FailureKind.AUTHENTICATION),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", FailureKind.HANDSHAKE),
        ("WRONG_VERSION_NUMBER", FailureKind.HANDSHAKE),
        ("CERTIFICATE_VERIFY_FAILED", FailureKind.HANDSHAKE),
        (None, FailureKind.HANDSHAKE),
    ],
)
def test_tls_is_final_only_if_the_broker_refuses_our_certificate(
    reason: str | None, kind: FailureKind
) -> None:
    """The rule also holds where kafka-python wraps the error, as after a handshake of TLS 1.3."""
    error = ssl.SSLError(1, "text")
    if reason is not None:
        error.reason = reason
    assert _kind(error) is kind
    assert _kind(KafkaConnectionError(error)) is kind


class SlowMechanism:
    """Kerberos with a hanging KDC: its first step blocks."""

    hung = threading.Event()
    waiting: "queue.SimpleQueue[str]" = queue.SimpleQueue()

    def __init__(self, **_: object) -> None:
        SlowMechanism.waiting.put(threading.current_thread().name)
        assert SlowMechanism.hung.wait(WAIT_S)

    def auth_bytes(self) -> bytes:
        raise OSError("the KDC gave no ticket")


def test_heartbeats_go_out_while_kerberos_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    with sasl_broker(lambda _: 0, mechanisms=("PLAIN",)) as broker:
        settings = broker.settings(
            **{
                "sasl.username": "me",
                "sasl.password": "right",
                "socket.connection.setup.timeout.ms": 200,
            }
        )
        with transport_with(settings) as transport:
            monkeypatch.setattr(SlowMechanism, "hung", threading.Event())
            assert ask(transport, broker, Lane.JOIN) == ALIVE
            monkeypatch.setattr(broker_connection, "get_sasl_mechanism", lambda _: SlowMechanism)
            slow = begin(transport, broker, Lane.COMMIT)
            assert SlowMechanism.waiting.get(timeout=WAIT_S) == "coopgroup-sasl"
            began = time.monotonic()
            assert ask(transport, broker, Lane.JOIN) == ALIVE
            assert time.monotonic() - began < 5.0
            assert kind_of(slow.get(timeout=WAIT_S)) is FailureKind.TIMED_OUT
            again = [ask(transport, broker, Lane.COMMIT) for _ in range(3)]
            assert {kind_of(one) for one in again} == {FailureKind.DISCONNECTED}
            assert "has not returned yet" in again[0].message
            (thread,) = [one for one in threading.enumerate() if one.name == "coopgroup-sasl"]
            SlowMechanism.hung.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_name_server_that_hangs_keeps_one_thread_for_each_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def hang(host: Any, *arguments: Any) -> Any:  # noqa: ANN401  (as getaddrinfo has them)
        assert host != "localhost" or answered.wait(WAIT_S)
        return look_up(host, *arguments)

    with sasl_broker(lambda _: 0, mechanisms=("PLAIN",)) as broker:
        settings = broker.settings(
            **{
                "sasl.username": "me",
                "sasl.password": "right",
                "broker.address.family": "v4",
                "socket.connection.setup.timeout.ms": 100,
            }
        )
        node = Coordinator(node_id=1, host="localhost", port=int(broker.address.split(":")[1]))
        with transport_with(settings) as transport:
            monkeypatch.setattr(socket, "getaddrinfo", hang)
            outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()

            def by_name() -> Any:  # noqa: ANN401
                transport.send(Lane.JOIN, HEARTBEAT, outcomes.put, node=node, timeout_ms=5_000)
                return outcomes.get(timeout=WAIT_S)

            for _ in range(4):
                assert kind_of(by_name()) is FailureKind.TIMED_OUT
            (thread,) = [one for one in threading.enumerate() if one.name == "coopgroup-resolve"]
            assert ask(transport, broker) == ALIVE
            answered.set()
            thread.join(WAIT_S)
            # On a busy machine, a connection may take more than 100 ms.
            assert any(by_name() == ALIVE for _ in range(20))
