"""Authentication of the group's connections."""

from typing import Any

import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider

import coopgroup.kafka.rpc.authentication  # noqa: F401 -- registers TokenOnce
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.config.sasl import (
    TOKEN_PATIENCE_S,
    OAuthTokenSource,
    SaslCredentials,
    TokenOnce,
)
from tests.support.by_hand import Hand

SCRAM = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "user",
    "sasl.password": "secret",
}


@pytest.mark.parametrize(
    ("mechanism", "name"), [("SCRAM-SHA-512", "a=3Db=2Cc"), ("plain", "a=b,c")]
)
def test_password_settings_of_a_mechanism(mechanism: str, name: str) -> None:
    """RFC 5802 requires escapes for SCRAM, because kafka-python sends the name unchanged."""
    settings = read_connection_settings(
        SCRAM | {"sasl.mechanism": mechanism, "sasl.username": "a=b,c"}
    )
    assert dict(settings.connection) == {
        "security_protocol": "SASL_PLAINTEXT",
        "receive_message_max_bytes": 100_000_000,
        "sasl_mechanism": mechanism.upper(),
    }
    assert settings.credentials is not None
    assert settings.credentials.arguments() == {
        "sasl_plain_username": name,
        "sasl_plain_password": "secret",
    }


@pytest.mark.parametrize(
    ("username", "password", "message"),
    [
        ("me", None, "password: got a NoneType, expected a string"),
        (b"me", "new", "username: got a bytes, expected a string"),
        ("me", "a\0b", "password: got a string with NUL"),
    ],
)
def test_wrong_credentials_are_refused_and_the_old_ones_stay(
    username: Any,  # noqa: ANN401
    password: Any,  # noqa: ANN401
    message: str,
) -> None:
    credentials = SaslCredentials("PLAIN", ("me", "old"))
    with pytest.raises((TypeError, ValueError), match=message):
        credentials.replace(username, password)
    assert credentials.newest == ("me", "old")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism"),
        ({"sasl.username": ""}, "sasl.username"),
        ({"sasl.password": None}, "sasl.password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "oauth_cb"),
    ],
)
def test_sasl_is_refused_when_something_is_missing(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_connection_settings(SCRAM | changes)
    assert caught.value.field == key


def test_missing_mechanism_is_not_called_kerberos(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application did not ask for GSSAPI, so no package is missing."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    given = {key: value for key, value in SCRAM.items() if key != "sasl.mechanism"}
    with pytest.raises(ConfigurationError) as caught:
        read_connection_settings(given)
    assert str(caught.value) == (
        "sasl.mechanism: got None, expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI, "
        "OAUTHBEARER"
    )


class TokenService:
    """A callback whose tokens are valid for 100 seconds, and the clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.asked: list[str] = []
        self.is_down = False
        self.source = OAuthTokenSource(callback=self, argument="text", clock=lambda: self.now)
        self.source.renew()

    def __call__(self, argument: str) -> tuple[str, float]:
        self.asked.append(argument)
        if self.is_down:
            raise OSError("the token service is down")
        return f"token-{len(self.asked)}", self.now + 100

    def take(self) -> str:
        return self.source.take().text


def test_loop_does_not_wait_for_the_callback_while_a_token_is_good(hand: Hand) -> None:
    """Heartbeats must continue during a slow call of the token service. Calls never overlap."""
    service = TokenService()
    service.now += 90
    assert [service.take(), service.take()] == ["token-1", "token-1"]
    service.now += 20
    with pytest.raises(TimeoutError, match="has expired"):
        service.take()
    outcomes: list[BaseException | None] = []
    service.source.prepare("a connection", lambda _, error: outcomes.append(error))
    assert (len(hand.jobs("coopgroup-token")), outcomes) == (1, [])
    hand.run()
    assert (outcomes, service.take(), len(service.asked)) == ([None], "token-2", 2)


def test_callback_that_hangs_keeps_few_threads(hand: Hand) -> None:
    """A job that does not run is a callback that hangs."""
    source = OAuthTokenSource(callback=lambda _: ("token", 2e9), argument="")
    outcomes: list[int] = []
    hand.is_held = lambda _: True
    counts = []
    for asked in range(1, 51):
        source.prepare("a connection", lambda *_, asked=asked: outcomes.append(asked))
        if asked % 10:
            continue
        counts.append(len(hand.jobs("coopgroup-token")))
        hand.advance(TOKEN_PATIENCE_S)
    assert counts == [1, 2, 3, 3, 3]
    hung = hand.jobs()
    hand.is_held = lambda job: job is not hung[2]
    hand.run()
    assert (outcomes, source.is_fresh) == ([50], True)
    hand.is_held = lambda _: False
    hand.run()
    assert (outcomes, hand.jobs()) == ([50], [])


def test_refused_token_is_dropped_and_the_second_in_a_row_is_definite() -> None:
    """A token may be revoked at any time. A second refusal in a row means bad credentials."""
    source = OAuthTokenSource(callback=lambda _: ("the same text", 2e9), argument="")
    source.renew()
    first = source.take()
    assert not source.refuse(first)
    # The other connection had sent the same token.
    assert not source.refuse(first)
    with pytest.raises(TimeoutError):
        source.take()
    source.renew()
    assert not source.refuse(first)
    source.accept()
    assert not source.refuse(source.take())
    source.renew()
    assert source.refuse(source.take())


def test_extensions_come_along_when_the_callback_gives_them() -> None:
    """The long form of the callback's result has extensions (KIP-342)."""
    source = OAuthTokenSource(
        callback=lambda _: ("token", 2e9, "principal", {"a": 1}), argument="", clock=lambda: 1e9
    )
    source.renew()
    once = TokenOnce(source)
    assert (once.token(), once.extensions()) == ("token", {"a": "1"})
    assert isinstance(once, AbstractTokenProvider)


@pytest.mark.parametrize(
    "answer",
    [
        ("token-canary",),
        (4e9, "token-canary"),
        ("t", 4e9, "me", "token-canary"),
        ("t", ["token-canary"]),
    ],
)
def test_answer_of_the_callback_without_a_token_is_not_shown(answer: tuple[Any, ...]) -> None:
    source = OAuthTokenSource(callback=lambda _: answer, argument="")
    with pytest.raises(ConfigurationError, match="oauth_cb: got") as caught:
        source.renew()
    assert "token-canary" not in f"{caught.value} {caught.value.value!r}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
