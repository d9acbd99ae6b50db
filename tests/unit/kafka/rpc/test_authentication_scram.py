"""A broker that cannot know the password: its answers to SCRAM are refused and named."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from kafka.net.sasl import get_sasl_mechanism

from coopgroup.kafka.rpc.authentication import _receive
from coopgroup.kafka.rpc.outcomes import HandshakeError

NAME = "SCRAM-SHA-256"
PASSWORD = "pass-word"  # noqa: S105 - of this test
SALT = b"salt"
OTHER_HOST = "so it may be another host"


class Login:
    """A client, and what a broker says to it."""

    def __init__(self) -> None:
        config = {"sasl_plain_username": "me", "sasl_plain_password": PASSWORD}
        self.mechanism: Any = get_sasl_mechanism(NAME)(**config, sasl_mechanism=NAME)
        self.bare = self.mechanism.auth_bytes().decode().removeprefix("n,,")

    def first(self, iterations: str = "4096", nonce: str = "") -> bytes:
        own = self.bare.partition("r=")[2]
        return f"r={nonce or own}more,s={base64.b64encode(SALT).decode()},i={iterations}".encode()

    def signature(self, first: bytes, password: str = PASSWORD) -> bytes:
        """Return the last message of a broker that has this password (RFC 5802)."""
        final = self.mechanism.auth_bytes().decode().partition(",p=")[0]
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, 4_096)
        key = hmac.digest(salted, b"Server Key", "sha256")
        said = hmac.digest(key, f"{self.bare},{first.decode()},{final}".encode(), "sha256")
        return b"v=" + base64.b64encode(said)

    def take(self, message: bytes) -> None:
        _receive(self.mechanism, NAME, message)

    def refusal(self, message: bytes) -> str:
        with pytest.raises(HandshakeError) as caught:
            self.take(message)
        said = str(caught.value)
        assert "\n" not in said
        assert PASSWORD not in said
        assert not self.mechanism.is_done()
        return said


def test_broker_that_knows_the_password_is_accepted() -> None:
    login = Login()
    login.take(first := login.first())
    login.take(login.signature(first))
    assert login.mechanism.is_authenticated()


@pytest.mark.parametrize("iterations", ["4095", "1", "0", "-1", "00001", "+1", "1_0", " 7"])
def test_few_iterations_are_refused_before_a_proof_is_made(iterations: str) -> None:
    """A proof with few iterations tells the password to whoever can guess."""
    login = Login()
    assert login.refusal(login.first(iterations)) == (
        f"{NAME}: the broker asks for {int(iterations)} iterations, "
        f"expected at least 4096 (RFC 7677), {OTHER_HOST}"
    )
    with pytest.raises(TypeError):
        login.mechanism._scram_client.final_message()  # noqa: SLF001 - there is no proof


def test_wrong_signature_is_named() -> None:
    login = Login()
    login.take(first := login.first())
    said = login.refusal(login.signature(first, "a guess"))
    assert said == f"{NAME}: the broker's signature is wrong, {OTHER_HOST}"


@pytest.mark.parametrize("iterations", ["", "x", "1000001", "9" * 5_000])
def test_iterations_that_cannot_be_read_are_refused(iterations: str) -> None:
    login = Login()
    said = login.refusal(login.first(iterations))
    assert said == f"{NAME}: the broker's message is invalid, {OTHER_HOST}"


@pytest.mark.parametrize(
    "message", [b"", b"nonsense", b"\xff=,", b"r=foreign,s=YQ==,i=4096", b"r="]
)
def test_first_message_that_is_none_is_refused(message: bytes) -> None:
    said = Login().refusal(message)
    assert said == f"{NAME}: the broker's message is invalid, {OTHER_HOST}"


@pytest.mark.parametrize("message", [b"e=invalid-proof", b"v=%%%", b"v=YQ"])
def test_last_message_that_is_none_is_refused(message: bytes) -> None:
    login = Login()
    login.take(login.first())
    assert login.refusal(message).startswith(f"{NAME}: the broker's ")
