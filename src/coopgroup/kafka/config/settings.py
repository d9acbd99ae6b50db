"""The configuration of a `CooperativeConsumer`, read and checked once.

Rules of this file: the configuration uses the keys of confluent_kafka.Consumer. A key either has
the same meaning, or is coopgroup's own (`coopgroup.…`), or is refused in one line with the reason.
Keys about the group are read here and withheld from librdkafka, whose consumer only fetches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from socket import gethostname
from typing import Any, Final

from attrs import field, frozen
from confluent_kafka import KafkaError

from coopgroup.core.member import MemberConfig
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.connection_settings import ConnectionSettings, read_connection_settings
from coopgroup.kafka.config.file_limits import FileLimits
from coopgroup.kafka.config.librdkafka_values import INT32_MAX, whole
from coopgroup.kafka.config.shown_values import refused, safe_reason, shown_configuration
from coopgroup.kafka.config.strategy import STRATEGY, protocols_of, read_strategy
from coopgroup.kafka.plugins import AssignorChoice, PolicyChoice
from coopgroup.kafka.records.decoding import Deserializers
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE, is_topic_name
from coopgroup.protocol import KafkaProtocol, kafka_protocol
from coopgroup.telemetry import Envelope

__all__ = [
    "OWN_PROTOCOL",
    "SHARED_KEYS",
    "ConsumerSettings",
    "merge_configuration",
    "read_settings",
    "refusal_of_librdkafka",
]

_UNKNOWN_KEY: Final = re.compile(r'No such configuration property: "([^"]*)"')
_ON_THE_WIRE: Final = (
    "group.id",
    "group.instance.id",
    "client.id",
    "client.rack",
    "coopgroup.host",
)
# Kafka's strings end at 32,767 bytes, and a member id is a client id with a suffix.
_WIRE_BYTES_MAX: Final = 32_000
_SHOWN_MAX: Final = 100
_BACKUPS_MAX: Final = 1_000
_QUEUE_RECORDS_MAX: Final = 10_000_000
OWN_PROTOCOL: Final = "coopgroup"
_DAY_MS: Final = 86_400_000
_CLASSIC: Final = (
    "classic: the leader of this group assigns, so rebalances are incremental on any broker since "
    "2.5; coopgroup has no KIP-848 (comparison: docs/coming-from.md#kip-848)"
)
_TRUE: Final = ("true", "t", "1", "yes")
_FALSE: Final = ("false", "f", "0", "no")
# Read only by coopgroup: librdkafka's consumer never joins the group.
_GROUP_KEYS: Final = (
    "group.instance.id",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "on_commit",
    "key.deserializer",
    "value.deserializer",
    "coordinator.query.interval.ms",
    "group.protocol",
    "group.protocol.type",
    STRATEGY,
)
_RECONNECT_MS: Final = 120
_REPORT_MS: Final = 10_000
_REPORT_MS_MIN: Final = 1_000
SHARED_KEYS: Final = (
    "coopgroup.assignor",
    "coopgroup.bell.topic",
    "coopgroup.host",
    "coopgroup.leader.timeout.ms",
    "coopgroup.lookup.timeout.ms",
    "coopgroup.policy",
    "coopgroup.state.dir",
    "coopgroup.telemetry.file",
    "coopgroup.telemetry.file.backups",
    "coopgroup.telemetry.file.max.bytes",
    "coopgroup.telemetry.listener",
    "coopgroup.telemetry.queue.records",
    "coopgroup.telemetry.report.interval.ms",
    "coopgroup.telemetry.topic",
    "coopgroup.window.heartbeat.interval.ms",
)
"""coopgroup's own keys of consumers and of groups of named resources."""
_OWN_KEYS: Final = sorted((*SHARED_KEYS, "coopgroup.protocols"))
# With underscores, they are arguments of aiokafka and kafka-python.
_OFTEN_GIVEN: Final = (
    "auto.offset.reset",
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "group.id",
    "isolation.level",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "security.protocol",
    "socket.timeout.ms",
)
_REFUSED: Final[Mapping[str, str]] = {
    "group.remote.assignor": "no such key: the leader assigns; pass assignor=… instead",
    "key.deserializer.builder": "no such key: pass what it builds, as key.deserializer",
    "value.deserializer.builder": "no such key: pass what it builds, as value.deserializer",
    "rebalance_cb": "no such key: pass on_assign, on_revoke and on_lost to subscribe()",
    "auto.commit.enable": "no such key: it is called enable.auto.commit",
    "offset_commit_cb": "no such key: it is called on_commit",
    "offset.store.method": "no such key: offsets are stored in the group",
    "offset.store.path": "no such key: offsets are stored in the group",
    "offset.store.sync.interval.ms": "no such key: offsets are stored in the group",
}


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
        leader_timeout_ms: if the leader's assignor takes longer, the round moves nothing.
        lookup_timeout_ms: time limit of each look-up of metadata or lags.
        deserializers: those of keys and values, None without any.
        strategies: those of `partition.assignment.strategy`, empty without it.
        policy, assignor: choices of the configuration; arguments of the constructor replace them.
        bell_topic: topic of the bell, None without one.
        telemetry_topic: topic that the member adds its telemetry to, None for none.
        telemetry_report_ms: time between two reports to this topic, in ms; 0 for no reports.
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
    leader_timeout_ms: int
    lookup_timeout_ms: int
    policy: PolicyChoice | None
    assignor: AssignorChoice | None
    bell_topic: str | None
    state_dir: str | None
    telemetry_file: str | None
    telemetry_limits: FileLimits
    telemetry_topic: str | None
    telemetry_report_ms: int
    telemetry_listener: Callable[[Envelope], object] | None
    on_commit: Callable[..., Any] | None
    deserializers: Deserializers | None
    strategies: tuple[KafkaProtocol, ...]


def read_settings(configuration: Mapping[str, Any]) -> ConsumerSettings:
    """Read the configuration of a consumer.

    Raises:
        ConfigurationError: a key is unknown, refused, or has a value that it cannot have.
    """
    given = dict(configuration)
    _check_texts(given)
    _refuse(given)
    own = _own_settings(given)
    member = _member_config(given)
    isolation = str(given.get("isolation.level", "read_committed")).lower()
    auto_commit = _switch(given, "enable.auto.commit", default=True)
    interval_ms = whole(given, "auto.commit.interval.ms", 5_000, 0, _DAY_MS)
    librdkafka = {
        key: value
        for key, value in given.items()
        if key not in _GROUP_KEYS and not key.startswith("coopgroup.")
    }
    return ConsumerSettings(
        member=member,
        connection=read_connection_settings(
            librdkafka,
            # Leaves time for more tries within the session, as with heartbeats.
            dead_peer_ms=max(1, member.session_timeout_ms // 3),
        ),
        librdkafka={
            **_calm_reconnects(librdkafka),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        },
        admin=_admin_configuration(librdkafka),
        max_poll_interval_ms=member.rebalance_timeout_ms,
        auto_commit_interval_ms=max(interval_ms, 1) if auto_commit and interval_ms else None,
        auto_offset_store=_switch(given, "enable.auto.offset.store", default=True),
        offset_reset=_offset_reset(given),
        requires_stable=isolation == "read_committed",
        metadata_refresh_ms=whole(
            given, "topic.metadata.refresh.interval.ms", 300_000, -1, 3_600_000
        ),
        on_commit=_callback(given, "on_commit"),
        deserializers=_deserializers(given),
        strategies=read_strategy(given),
        **own,
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
        return refused(key, configuration.get(key), "no such key: it is unknown")
    said = safe_reason(reason, configuration)
    expected = "what librdkafka takes" if said is None else f"what librdkafka takes ({said})"
    named = [key for key in re.findall(r"[\w.]+", reason) if key in configuration]
    if not named:
        return ConfigurationError("configuration", "values that do not fit together", expected)
    return refused(named[0], configuration[named[0]], expected)


def _key_shown(key: object) -> object:
    return key if isinstance(key, int) else f"({type(key).__name__})"


def _check_texts(given: Mapping[str, Any]) -> None:
    """Refuse text that would be cut off or could not be sent.

    librdkafka ends the process at a group name that is not UTF-8, which environment variables may
    contain, and reads text only up to a NUL. Text that is too long for the group's messages would
    never be sent.
    """
    for key, value in sorted(given.items()):
        if not isinstance(value, str):
            continue
        if "\0" in value or not _is_utf8(value):
            raise refused(key, value, "text in UTF-8, without NUL")
        if key in _ON_THE_WIRE and len(value.encode()) > _WIRE_BYTES_MAX:
            shown = f"{value[:_SHOWN_MAX]}…"
            raise refused(key, shown, f"at most {_WIRE_BYTES_MAX} bytes")


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(given: Mapping[str, Any]) -> None:
    for key in sorted(given):
        if key in _REFUSED:
            raise refused(key, given[key], _REFUSED[key])
        dotted = key.replace("_", ".")
        if dotted != key and (dotted in _GROUP_KEYS or dotted in _OFTEN_GIVEN):
            raise refused(key, given[key], f"no such key: it is called {dotted}")
    protocol = str(given.get("group.protocol", "classic"))
    if protocol.lower() != "classic":
        raise refused("group.protocol", protocol, _CLASSIC)
    if str(given.get("group.protocol.type", "consumer")) != "consumer":
        raise refused("group.protocol.type", given["group.protocol.type"], "consumer")


def _member_config(given: Mapping[str, Any]) -> MemberConfig:
    group_id = given.get("group.id")
    if not isinstance(group_id, str) or not group_id:
        raise refused("group.id", group_id, "the name of the group")
    session_ms = whole(given, "session.timeout.ms", 45_000, 1, 3_600_000)
    heartbeat_ms = whole(given, "heartbeat.interval.ms", 3_000, 1, 3_600_000)
    if heartbeat_ms >= session_ms:
        raise refused(
            "heartbeat.interval.ms", heartbeat_ms, f"less than session.timeout.ms ({session_ms})"
        )
    protocols = _protocols(given)
    max_poll_ms = whole(given, "max.poll.interval.ms", 300_000, 1, _DAY_MS)
    if max_poll_ms < session_ms:
        raise refused(
            "max.poll.interval.ms", max_poll_ms, f"at least session.timeout.ms ({session_ms})"
        )
    return MemberConfig(
        group_id=group_id,
        protocols=protocols,
        eager=bool(protocols) and _is_eager(protocols[0]),
        instance_id=_text(given, "group.instance.id"),
        rack=_text(given, "client.rack"),
        host=_host(given),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        rebalance_timeout_ms=max_poll_ms,
        request_timeout_ms=whole(given, "socket.timeout.ms", 30_000, 10, 300_000),
        window_heartbeat_interval_ms=whole(
            given, "coopgroup.window.heartbeat.interval.ms", 250, 1, 3_600_000
        ),
        keeps_identity=_text(given, "coopgroup.state.dir") is not None,
        has_bell=_topic(given, "coopgroup.bell.topic") is not None,
    )


def _host(given: Mapping[str, Any]) -> str | None:
    """Return the name of the machine; only members that take part in warm-ups tell it."""
    return _text(given, "coopgroup.host") or gethostname() or None


def _protocols(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the protocols that the member offers, preferred first; empty for coopgroup's only."""
    text = _text(given, "coopgroup.protocols")
    strategies = read_strategy(given)
    if text is None:
        return protocols_of(strategies, OWN_PROTOCOL) if strategies else ()
    names = tuple(name.strip() for name in text.split(","))
    known = (OWN_PROTOCOL, *(protocol.value for protocol in KafkaProtocol))
    if OWN_PROTOCOL not in names or len(set(names)) < len(names) or not {*names} <= {*known}:
        expected = f"{OWN_PROTOCOL}, and beside it any of {', '.join(known[1:])}, each once"
        raise refused("coopgroup.protocols", text, expected)
    return names


def _is_eager(name: str) -> bool:
    protocol = kafka_protocol(name)
    return protocol is not None and protocol.is_eager


def _own_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    for key in sorted(given):
        if key.startswith("coopgroup.") and key not in _OWN_KEYS:
            expected = f"no such key: coopgroup's own are {', '.join(_OWN_KEYS)}"
            raise refused(key, given[key], expected)
    return {
        "leader_timeout_ms": whole(given, "coopgroup.leader.timeout.ms", 30_000, 1, _DAY_MS),
        "lookup_timeout_ms": whole(given, "coopgroup.lookup.timeout.ms", 5_000, 1, _DAY_MS),
        "policy": given.get("coopgroup.policy"),
        "assignor": given.get("coopgroup.assignor"),
        "bell_topic": _topic(given, "coopgroup.bell.topic"),
        "state_dir": _text(given, "coopgroup.state.dir"),
        "telemetry_file": _text(given, "coopgroup.telemetry.file"),
        "telemetry_limits": _telemetry_limits(given),
        "telemetry_topic": _topic(given, "coopgroup.telemetry.topic"),
        "telemetry_report_ms": _report_ms(given),
        "telemetry_listener": _callback(given, "coopgroup.telemetry.listener"),
    }


def _topic(given: Mapping[str, Any], key: str) -> str | None:
    topic = _text(given, key)
    if topic is not None and not is_topic_name(topic):
        raise refused(key, topic, TOPIC_NAME_RULE)
    return topic


def _telemetry_limits(given: Mapping[str, Any]) -> FileLimits:
    usual = FileLimits()
    prefix = "coopgroup.telemetry"
    return FileLimits(
        max_bytes=whole(given, f"{prefix}.file.max.bytes", usual.max_bytes, 0, INT32_MAX),
        backups=whole(given, f"{prefix}.file.backups", usual.backups, 0, _BACKUPS_MAX),
        queue_records=whole(
            given, f"{prefix}.queue.records", usual.queue_records, 1, _QUEUE_RECORDS_MAX
        ),
    )


def _report_ms(given: Mapping[str, Any]) -> int:
    key = "coopgroup.telemetry.report.interval.ms"
    interval_ms = whole(given, key, _REPORT_MS, 0, _DAY_MS)
    if 0 < interval_ms < _REPORT_MS_MIN:
        raise refused(key, given[key], f"0 for no reports, or {_REPORT_MS_MIN} to {_DAY_MS}")
    return interval_ms


def _calm_reconnects(librdkafka: Mapping[str, Any]) -> dict[str, Any]:
    """Add a first wait before librdkafka connects again, unless the application sets one.

    Without any broker, librdkafka 2.16 ends and starts its bootstrap threads all the time. With its
    default of 100 ms, that costs 0.8 % of a core. With a broker, it uses the first connection only
    to learn the brokers, and waits for half of this time before the next. With 200 ms, that would
    delay the first records.
    """
    if librdkafka.keys() & {"reconnect.backoff.ms", "reconnect.backoff.max.ms"}:
        return dict(librdkafka)
    return {"reconnect.backoff.ms": _RECONNECT_MS, **librdkafka}


def _admin_configuration(librdkafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys for an admin client: consumer keys would only make it warn."""
    prefixes = ("bootstrap.", "metadata.", "client.id", "socket.", "broker.address.", "security.")
    security = ("ssl.", "sasl.", "oauth_cb", "https.", "enable.ssl.", "enable.sasl.")
    more = ("reconnect.", "api.")
    return {
        key: value
        for key, value in librdkafka.items()
        if key.startswith((*prefixes, *security, *more)) or key in {"log_level", "debug", "logger"}
    }


def _offset_reset(given: Mapping[str, Any]) -> str:
    value = str(given.get("auto.offset.reset", "latest")).lower()
    meaning = {
        "smallest": "earliest",
        "earliest": "earliest",
        "beginning": "earliest",
        "largest": "latest",
        "latest": "latest",
        "end": "latest",
        "error": "error",
    }
    if value not in meaning:
        raise refused("auto.offset.reset", value, "earliest, latest or error")
    return meaning[value]


def _switch(given: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = str(given.get(key, default)).lower()
    if value not in (*_TRUE, *_FALSE):
        raise refused(key, given.get(key), "true or false")
    return value in _TRUE


def _callback(given: Mapping[str, Any], key: str) -> Callable[..., Any] | None:
    value = given.get(key)
    if value is not None and not callable(value):
        raise refused(key, value, "a callable")
    return value


def _deserializers(given: Mapping[str, Any]) -> Deserializers | None:
    key, value = (_callback(given, f"{one}.deserializer") for one in ("key", "value"))
    return None if key is None and value is None else Deserializers(key=key, value=value)


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise refused(key, value, "a string")
    return value
