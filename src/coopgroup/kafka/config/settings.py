"""The configuration of a `CooperativeConsumer`, read and checked once.

Rules of this file: the configuration uses the keys of confluent_kafka.Consumer. A key either has
the same meaning, or is coopgroup's own (`coopgroup.…`), or is refused in one line with the reason.
Keys about the group are read here and withheld from librdkafka, whose consumer only fetches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen
from confluent_kafka import KafkaError

from coopgroup.core.member import MemberConfig
from coopgroup.core.member.config import GroupProtocol
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.connection_settings import ConnectionSettings, read_connection_settings
from coopgroup.kafka.config.keys import (
    BELL_TOPIC,
    CONNECTION_KEYS,
    CONSUMER,
    CONSUMER_KEYS,
    KEYS,
    TELEMETRY_TOPIC,
)
from coopgroup.kafka.config.shown_values import refused, safe_reason, shown_configuration
from coopgroup.kafka.config.strategy import protocols_of, read_strategy
from coopgroup.kafka.config.values import (
    callback,
    check_keys,
    choice,
    did_you_mean,
    given_text,
    read_traits,
    switch,
    text,
    whole,
)
from coopgroup.kafka.records.decoding import Deserializers
from coopgroup.protocol import KafkaProtocol, kafka_protocol
from coopgroup.telemetry import Envelope

if TYPE_CHECKING:
    from coopgroup.kafka.plugins import AssignorChoice, PolicyChoice

_UNKNOWN_KEY: Final = re.compile(r'No such configuration property: "([^"]*)"')
OWN_PROTOCOL: Final = "coopgroup"
_QUEUE_BACKOFF: Final = "fetch.queue.backoff.ms"
_BELL: Final = "coopgroup.bell.topic"
# Kafka's names of metrics, like those of topics, have no other characters.
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9._-]")
_CLIENT_ID_MAX: Final = 64
# Keys that a client for look-ups understands beside those of connections.
_OF_LOGS: Final = ("debug", "log_level", "logger")


@frozen(kw_only=True)
class ConsumerSettings:
    """The settings of a consumer.

    Attributes:
        admin: configuration of look-ups: only the connection keys.
        max_poll_interval_ms: an application that does not poll for this long leaves the group.
        auto_commit_interval_ms: interval of auto-commit, None if it is off.
        auto_offset_store: whether handing out a record stores its offset for the next commit.
        offset_reset: "earliest", "latest" or "error".
        requires_stable: whether to wait for committed offsets in open transactions (KIP-447).
        deserializers: those of keys and values, None without any.
        strategies: those of `partition.assignment.strategy`, empty without it.
        policy, assignor: choices of the configuration; arguments of the constructor replace them.
        bell_topic: topic of the bell, None without one.
        names_bell: whether the configuration names that topic, so that the cluster should have it.
        telemetry_topic: topic that the member adds its telemetry to, None for none.
        state_dir: directory that keeps the member's identity after its process ends, None for none.
    """

    member: MemberConfig
    connection: ConnectionSettings
    librdkafka: Mapping[str, Any] = field(repr=shown_configuration)
    admin: Mapping[str, Any] = field(repr=shown_configuration)
    max_poll_interval_ms: int
    auto_commit_interval_ms: int | None
    auto_offset_store: bool
    offset_reset: str
    requires_stable: bool
    metadata_refresh_ms: int
    policy: PolicyChoice | None
    assignor: AssignorChoice | None
    bell_topic: str | None
    names_bell: bool
    state_dir: str | None
    telemetry_file: str | None
    telemetry_topic: str | None
    telemetry_listener: Callable[[Envelope], object] | None
    on_commit: Callable[..., Any] | None
    deserializers: Deserializers | None
    strategies: tuple[KafkaProtocol, ...]

    @property
    def own_topics(self) -> frozenset[str]:
        """Return the topics of coopgroup: those of this member, and those with the usual names."""
        named = {self.bell_topic, self.telemetry_topic} - {None}
        return frozenset({BELL_TOPIC, TELEMETRY_TOPIC, *map(str, named)})


def read_settings(configuration: Mapping[str, Any]) -> ConsumerSettings:
    """Read the configuration of a consumer.

    Raises:
        ConfigurationError: a key is unknown, refused, or has a value that it cannot have.
    """
    given = {
        "client.id": _client_id(gethostname()),
        _BELL: KEYS[_BELL].default,
        **configuration,
    }
    check_keys(given)
    _check_protocol(configuration)
    member = _member_config(given)
    isolation = text(given.get("isolation.level", "read_committed")).lower()
    auto_commit = switch(given, "enable.auto.commit")
    interval_ms = whole(given, "auto.commit.interval.ms")
    librdkafka = {key: value for key, value in given.items() if not _is_withheld(key)}
    return ConsumerSettings(
        member=member,
        connection=read_connection_settings(
            librdkafka,
            # Leaves time for more tries within the session, as with heartbeats.
            dead_peer_ms=max(1, member.session_timeout_ms // 3),
        ),
        librdkafka={
            _QUEUE_BACKOFF: KEYS[_QUEUE_BACKOFF].default,
            **librdkafka,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        },
        admin=_admin_configuration(librdkafka),
        max_poll_interval_ms=member.rebalance_timeout_ms,
        auto_commit_interval_ms=max(interval_ms, 1) if auto_commit and interval_ms else None,
        auto_offset_store=switch(given, "enable.auto.offset.store"),
        offset_reset=choice(given, "auto.offset.reset"),
        requires_stable=isolation == "read_committed",
        metadata_refresh_ms=whole(given, "topic.metadata.refresh.interval.ms"),
        policy=given.get("coopgroup.policy"),
        assignor=given.get("coopgroup.assignor"),
        bell_topic=given_text(given, _BELL),
        names_bell=_BELL in configuration,
        state_dir=given_text(given, "coopgroup.state.dir"),
        telemetry_file=given_text(given, "coopgroup.telemetry.file"),
        telemetry_topic=given_text(given, "coopgroup.telemetry.topic"),
        telemetry_listener=callback(given, "coopgroup.telemetry.listener"),
        on_commit=callback(given, "on_commit"),
        deserializers=_deserializers(given),
        strategies=read_strategy(given),
    )


def merge_configuration(
    configuration: Mapping[str, Any] | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge the arguments of a constructor, as confluent_kafka.Consumer does.

    Raises:
        ConfigurationError: a key is not a string.
        TypeError: both are missing, or the configuration is not a dictionary.
    """
    if configuration is None and not more:
        raise TypeError("expected configuration dict")
    if not isinstance(configuration, Mapping | None):
        raise TypeError("expected configuration dict")
    merged = {**(configuration or {}), **more}
    for key in merged:
        if not isinstance(key, str):
            raise ConfigurationError("configuration", _key_shown(key), "strings as keys")
    defaults = merged.pop("default.topic.config", None) or {}
    # confluent_kafka treats None as "not set".
    return {key: value for key, value in {**defaults, **merged}.items() if value is not None}


def refusal_of_librdkafka(error: Exception, configuration: Mapping[str, Any]) -> ConfigurationError:
    """Turn librdkafka's refusal of a key or a value into one line that names the key."""
    cause = error.args[0] if error.args else error
    reason = " ".join((cause.str() if isinstance(cause, KafkaError) else str(cause)).split())
    unknown = _UNKNOWN_KEY.search(reason)
    if unknown is not None:
        key = unknown.group(1)
        reason = f"no such key: it is unknown{did_you_mean(key, CONSUMER_KEYS)}"
        return refused(key, configuration.get(key), reason)
    said = safe_reason(reason, configuration)
    expected = "what librdkafka takes" if said is None else f"what librdkafka takes ({said})"
    named = [key for key in re.findall(r"[\w.]+", reason) if key in configuration]
    if not named:
        return ConfigurationError("configuration", "values that do not fit together", expected)
    return refused(named[0], configuration[named[0]], expected)


def _key_shown(key: object) -> object:
    return key if isinstance(key, int) else f"({type(key).__name__})"


def _client_id(host: str) -> str:
    """Return the name of a client whose application gives none, for logs, quotas and metrics.

    Policies give the partitions of a departed member to a new one with the same client id, and the
    pipeline recognises a returning process by client id and host. With the number of the process,
    every restart would be a stranger.
    """
    return _NOT_IN_NAMES.sub("-", host)[:_CLIENT_ID_MAX] or "coopgroup"


def _is_withheld(key: str) -> bool:
    """Return whether only coopgroup reads a key: librdkafka's consumer never joins the group."""
    return key.startswith("coopgroup.") or (key in KEYS and KEYS[key].withheld)


def _member_config(given: Mapping[str, Any]) -> MemberConfig:
    group_id = given.get("group.id")
    if not isinstance(group_id, str) or not group_id:
        raise refused("group.id", group_id, "the name of the group")
    session_ms = whole(given, "session.timeout.ms")
    heartbeat_ms = whole(given, "heartbeat.interval.ms")
    if heartbeat_ms >= session_ms:
        raise _unfit(given, "heartbeat.interval.ms", "less than", "more than")
    protocols = _protocols(given)
    max_poll_ms = whole(given, "max.poll.interval.ms")
    protocol = GroupProtocol(choice(given, "group.protocol"))
    # With KIP-848 the group has the session timeout, so the application cannot fit it.
    if protocol is GroupProtocol.CLASSIC and max_poll_ms < session_ms:
        raise _unfit(given, "max.poll.interval.ms", "at least", "at most")
    return MemberConfig(
        group_id=group_id,
        protocol=protocol,
        remote_assignor=given_text(given, "group.remote.assignor"),
        protocols=protocols,
        eager=bool(protocols) and _is_eager(protocols[0]),
        instance_id=given_text(given, "group.instance.id"),
        rack=given_text(given, "client.rack"),
        host=_host(given),
        traits=read_traits(given, "coopgroup.member"),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        rebalance_timeout_ms=max_poll_ms,
        request_timeout_ms=whole(given, "socket.timeout.ms"),
        window_heartbeat_interval_ms=whole(given, "coopgroup.window.heartbeat.interval.ms"),
        keeps_identity=given_text(given, "coopgroup.state.dir") is not None,
        has_bell=given_text(given, _BELL) is not None,
    )


def _check_protocol(configuration: Mapping[str, Any]) -> None:
    """Refuse the keys that a member does not have with its `group.protocol`.

    A kept identity and a static one exclude each other: after a kill, the broker refuses the static
    id to the kept member id, until its session ends.
    """
    protocol = choice(configuration, "group.protocol")
    for name in sorted(configuration):
        key = KEYS.get(name)
        if key is not None and key.only_with not in {"", protocol}:
            raise refused(name, configuration[name], key.otherwise)
    static = given_text(configuration, "group.instance.id")
    if protocol == CONSUMER and static and given_text(configuration, "coopgroup.state.dir"):
        expected = "either it or coopgroup.state.dir with group.protocol=consumer"
        raise refused("group.instance.id", static, expected)


def _unfit(
    given: Mapping[str, Any], interval: str, relation: str, reverse: str
) -> ConfigurationError:
    """Refuse an interval, or the session timeout if the interval is the default."""
    session = "session.timeout.ms"
    key, other, expected = interval, session, relation
    if interval not in given:
        key, other, expected = session, interval, reverse
    return refused(key, whole(given, key), f"{expected} {other} ({whole(given, other)})")


def _host(given: Mapping[str, Any]) -> str | None:
    """Return the name of the machine; only members that take part in warm-ups tell it."""
    return given_text(given, "coopgroup.host") or gethostname() or None


def _protocols(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the protocols that the member offers, preferred first; empty for coopgroup's only."""
    listed = given_text(given, "coopgroup.protocols")
    strategies = read_strategy(given)
    if listed is None:
        return protocols_of(strategies, OWN_PROTOCOL) if strategies else ()
    names = tuple(name.strip() for name in listed.split(","))
    known = (OWN_PROTOCOL, *(protocol.value for protocol in KafkaProtocol))
    if OWN_PROTOCOL not in names or len(set(names)) < len(names) or not {*names} <= {*known}:
        expected = f"{OWN_PROTOCOL}, and beside it any of {', '.join(known[1:])}, each once"
        raise refused("coopgroup.protocols", listed, expected)
    return names


def _is_eager(name: str) -> bool:
    protocol = kafka_protocol(name)
    return protocol is not None and protocol.is_eager


def _admin_configuration(librdkafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys for an admin client: consumer keys would only make it warn."""
    known = (*CONNECTION_KEYS, *_OF_LOGS)
    return {key: value for key, value in librdkafka.items() if key in known}


def _deserializers(given: Mapping[str, Any]) -> Deserializers | None:
    key, value = (callback(given, f"{one}.deserializer") for one in ("key", "value"))
    return None if key is None and value is None else Deserializers(key=key, value=value)
