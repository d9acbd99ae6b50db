"""Tokens by OIDC for the group's connections, from a provider on loopback."""

import json
import ssl
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.config.oidc import (
    ClientCredentials,
    TokenError,
    read_client_credentials,
)
from tests.support.oidc_provider import CLIENT_SECRET, OidcProvider, Seen, oidc_provider

WAIT_S = 60.0
SERVER = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT"}
OFFLINE = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.client.id": "id",
    "sasl.oauthbearer.client.secret": CLIENT_SECRET,
    "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
}


def credentials_of(provider: OidcProvider, **more: str) -> ClientCredentials:
    return read_client_credentials(provider.configuration() | more)


def essence(request: Seen) -> tuple[str, str, Mapping[str, str | None]]:
    names = ("Accept", "Authorization", "Content-Type", "Content-Length")
    return request.path, request.body, {name: request.headers.get(name) for name in names}


@pytest.mark.parametrize("scope", ["", "kafka read&write=é"])
def test_request_is_the_one_of_librdkafka(scope: str) -> None:
    """An endpoint that serves librdkafka serves the group's connections, too."""
    with oidc_provider() as provider:
        configuration = provider.configuration() | {"sasl.oauthbearer.scope": scope}
        read_client_credentials(configuration)()
        consumer = Consumer(SERVER | configuration | {"group.id": "g", "log_level": 0})
        assert provider.asked.acquire(timeout=WAIT_S)
        assert provider.asked.acquire(timeout=WAIT_S)
        consumer.close()
        ours, theirs = map(essence, provider.seen)
    assert ours == theirs


def test_token_comes_with_its_own_expiry_its_principal_and_the_extensions() -> None:
    expiry = time.time() + 77
    with oidc_provider(claims={"sub": "", "azp": "orders", "exp": expiry}) as provider:
        keys = {"sub.claim.name": "azp", "extensions": "logicalCluster=lkc-1, pool=a=b"}
        more = {f"sasl.oauthbearer.{key}": value for key, value in keys.items()}
        token, expires_at, principal, extensions = credentials_of(provider, **more)()
    assert token.count(".") == 2
    assert expires_at == pytest.approx(expiry, abs=1)
    assert principal == "orders"
    assert extensions == {"logicalCluster": "lkc-1", "pool": "a=b"}


NO_TOKEN = "has no access_token that is a JWT with exp and sub"  # noqa: S105


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, {"error": "invalid_client"}, "answered 401 (invalid_client)"),
        (400, {"error": f"wrong secret {CLIENT_SECRET}"}, "answered 400"),
        (500, "no JSON", "answered 500"),
        (302, {}, "answered 302"),
        (200, {}, NO_TOKEN),
        (200, [], NO_TOKEN),
        (200, "[" * 100_000, NO_TOKEN),
        (200, {"access_token": CLIENT_SECRET}, NO_TOKEN),
        (200, {"access_token": "a.e30.c"}, NO_TOKEN),
        (200, {"access_token": 5}, NO_TOKEN),
        (200, "x" * 1_000_001, "more than 1000000 bytes"),
    ],
)
def test_answer_without_a_token_is_an_error(status: int, body: object, said: str) -> None:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    with oidc_provider() as provider:
        provider.answer = (status, {"Location": f"{provider.origin}/elsewhere"}, data)
        with pytest.raises(TokenError) as caught:
            credentials_of(provider)()
        # A redirect would carry the secret to another host.
        assert [one.path for one in provider.seen] == ["/token?realm=test"]
    assert said in str(caught.value)
    assert CLIENT_SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("claims", [{"sub": None}, {"exp": "soon"}, {"exp": 10**400}, {"exp": 1}])
def test_token_that_librdkafka_would_refuse_is_an_error(claims: dict[str, Any]) -> None:
    said = "has expired" if claims == {"exp": 1} else NO_TOKEN
    with oidc_provider(claims=claims) as provider, pytest.raises(TokenError, match=said):
        credentials_of(provider)()


def test_failing_endpoint_is_asked_again_after_growing_pauses() -> None:
    now = 100.0
    asked_at: list[float] = []
    with oidc_provider(answer=(503, {}, b"")) as provider:
        credentials = credentials_of(provider)
        credentials.clock = lambda: now
        while now < 160:
            with pytest.raises(TokenError, match="answered 503"):
                credentials()
            if len(provider.seen) > len(asked_at):
                asked_at.append(now)
            now += 0.1
        pauses = [late - early for early, late in pairwise(asked_at)]
        usual = [1, 2, 4, 8, 10, 10]
        assert all(
            0.79 * usual[at] < pauses[at] < 1.21 * usual[at] + 0.11 for at in range(len(usual))
        )
        provider.answer = None
        now += 13
        credentials()
        provider.answer = (503, {}, b"")
        now += 0.1
        asked = len(provider.seen)
        with pytest.raises(TokenError):
            credentials()
        assert len(provider.seen) == asked + 1  # a success ends the pauses


def test_endpoint_that_does_not_answer_is_an_error() -> None:
    url = "http://127.0.0.1:1/token-canary"
    credentials = read_client_credentials(OFFLINE | {"sasl.oauthbearer.token.endpoint.url": url})
    with pytest.raises(TokenError, match=r"did not answer \(Connection refused\)") as caught:
        credentials()
    assert "canary" not in str(caught.value)


def test_https_trusts_what_is_configured(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pem = authority.cert_pem.bytes().decode()
    with oidc_provider(server) as provider:
        for trusted in ({"https.ca.pem": pem}, {"https.ca.location": str(tmp_path / "ca.pem")}):
            assert credentials_of(provider, **trusted)()[0].count(".") == 2
        # `enable.ssl.certificate.verification` is about brokers.
        stranger = credentials_of(provider, **{"enable.ssl.certificate.verification": "false"})
        with pytest.raises(TokenError, match="certificate is not trusted"):
            stranger()


URL = "sasl.oauthbearer.token.endpoint.url"
OTHER_ID = "sasl.oauthbearer.client.credentials.client.id"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sasl.oauthbearer.client.id": ""}, "sasl.oauthbearer.client.id"),
    ({"sasl.oauthbearer.client.secret": None}, "sasl.oauthbearer.client.secret"),
    ({OTHER_ID: "id"}, OTHER_ID),
    *(({URL: url}, URL) for url in ("", "ftp://host/x", "https:///x", "http://a/ b")),
    ({URL: "https://me:secret@host/"}, URL),
    ({"sasl.oauthbearer.extensions": "a"}, "sasl.oauthbearer.extensions"),
    ({"sasl.oauthbearer.extensions": "auth=x"}, "sasl.oauthbearer.extensions"),
    ({"sasl.oauthbearer.grant.type": "other"}, "sasl.oauthbearer.grant.type"),
    ({"sasl.oauthbearer.assertion.file": "f"}, "sasl.oauthbearer.assertion.file"),
    ({"https.ca.location": "/no/such/file"}, "https.ca.location"),
    ({"https.ca.location": "probe", "https.ca.pem": "x"}, "https.ca.pem"),
    ({"https.ca.pem": "no certificate"}, "https.ca.pem"),
    ({"oauth_cb": print}, "oauth_cb"),
]


def test_wrong_keys_are_refused_in_one_line(subtests: pytest.Subtests) -> None:
    for changes, key in WRONG:
        with subtests.test(changes=changes, key=key):
            with pytest.raises(ConfigurationError) as caught:
                read_connection_settings(SERVER | OFFLINE | changes)
            assert caught.value.field == key
            assert "\n" not in str(caught.value)
            assert "secret@" not in str(caught.value)
