"""Secrets of a configuration appear in no error, no `repr` and no log."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from coopgroup import CooperativeConsumer
from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.errors import ConfigurationError
from coopgroup.groups.group import CooperativeGroup
from coopgroup.groups.settings import GroupSettings
from coopgroup.kafka.config.keys import CONNECTION_KEYS
from coopgroup.kafka.config.settings import (
    merge_configuration,
    read_settings,
    refusal_of_librdkafka,
)
from coopgroup.kafka.config.shown_values import HIDDEN, refused, safe_reason, shown

SECRET = "hunter2-canary"  # noqa: S105 -- of nobody
SHARED = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
BASE = {**SHARED, "log_level": 0}
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": f"{SECRET}-user",
    "sasl.password": f"{SECRET}-password",
}
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
SECRET_KEYS = [
    "sasl.password",
    "sasl.username",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.kerberos.kinit.cmd",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.certificate.pem",
    "ssl.ca.pem",
    "ssl_key",
    "ssl_certificate",
    "https.ca.pem",
    # misspelt
    "sasl.passwrd",
    "saslpassword",
    "password",
    "coopgroup.sasl.password",
    "group.pasword",
]


def said(configuration: Mapping[str, Any]) -> list[str]:
    """Return all errors about a configuration, of a consumer and of a group."""
    errors: list[BaseException] = []
    try:
        settings = read_settings(merge_configuration(BASE, configuration))
        try:
            Consumer(dict(settings.librdkafka)).close()
        except (KafkaException, TypeError, ValueError) as error:
            errors.append(refusal_of_librdkafka(error, settings.librdkafka))
    except ConfigurationError as error:
        errors.append(error)
    try:
        GroupSettings.read({**SHARED, **configuration})
    except ConfigurationError as error:
        errors.append(error)
    texts = []
    for one in errors:
        assert one.__cause__ is None
        texts += [str(one), repr(one), repr(vars(one))]
    return texts


def test_errors_show_no_value_of_a_key_that_may_be_secret(subtests: pytest.Subtests) -> None:
    for value, key in product([SECRET, f"{SECRET}\0", PEM, SECRET.encode(), [SECRET]], SECRET_KEYS):
        with subtests.test(value=value, key=key):
            beside: list[dict[str, object]] = [
                {},
                {"session.timeout.ms": "never"},
                {"fetch.min.bytes": -4},
                {"isolation.level": SECRET[:7]},
                {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"},
                {"security.protocol": "SSL"},
            ]
            for other in beside:
                assert SECRET not in "".join(said({key: value, **other}))


def test_errors_show_no_private_key_whatever_it_was_given_as(subtests: pytest.Subtests) -> None:
    for key in sorted(CONNECTION_KEYS):
        with subtests.test(key=key):
            beside = {"security.protocol": "SSL", "ssl.certificate.location": "/none"}
            assert SECRET not in "".join(said({**beside, key: PEM}))


def test_errors_show_no_secret_in_the_place_of_a_key_or_in_an_address() -> None:
    """Other systems allow addresses with a password. Every connection error would show the host."""
    texts = said({"bootstrap.servers": f"a:9092,me:{SECRET}@b:9092"})
    assert texts[0].startswith(f"bootstrap.servers: got '{HIDDEN}', expected HOST:PORT, more after")
    texts += said({f"sasl.password={SECRET}": ""}) + said({f"coopgroup.x {SECRET}": 1})
    with pytest.raises(ConfigurationError) as caught:
        merge_configuration({("sasl.password", SECRET): 1}, {})  # type: ignore[dict-item]
    assert SECRET not in "".join([*texts, str(caught.value)])


def test_harmless_values_are_shown_and_objects_by_their_type_only() -> None:
    """A callback's `repr` may show the object that owns it."""
    assert str(refused("session.timeout.ms", "x", "a number")) == (
        "session.timeout.ms: got 'x', expected a number"
    )
    assert shown("error_cb", 5) == 5
    assert shown("error_cb", {"password": SECRET}) == "(dict)"
    assert shown("sasl.password", 5) == HIDDEN


@pytest.mark.parametrize(
    ("reason", "is_safe"),
    [
        (f"Invalid value {SECRET!r}", False),
        (f"cannot parse from ...{SECRET[-5:]}", False),
        ("ssl.key.pem failed", True),
    ],
)
def test_words_of_librdkafka_that_repeat_a_secret_are_left_out(
    reason: str, *, is_safe: bool
) -> None:
    """A part of a secret counts: parsers quote the text at which they stopped."""
    said = safe_reason(reason, {"group.id": "Invalid value", "sasl.password": SECRET})
    assert said == (reason if is_safe else None)


def _own_objects(*roots: object) -> Iterator[object]:
    """Yield all objects that the collector can reach from the roots, without modules."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | type(gc)):
            continue
        seen[id(one)] = one
        module = type(one).__module__ or ""
        if module.partition(".")[0] in {"coopgroup", "kafka"}:
            yield one
        if type(one).__name__ != "function":
            waiting += gc.get_referents(one)
        else:
            waiting += [cell.cell_contents for cell in getattr(one, "__closure__", None) or ()]


OAUTH = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.config": f"{SECRET}-config",
    "oauth_cb": lambda _: (f"{SECRET}-token", 4e9, "me", {"extension": f"{SECRET}-extension"}),
}


@pytest.mark.parametrize("login", [LOGIN, OAUTH], ids=["password", "token"])
def test_no_object_shows_a_secret_in_its_repr(tmp_path: Path, login: dict[str, Any]) -> None:
    """Debuggers show every object of a consumer or a group that tries to connect."""
    shared = {**SHARED, **login, "coopgroup.state.dir": str(tmp_path / "state")}
    group = CooperativeGroup(shared, catalogue=[("a", 0)], start=print, stop=print)
    consumer = CooperativeConsumer(shared, assignor=StickyAssignor())
    try:
        group.join()
        consumer.subscribe(["t"])
        consumer.poll(0.2)
        found = list(_own_objects(consumer, group))
        names = {type(one).__name__ for one in found}
        assert {"ConsumerSettings", "ConnectionSettings", "GroupDriver", "Channel"} <= names
        assert {"GroupSettings", "CatalogueLookup", "ClusterLookup"} <= names
        showing = {type(one).__name__ for one in found if SECRET in f"{one!r}{one!s}"}
    finally:
        consumer.close()
        group.close(0)
    assert showing == set()
