"""Authentication of the group's connections."""

from functools import partial
from typing import Any

import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider

import coopgroup.kafka.rpc.broker_connection  # noqa: F401 -- registers TokenOnce
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


def test_password_settings_follow_when_the_mechanism_is_scram() -> None:
    """The name is escaped as RFC 5802 requires, because kafka-python sends it unchanged."""
    settings = read_connection_settings(SCRAM | {"sasl.username": "a=b,c"})
    assert dict(settings.connection) == {
        "security_protocol": "SASL_PLAINTEXT",
        "receive_message_max_bytes": 100_000_000,
        "sasl_mechanism": "SCRAM-SHA-512",
    }
    assert settings.credentials is not None
    assert settings.credentials.arguments() == {
        "sasl_plain_username": "a=3Db=2Cc",
        "sasl_plain_password": "secret",
    }


def test_name_is_left_alone_when_the_mechanism_is_plain() -> None:
    settings = read_connection_settings(
        SCRAM | {"sasl.mechanism": "plain", "sasl.username": "a=b,c"}
    )
    assert settings.credentials is not None
    assert settings.credentials.arguments()["sasl_plain_username"] == "a=b,c"


def test_clients_get_credentials_that_were_replaced() -> None:
    """A client that was made later has those of the configuration at first."""
    given: list[tuple[str, str]] = []

    class Client:
        def set_sasl_credentials(self, username: str, password: str) -> None:
            given.append((username, password))

    credentials = SaslCredentials("SCRAM-SHA-256", ("me", "old"))
    credentials.give(Client())
    assert given == []
    credentials.replace("me,2", "newer")
    credentials.give(Client())
    assert given == [("me,2", "newer")]
    assert credentials.arguments() == {
        "sasl_plain_username": "me=2C2",
        "sasl_plain_password": "newer",
    }
    assert "newer" not in repr(credentials)


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


def test_token_is_used_again_when_it_is_still_good() -> None:
    """The callback is called again after 80 % of the token's life, not earlier."""
    asked: list[str] = []
    now = 1_000.0

    def callback(argument: str) -> tuple[str, float]:
        asked.append(argument)
        return f"token-{len(asked)}", now + 100

    source = OAuthTokenSource(callback=callback, argument="text", clock=lambda: now)
    tokens = []
    for passed_s in (0, 79, 2):
        now += passed_s
        source.renew()
        tokens.append(source.take().text)
    assert (tokens, asked) == (["token-1", "token-1", "token-2"], ["text", "text"])


def test_loop_does_not_wait_for_the_callback_while_a_token_is_good(hand: Hand) -> None:
    """Heartbeats must continue during a slow call of the token service. Calls never overlap."""
    now = 1_000.0
    asked: list[str] = []

    def callback(argument: str) -> tuple[str, float]:
        asked.append(argument)
        return f"token-{len(asked)}", now + 100

    source = OAuthTokenSource(callback=callback, argument="", clock=lambda: now)
    source.renew()
    now += 90
    assert [source.take().text, source.take().text] == ["token-1", "token-1"]
    now += 20
    with pytest.raises(TimeoutError, match="has expired"):
        source.take()
    outcomes: list[BaseException | None] = []
    source.prepare("a connection", lambda _, error: outcomes.append(error))
    assert (len(hand.jobs("coopgroup-token")), outcomes) == (1, [])
    hand.run()
    assert (outcomes, source.take().text, len(asked)) == ([None], "token-2", 2)


def _note(outcomes: list[int], number: int, _: object, __: object) -> None:
    outcomes.append(number)


def test_loop_goes_on_with_a_token_while_the_callback_fails(hand: Hand) -> None:
    now = 1_000.0
    asked: list[int] = []

    def callback(_: str) -> tuple[str, float]:
        asked.append(1)
        if len(asked) > 1:
            raise OSError("the token service is down")
        return "token", 1_100.0

    source = OAuthTokenSource(callback=callback, argument="", clock=lambda: now)
    source.renew()
    now += 90
    for count in (2, 3):
        assert source.take().text == "token"
        hand.run()
        assert len(asked) == count
    with pytest.raises(OSError, match="is down"):
        source.renew()


def test_callback_that_hangs_keeps_few_threads(hand: Hand) -> None:
    """A job that does not run is a callback that hangs."""
    source = OAuthTokenSource(callback=lambda _: ("token", 2e9), argument="")
    outcomes: list[int] = []
    asked = 0

    def ask(times: int) -> None:
        nonlocal asked
        for _ in range(times):
            asked += 1
            source.prepare("a connection", partial(_note, outcomes, asked))

    hand.is_held = lambda _: True
    counts = []
    for _ in range(5):
        ask(10)
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
    fetched: list[int] = []

    def callback(_: str) -> tuple[str, float]:
        fetched.append(1)
        return "the same text", 2e9

    source = OAuthTokenSource(callback=callback, argument="")
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
    assert len(fetched) == 3


def test_extensions_come_along_when_the_callback_gives_them() -> None:
    """The long form of the callback's result has extensions (KIP-342)."""
    source = OAuthTokenSource(
        callback=lambda _: ("token", 2e9, "principal", {"a": 1}), argument="", clock=lambda: 1e9
    )
    source.renew()
    once = TokenOnce(source)
    assert (once.token(), once.extensions()) == ("token", {"a": "1"})
    assert isinstance(once, AbstractTokenProvider)


def test_callback_is_refused_when_it_returns_no_token() -> None:
    source = OAuthTokenSource(callback=lambda _: ("token",), argument="")
    with pytest.raises(ConfigurationError) as caught:
        source.renew()
    assert caught.value.field == "oauth_cb"


def test_settings_have_a_token_source_when_it_is_oauthbearer() -> None:
    settings = read_connection_settings(
        SCRAM
        | {
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda argument: (argument, 2e9),
            "sasl.oauthbearer.config": "scope=x",
        }
    )
    assert settings.token_source is not None
    settings.token_source.renew()
    assert settings.token_source.take().text == "scope=x"


@pytest.mark.parametrize(
    "answer", [(4e9, "token-canary"), ("t", 4e9, "me", "token-canary"), ("t", ["token-canary"])]
)
def test_callback_that_returns_a_token_in_the_wrong_place_shows_it_nowhere(
    answer: tuple[Any, ...],
) -> None:
    source = OAuthTokenSource(callback=lambda _: answer, argument="")
    with pytest.raises(ConfigurationError, match="oauth_cb: got") as caught:
        source.renew()
    assert "token-canary" not in f"{caught.value} {caught.value.value!r}"
    assert caught.value.__suppress_context__
