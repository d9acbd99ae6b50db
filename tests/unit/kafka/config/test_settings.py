"""Valid configurations, and each reason to refuse one."""

import logging
from socket import gethostname
from typing import Any

import pytest
from attrs import evolve
from confluent_kafka import Consumer, KafkaException

from coopgroup.core.member import MemberConfig
from coopgroup.core.member.config import GroupProtocol
from coopgroup.core.model.traits import TRAITS_RULE
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.keys import KEYS
from coopgroup.kafka.config.settings import (
    ConsumerSettings,
    merge_configuration,
    read_settings,
    refusal_of_librdkafka,
)
from coopgroup.kafka.consumer import choose_plugins
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE

GIVEN = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"}


OWN_KEYS = (
    "coopgroup.assignor, coopgroup.bell.topic, coopgroup.host, "
    "coopgroup.member, coopgroup.policy, coopgroup.protocols, coopgroup.state.dir, "
    "coopgroup.telemetry.file, coopgroup.telemetry.listener, coopgroup.telemetry.topic, "
    "coopgroup.window.heartbeat.interval.ms"
)
NEAR = " (did you mean coopgroup.telemetry.topic?)"
NOT_KNOWN = "a connection setting that coopgroup knows"


def read(**more: Any) -> ConsumerSettings:  # noqa: ANN401  (values of keys)
    return read_settings(GIVEN | more)


def test_settings_when_nothing_is_given_are_librdkafkas_defaults() -> None:
    settings = read()
    assert settings.member == MemberConfig(
        group_id="g",
        has_bell=True,
        host=gethostname(),
        session_timeout_ms=45_000,
        heartbeat_interval_ms=3_000,
        rebalance_timeout_ms=300_000,
        request_timeout_ms=30_000,
    )
    assert settings.librdkafka == GIVEN | {
        "client.id": gethostname(),
        "fetch.queue.backoff.ms": 10,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }
    named = {"bootstrap.servers": "127.0.0.1:9092", "client.id": gethostname()}
    assert (settings.admin, settings.connection.client_id) == (named, gethostname())
    assert settings.own_topics == {"coopgroup-bell", "coopgroup-telemetry"}
    assert (settings.max_poll_interval_ms, settings.auto_commit_interval_ms) == (300_000, 5_000)
    assert (settings.auto_offset_store, settings.offset_reset) == (True, "latest")
    assert settings.metadata_refresh_ms == 300_000
    assert (settings.telemetry_file, settings.on_commit) == (None, None)
    assert (settings.bell_topic, settings.names_bell) == ("coopgroup-bell", False)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("web-7.example.org", "web-7.example.org"),
        ("büro pc:1", "b-ro-pc-1"),
        ("h" * 300, "h" * 64),
        ("", "coopgroup"),
    ],
)
def test_client_without_a_name_has_that_of_its_host(
    monkeypatch: pytest.MonkeyPatch, host: str, name: str
) -> None:
    """Without the number of the process: a restarted client gets its partitions back."""
    monkeypatch.setattr("coopgroup.kafka.config.settings.gethostname", lambda: host)
    settings = read()
    assert (settings.connection.client_id, settings.librdkafka["client.id"]) == (name, name)


def test_settings_when_values_are_given_are_those_of_the_member_and_of_librdkafka() -> None:
    settings = read(
        **{
            "group.instance.id": "static-1",
            "client.id": "me",
            "client.rack": "rack-a",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": 500,
            "max.poll.interval.ms": 60_000,
            "socket.timeout.ms": 20_000,
            "enable.auto.offset.store": "False",
            "auto.offset.reset": "smallest",
            "topic.metadata.refresh.interval.ms": -1,
            "coopgroup.bell.topic": "bell",
            "coopgroup.host": "node-3",
            "coopgroup.state.dir": "state",
            "coopgroup.telemetry.file": "telemetry.jsonl",
            "coopgroup.window.heartbeat.interval.ms": 100,
            "auto.commit.interval.ms": 250,
            "on_commit": print,
            "fetch.min.bytes": 10,
            "fetch.queue.backoff.ms": 500,
        }
    )
    assert settings.member == evolve(
        read().member,
        instance_id="static-1",
        rack="rack-a",
        host="node-3",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        window_heartbeat_interval_ms=100,
        rebalance_timeout_ms=60_000,
        request_timeout_ms=20_000,
        keeps_identity=True,
    )
    assert settings.librdkafka == {
        **read().librdkafka,
        "client.id": "me",
        "client.rack": "rack-a",
        "socket.timeout.ms": 20_000,
        "auto.offset.reset": "smallest",
        "topic.metadata.refresh.interval.ms": -1,
        "fetch.min.bytes": 10,
        "fetch.queue.backoff.ms": 500,
    }
    assert settings.admin.keys() == {"bootstrap.servers", "client.id", "socket.timeout.ms"}
    assert settings.own_topics == {"bell", "coopgroup-bell", "coopgroup-telemetry"}
    assert (settings.auto_offset_store, settings.offset_reset) == (False, "earliest")
    assert (settings.auto_commit_interval_ms, settings.on_commit) == (250, print)
    assert (settings.state_dir, settings.bell_topic) == ("state", "bell")
    assert settings.telemetry_file == "telemetry.jsonl"
    assert settings.metadata_refresh_ms == -1


def test_settings_with_an_invalid_value_are_refused(subtests: pytest.Subtests) -> None:
    for key, value, expected in [
        ("group.id", "", "the name of the group"),
        ("session.timeout.ms", "soon", "a whole number from 1 to 3600000"),
        ("heartbeat.interval.ms", 45_000, "less than session.timeout.ms (45000)"),
        ("max.poll.interval.ms", 44_999, "at least session.timeout.ms (45000)"),
        ("session.timeout.ms", 45, "more than heartbeat.interval.ms (3000)"),
        ("session.timeout.ms", 300_001, "at most max.poll.interval.ms (300000)"),
        ("auto.commit.interval.ms", -1, "a whole number from 0 to 86400000"),
        ("enable.auto.commit", "maybe", "true or false"),
        ("enable.auto.offset.store", 2, "true or false"),
        ("auto.offset.reset", "middle", "earliest, latest or error"),
        ("on_commit", 5, "a callable"),
        ("coopgroup.telemetry.listener", "print", "a callable"),
        ("topic.metadata.refresh.interval.ms", -2, "a whole number from -1 to 3600000"),
        ("max.poll.interval.ms", 1.5, "a whole number from 1 to 86400000"),
        ("coopgroup.bell.topic", "a/b", TOPIC_NAME_RULE),
        ("coopgroup.telemetry.file", 5, "a string"),
        ("socket.send.buffer.bytes", "1 MB", "a whole number from 0 to 2147483647"),
        ("coopgroup.telemetry.path", "x", f"no such key: coopgroup's own are {OWN_KEYS}{NEAR}"),
        ("group.protocol", "share", "one of classic, consumer"),
        (
            "group.remote.assignor",
            "range",
            "no such key: the leader assigns; pass assignor=… instead",
        ),
        ("group.protocol.type", "connect", "consumer"),
        ("socket.timeoutt.ms", 5, f"{NOT_KNOWN} (did you mean socket.timeout.ms?)"),
        ("rebalance_cb", 1, "no such key: pass on_assign, on_revoke and on_lost to subscribe()"),
        ("auto.commit.enable", True, "no such key: it is called enable.auto.commit"),
    ]:
        with subtests.test(key=key, value=value):
            with pytest.raises(ConfigurationError) as caught:
                read(**{key: value})
            said = (
                f"but there is {expected}"
                if expected.startswith("no such")
                else f"expected {expected}"
            )
            is_unknown = key in {"coopgroup.telemetry.path", "socket.timeoutt.ms"}
            shown = "(not shown)" if is_unknown else value
            assert str(caught.value) == f"{key}: got {shown!r}, {said}"


def test_configuration_when_given_twice_is_merged_as_confluent_kafka_does() -> None:
    logger = logging.getLogger("mine")
    merged = merge_configuration(
        {
            "group.id": "a",
            "client.id": "x",
            "client.rack": None,
            "default.topic.config": {"auto.offset.reset": "earliest", "client.id": "no"},
        },
        {"group.id": "b", "logger": logger},
    )
    assert merged == {
        "auto.offset.reset": "earliest",
        "client.id": "x",
        "group.id": "b",
        "logger": logger,
    }


@pytest.mark.parametrize(
    ("configuration", "error", "said"),
    [
        (None, TypeError, "expected configuration dict"),
        ("group.id=g", TypeError, "expected configuration dict"),
        ({1: 2}, ConfigurationError, "configuration: got 1, expected strings as keys"),
    ],
)
def test_wrong_configuration_is_refused(
    configuration: Any,  # noqa: ANN401
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        merge_configuration(configuration, {})


@pytest.mark.parametrize("more", [{"enable.auto.commit": False}, {"auto.commit.interval.ms": 0}])
def test_auto_commit_when_turned_off_has_no_interval(more: dict[str, object]) -> None:
    """An interval of zero turns it off, as in librdkafka."""
    assert read(**more).auto_commit_interval_ms is None


def test_refusal_of_librdkafka_when_it_names_no_key_is_about_the_whole() -> None:
    refusal = refusal_of_librdkafka(ValueError("no\nway"), {"group.id": "g"})
    assert str(refusal) == (
        "configuration: got 'values that do not fit together', "
        "expected what librdkafka takes (no way)"
    )


@pytest.mark.parametrize("given", [{"places": 4}, '{"places": 4}'])
def test_member_data_is_an_object_or_its_text(given: object) -> None:
    assert read(**{"coopgroup.member": given}).member.traits == {"places": 4}


@pytest.mark.parametrize(
    ("given", "shown"), [(4, "4"), ("big", "'big'"), ("[1]", "'[1]'"), ({1: 2}, "'(dict)'")]
)
def test_other_member_data_is_refused(given: object, shown: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**{"coopgroup.member": given})
    assert str(caught.value) == f"coopgroup.member: got {shown}, expected {TRAITS_RULE}"


@pytest.mark.parametrize("text", ["broken-\udc80", "cut\0off"], ids=["no UTF-8", "NUL"])
@pytest.mark.parametrize("key", ["group.id", "client.id", "bootstrap.servers", "coopgroup.host"])
def test_text_that_cannot_be_written_is_refused(key: str, text: str) -> None:
    """With a group's name that is not UTF-8, librdkafka aborts. It truncates other values."""
    with pytest.raises(ConfigurationError) as caught:
        read(**{key: text})
    assert str(caught.value) == f"{key}: got {text!r}, expected text in UTF-8, without NUL"


@pytest.mark.parametrize("key", ["group.id", "group.instance.id", "client.id", "client.rack"])
def test_name_that_no_message_has_room_for_is_refused(key: str) -> None:
    """Otherwise the name would never be sent, and no error would be reported."""
    assert read(**{key: "ü" * 16_000}).member.group_id
    with pytest.raises(ConfigurationError) as caught:
        read(**{key: "ü" * 16_000 + "x"})
    shown = "ü" * 100 + "…"
    assert str(caught.value) == f"{key}: got {shown!r}, expected at most 32000 bytes"


@pytest.mark.parametrize(
    ("given", "eager"),
    [
        ("coopgroup", False),
        ("coopgroup, cooperative-sticky", False),
        ("coopgroup,range,roundrobin", False),
        ("range,coopgroup", True),
        ("cooperative-sticky,coopgroup,sticky", False),
    ],
)
def test_protocols_in_order_and_eager_where_that_is_wanted_most(given: str, eager: bool) -> None:
    """A member that prefers an eager protocol revokes all partitions before each join."""
    member = read(**{"coopgroup.protocols": given}).member
    assert (member.protocols, member.eager) == (tuple(given.replace(" ", "").split(",")), eager)


@pytest.mark.parametrize(
    "given", ["range", "coopgroup,coopgroup", "coopgroup,round-robin", "coopgroup,", ",", 5]
)
def test_invalid_protocols_are_refused(given: object) -> None:
    """Our protocol is required; other protocols only serve a migration to it or back."""
    with pytest.raises(ConfigurationError, match=r"^coopgroup\.protocols: "):
        read(**{"coopgroup.protocols": given})


@pytest.mark.parametrize("names", [["range"], ["roundrobin", "range"], ["cooperative-sticky"]])
def test_protocols_of_an_assignment_strategy_are_offered_beside_ours(names: list[str]) -> None:
    given = {"partition.assignment.strategy": ", ".join(names)}
    settings = read(**given)
    assert (settings.member.protocols, settings.member.eager) == (("coopgroup", *names), False)
    assert "partition.assignment.strategy" not in settings.librdkafka
    member = read(**given, **{"coopgroup.protocols": "range,coopgroup"}).member
    assert member.protocols == ("range", "coopgroup")


@pytest.mark.parametrize(
    ("key", "name"),
    [("enable_auto_commit", "enable.auto.commit"), ("bootstrap_servers", "bootstrap.servers")],
)
def test_argument_of_aiokafka_is_refused_with_the_name_of_the_key(key: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{key}: .* there is no such key: .* {name}$"):
        read_settings({key: "x"})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("sesion.timeout.ms", " (did you mean session.timeout.ms?)"),
        ("fetch.min.byte", " (did you mean fetch.min.bytes?)"),
        ("auto.commit.enabled", ""),  # not the one that is refused
        ("speed", ""),
    ],
)
def test_key_that_librdkafka_does_not_know_is_refused_with_the_nearest_key(
    key: str, meant: str
) -> None:
    with pytest.raises(KafkaException) as caught:
        Consumer(dict(read(**{key: 5}).librdkafka))
    refusal = refusal_of_librdkafka(caught.value, {key: 5})
    assert refusal.expected == f"no such key: it is unknown{meant}"


def test_settings_of_a_member_of_kip_848_have_the_assignor_of_the_broker() -> None:
    given = {"group.protocol": "consumer", "group.remote.assignor": "range"}
    settings = read(**given)
    assert settings.member.protocol is GroupProtocol.CONSUMER
    assert settings.member.remote_assignor == "range"
    assert not given.keys() & settings.librdkafka.keys()
    assert read().member.protocol is GroupProtocol.CLASSIC


def test_settings_that_only_a_leader_or_a_classic_member_has_are_refused_beside_kip_848(
    subtests: pytest.Subtests,
) -> None:
    for key in [key for key in KEYS.values() if key.only_with == "classic"]:
        with subtests.test(key=key):
            with pytest.raises(ConfigurationError) as caught:
                read(**{"group.protocol": "consumer", key.name: key.default or "x"})
            said = str(caught.value)
            assert said.startswith(f"{key.name}: got ")
            assert said.endswith(key.otherwise)
            assert "with group.protocol=consumer" in said


def test_settings_with_two_identities_are_refused_beside_kip_848() -> None:
    both = {"group.instance.id": "one", "coopgroup.state.dir": "/tmp"}  # noqa: S108
    assert read(**both).state_dir is not None
    with pytest.raises(
        ConfigurationError, match=r"group\.instance\.id: got 'one', expected either"
    ):
        read(**{"group.protocol": "consumer", **both})


def test_poll_interval_may_be_shorter_than_a_session_that_the_group_has() -> None:
    """The message would name `session.timeout.ms`, which is refused with this protocol."""
    short = {"max.poll.interval.ms": 6_000}
    member = read(**{"group.protocol": "consumer", **short}).member
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (6_000, 45_000)
    with pytest.raises(ConfigurationError, match="at least session"):
        read(**short)


@pytest.mark.parametrize("what", ["policy", "assignor"])
def test_arguments_for_a_leader_are_refused_beside_kip_848(what: str) -> None:
    given = {"policy": None, "assignor": None} | {what: "simple" if what == "policy" else "sticky"}
    settings = read(**{"group.protocol": "consumer"})
    with pytest.raises(ConfigurationError) as caught:
        choose_plugins(settings, given["assignor"], given["policy"])
    expected = f"classic: {what}= needs a leader, and the broker assigns"
    assert str(caught.value) == f"group.protocol: got 'consumer', expected {expected}"
