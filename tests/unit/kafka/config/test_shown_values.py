"""Secrets of a configuration appear in no error, no `repr` and no log."""

from __future__ import annotations

import gc
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from coopgroup import CooperativeConsumer, groups, kafka
from coopgroup.assignors.sticky.assignor import StickyAssignor
from coopgroup.errors import ConfigurationError
from coopgroup.groups.group import CooperativeGroup
from coopgroup.groups.settings import GroupSettings
from coopgroup.kafka.config.connection_keys import CONNECTION_SETTINGS
from coopgroup.kafka.config.settings import (
    merge_configuration,
    read_settings,
    refusal_of_librdkafka,
)
from coopgroup.kafka.config.shown_values import HIDDEN, refused, safe_reason, shown
from coopgroup.kafka.rpc.wire_log import THREAD_PREFIX, keep_quiet_about_connections

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
    "sasl.pasword",
    "saslpassword",
    "ssl.key.pasword",
    "password",
    "coopgroup.sasl.password",
    "coopgroup.telemetry.fiel",
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


@pytest.mark.parametrize("value", [SECRET, f"{SECRET}\0", PEM, SECRET.encode(), [SECRET]])
@pytest.mark.parametrize("key", SECRET_KEYS)
def test_errors_show_no_value_of_a_key_that_is_not_known_to_be_harmless(
    key: str, value: object
) -> None:
    beside: list[dict[str, object]] = [
        {},
        {"session.timeout.ms": "never"},
        {"fetch.min.bytes": -4},
        {"isolation.level": SECRET[:7]},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"},
        {"security.protocol": "SSL"},
    ]
    for other in beside:
        for text in said({key: value, **other}):
            assert SECRET not in text


@pytest.mark.parametrize("key", sorted(CONNECTION_SETTINGS))
def test_errors_show_no_private_key_whatever_it_was_given_as(key: str) -> None:
    configuration = {"security.protocol": "SSL", key: PEM}
    for text in said({**configuration, "ssl.certificate.location": "/none"}):
        assert SECRET not in text


def test_errors_show_no_secret_that_stands_in_the_place_of_a_key() -> None:
    texts = said({f"sasl.password={SECRET}": ""}) + said({f"coopgroup.x {SECRET}": 1})
    assert len(texts) > 5
    for text in texts:
        assert SECRET not in text
    with pytest.raises(ConfigurationError) as caught:
        merge_configuration({("sasl.password", SECRET): 1}, {})  # type: ignore[dict-item]
    assert SECRET not in str(caught.value)


def test_address_with_a_password_is_refused_and_not_shown() -> None:
    """Other systems allow such addresses. Every connection error would show the host."""
    texts = said({"bootstrap.servers": f"a:9092,me:{SECRET}@b:9092"})
    assert texts[0] == (f"bootstrap.servers: got '{HIDDEN}', expected HOST:PORT, more after commas")
    for text in texts:
        assert SECRET not in text


def test_harmless_values_are_shown_and_objects_by_their_type_only() -> None:
    """A callback's `repr` may show the object that owns it."""
    assert str(refused("session.timeout.ms", "x", "a number")) == (
        "session.timeout.ms: got 'x', expected a number"
    )
    assert shown("error_cb", 5) == 5
    assert shown("error_cb", {"password": SECRET}) == "(dict)"
    assert shown("sasl.password", 5) == HIDDEN


def test_errors_about_keys_are_made_in_one_place() -> None:
    about_no_key = {
        "describing.py: _KEY",
        "identity.py: _KEY",
        "leadership.py: group.instance.id",
        "settings.py: configuration",
        "telemetry_sink.py: coopgroup.telemetry.file",
    }
    call = re.compile(r'ConfigurationError\(\s*(?:"([^"]*)"|(\w+)|(f"[^"]*"))')
    found = set()
    for module in (kafka, groups):
        for path in sorted(Path(str(module.__file__)).parent.rglob("*.py")):
            for literal, name, formatted in call.findall(path.read_text()):
                if "key" in name.lower() or "." in literal or literal == "configuration":
                    found.add(f"{path.name}: {literal or name or formatted}")
    assert found - {"shown_values.py: readable"} <= about_no_key


@pytest.mark.parametrize(
    ("reason", "is_safe"),
    [
        (f"Invalid value {SECRET!r}", False),
        (f"cannot parse from ...{SECRET[-5:]}", False),
        ("ssl.key.pem failed", True),
    ],
)
def test_words_of_librdkafka_are_left_out_when_they_repeat_part_of_a_secret(
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


@pytest.fixture
def quiet() -> Iterator[None]:
    """Add the filters to kafka-python's loggers, and remove them at the end."""
    names = [one for one in logging.root.manager.loggerDict if one.startswith("kafka")]
    before = {name: list(logging.getLogger(name).filters) for name in names}
    keep_quiet_about_connections()
    yield
    for name, filters in before.items():
        logging.getLogger(name).filters[:] = filters


def exchange(thread_name: str) -> None:
    """Send a password with kafka-python, on a thread of this name."""

    def run() -> None:
        parser = KafkaProtocol(client_id="c", ident="i")
        parser.send_request(SaslHandshakeRequest(mechanism="PLAIN", version=1))
        parser.send_request(SaslAuthenticateRequest(SECRET.encode(), version=1))
        data = parser.send_bytes()
        assert SECRET.encode() in data
        log = logging.getLogger("kafka.net.connection")
        log.debug("%s Request %d: %s", "c", 2, SaslAuthenticateRequest(SECRET.encode(), version=1))
        log.debug("%s Request %d: %s", "c", 3, SaslHandshakeRequest(mechanism="PLAIN", version=1))

    thread = threading.Thread(target=run, name=thread_name)
    thread.start()
    thread.join()


@pytest.mark.usefixtures("quiet")
def test_debug_log_of_the_wire_has_no_bytes_of_sasl(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="kafka"):
        exchange(f"{THREAD_PREFIX}x")
        ours = list(caplog.messages)
        caplog.clear()
        exchange("the application's")
        theirs = list(caplog.messages)
    assert SECRET not in "".join(ours)
    assert len(ours) == len(theirs) >= 5
    assert any("SaslAuthenticateRequest" in line for line in ours)
    assert any("mechanism='PLAIN'" in line for line in ours)
    assert SECRET in "".join(theirs)
