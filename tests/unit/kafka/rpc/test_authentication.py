"""Failures of TLS and SASL: which are final, which are retried, and how heartbeats continue."""

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from attrs import frozen
from kafka.errors import KafkaConnectionError

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import HeartbeatAnswer
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.rpc import authentication
from coopgroup.kafka.rpc.channel import _kind
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.support.oidc_provider import oidc_provider
from tests.support.sasl_broker import REFUSED, SaslBroker, sasl_broker
from tests.unit.kafka.rpc.transport_stage import HEARTBEAT, begin, node_at, running

WAIT_S = 10.0
ALIVE = HeartbeatAnswer(error_code=0)
PLAIN: Final[dict[str, Any]] = {
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "old",
}
HANDSHAKE, FINAL = FailureKind.HANDSHAKE, FailureKind.AUTHENTICATION


@frozen
class Stage:
    """A broker with authentication, and a transport to it."""

    broker: SaslBroker
    settings: ConnectionSettings
    transport: GroupTransport

    def begin(self, lane: Lane = Lane.COMMIT) -> "queue.Queue[Any]":
        return begin(self.transport, HEARTBEAT, node_at(self.broker.address), 5_000, lane)

    def ask(self, lane: Lane = Lane.COMMIT) -> Any:  # noqa: ANN401
        return self.begin(lane).get(timeout=WAIT_S)

    def kinds(self, count: int) -> list[FailureKind | None]:
        return [kind_of(self.ask()) for _ in range(count)]


@contextmanager
def stage_of(
    judge: Callable[[bytes], int | None] = lambda _: 0,
    reported: list[BaseException] | None = None,
    mechanisms: tuple[str, ...] = ("PLAIN",),
    lifetime_ms: int = 0,
    **keys: Any,  # noqa: ANN401
) -> Iterator[Stage]:
    with sasl_broker(judge, mechanisms=mechanisms, lifetime_ms=lifetime_ms) as broker:
        settings = broker.settings(**keys)
        with running(settings, reported) as transport:
            yield Stage(broker, settings, transport)


def kind_of(outcome: object) -> FailureKind | None:
    return outcome.kind if isinstance(outcome, TransportFailure) else None


OAUTH = ("OAUTHBEARER",)


class Tokens:
    """An `oauth_cb` that returns a new token each time."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, _: str) -> tuple[str, float]:
        self.given += 1
        return f"token-{self.given}", time.time() + 3600


def test_refused_token_is_fetched_anew() -> None:
    """A token that is revoked early costs one attempt, not the membership."""
    tokens = Tokens()
    judge = lambda given: REFUSED if b"token-1" in given else 0  # noqa: E731
    with stage_of(judge, mechanisms=OAUTH, oauth_cb=tokens) as stage:
        assert stage.kinds(2) == [HANDSHAKE, None]
        assert stage.ask(Lane.JOIN) == ALIVE
        assert tokens.given == 2
        assert [b"token-2" in one for one in stage.broker.seen] == [False, True, True]


def test_refusal_of_a_new_token_is_final() -> None:
    with stage_of(lambda _: REFUSED, mechanisms=OAUTH, oauth_cb=Tokens()) as stage:
        assert stage.kinds(2) == [HANDSHAKE, FINAL]


def test_token_refused_in_mid_stream_is_fetched_anew() -> None:
    """The broker may end a session at any time (KIP-368). The new session needs a valid token."""
    tokens = Tokens()
    revoked, refused = threading.Event(), threading.Event()

    def judge(given: bytes) -> int:
        if revoked.is_set() and b"token-1" in given:
            refused.set()
            return REFUSED
        return 0

    with stage_of(judge, mechanisms=OAUTH, lifetime_ms=600, oauth_cb=tokens) as stage:
        assert stage.ask() == ALIVE
        revoked.set()
        assert refused.wait(WAIT_S)
        kinds = stage.kinds(3)
    assert (tokens.given, kinds[-1]) == (2, None)
    assert set(kinds) <= {None, HANDSHAKE}


def test_replaced_credentials_are_not_refused_before_a_new_connection_has_tried_them() -> None:
    """A broker refuses another user when a session ends (KIP-368), but not on a new connection."""
    codes, refused = iter([0, REFUSED]), threading.Event()

    def judge(_: bytes) -> int:
        code = next(codes, 0)
        if code:
            refused.set()
        return code

    with stage_of(judge, lifetime_ms=600, **PLAIN) as stage:
        assert stage.ask() == ALIVE
        assert stage.settings.credentials is not None
        stage.settings.credentials.replace("you", "new")
        assert refused.wait(WAIT_S)
        kinds = stage.kinds(3)
        logins = [given.rsplit(b"\0", 2)[1:] for given in stage.broker.seen]
    assert kinds[-1] is None
    assert set(kinds) <= {None, HANDSHAKE}
    assert logins[:3] == [[b"me", b"old"], [b"you", b"new"], [b"you", b"new"]]


@pytest.mark.parametrize("hangs", [False, True], ids=["succeeds", "hangs"])
def test_session_is_renewed_on_its_connection_which_is_given_up_if_that_hangs(
    *, hangs: bool
) -> None:
    """A heartbeat behind a renewal that hangs has a deadline, and the next one connects anew."""
    renewing, go_on = threading.Event(), threading.Event()

    def judge(_: bytes) -> int:
        if len(stage.broker.seen) == 2:
            renewing.set()
            assert go_on.wait(WAIT_S)
        return 0

    with stage_of(judge, lifetime_ms=600, **PLAIN) as stage:
        assert stage.ask() == ALIVE
        assert renewing.wait(WAIT_S)
        node = node_at(stage.broker.address)
        waiting = begin(stage.transport, HEARTBEAT, node, 100 if hangs else 5_000)
        if hangs:
            assert kind_of(waiting.get(timeout=WAIT_S)) is FailureKind.TIMED_OUT
            waiting = stage.begin()
        else:
            go_on.set()
        assert waiting.get(timeout=WAIT_S) == ALIVE
        assert stage.broker.connections == 1 + hangs
        go_on.set()


def test_missing_token_is_reported_as_a_failed_handshake() -> None:
    """Without a report, a member that never joins would be silent about its cause."""

    def fails(_: str) -> tuple[str, float]:
        raise OSError("token-canary")

    with oidc_provider(answer=(401, {}, b'{"error": "invalid_client"}')) as provider:
        for keys, said in (
            (provider.configuration(), "the endpoint answered 401 (invalid_client)"),
            ({"oauth_cb": fails}, "OSError"),
        ):
            with stage_of(mechanisms=OAUTH, **keys) as stage:
                assert stage.ask() == TransportFailure(
                    kind=HANDSHAKE, message=f"no OAuth token: {said}"
                )


@pytest.mark.parametrize(
    ("code", "mechanism", "kind"),
    [
        (REFUSED, "PLAIN", FINAL),
        (None, "PLAIN", FailureKind.DISCONNECTED),
        (34, "PLAIN", HANDSHAKE),
        (-1, "PLAIN", HANDSHAKE),
        (0, "SCRAM-SHA-512", HANDSHAKE),
    ],
    ids=["refused", "hangs up", "illegal state", "broker's own error", "mechanism is not on yet"],
)
def test_only_refusals_are_final(code: int | None, mechanism: str, kind: FailureKind) -> None:
    """Each retry may count towards a lock of the account. A starting broker has refused none."""
    with stage_of(lambda _: code, mechanisms=(mechanism,), **PLAIN) as stage:
        assert stage.kinds(1) == [kind]


def test_handshakes_that_fail_are_reported_less_and_less_often() -> None:
    reported: list[BaseException] = []
    counts = []
    with stage_of(lambda _: -1, reported, **PLAIN) as stage:
        for _ in range(5):
            stage.ask()
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
def test_tls_is_final_only_if_our_certificate_is_refused(
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


def named(name: str) -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == name}


def test_heartbeats_go_out_while_kerberos_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    more: dict[str, Any] = {"socket.connection.setup.timeout.ms": 1_000}
    with stage_of(**PLAIN, **more) as stage:
        monkeypatch.setattr(SlowMechanism, "hung", threading.Event())
        assert stage.ask(Lane.JOIN) == ALIVE
        earlier = named("coopgroup-sasl")
        monkeypatch.setattr(authentication, "get_sasl_mechanism", lambda _: SlowMechanism)
        slow = stage.begin()
        assert SlowMechanism.waiting.get(timeout=WAIT_S) == "coopgroup-sasl"
        assert stage.ask(Lane.JOIN) == ALIVE
        assert kind_of(slow.get(timeout=WAIT_S)) is FailureKind.TIMED_OUT
        again = [stage.ask() for _ in range(3)]
        assert {kind_of(one) for one in again} == {FailureKind.DISCONNECTED}
        assert "has not returned yet" in again[0].message
        (thread,) = named("coopgroup-sasl") - earlier
        SlowMechanism.hung.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_hanging_name_server_keeps_one_thread_of_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def hang(host: Any, *arguments: Any) -> Any:  # noqa: ANN401  (as getaddrinfo has them)
        assert host != "localhost" or answered.wait(WAIT_S)
        return look_up(host, *arguments)

    more: dict[str, Any] = {
        "broker.address.family": "v4",
        "socket.connection.setup.timeout.ms": 500,  # on a busy machine, a connection takes 100 ms
    }
    with stage_of(**PLAIN, **more) as stage:
        node = node_at(stage.broker.address.replace("127.0.0.1", "localhost"))
        monkeypatch.setattr(socket, "getaddrinfo", hang)
        earlier = named("coopgroup-resolve")

        def by_name() -> Any:  # noqa: ANN401
            return begin(stage.transport, HEARTBEAT, node, 5_000, Lane.JOIN).get(timeout=WAIT_S)

        for _ in range(2):
            assert kind_of(by_name()) is FailureKind.TIMED_OUT
        (thread,) = named("coopgroup-resolve") - earlier
        assert any(stage.ask() == ALIVE for _ in range(20))
        answered.set()
        thread.join(WAIT_S)
        assert any(by_name() == ALIVE for _ in range(20))
