"""The table of configuration keys: what each one means, and what it may contain.

Rules of this file: the table is the only list of keys. Readers take a key's default and range from
it, refusals its remedy, and messages whether they may show its value. `docs/key_tables.py`
writes the tables of the documentation from it. Mark a key as secret if a user may put a password, a
key or a token into it.

Source of librdkafka's keys: CONFIGURATION.md of librdkafka 2.x.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attrs import field, frozen

DAY_MS: Final = 86_400_000
BELL_TOPIC: Final = "coopgroup-bell"
# Rings are old after a second. A segment is deleted only when it is closed, so both are short.
BELL_TOPIC_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "compression.type": "uncompressed",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "1",
        "retention.ms": "600000",
        "segment.ms": "600000",
        "segment.bytes": "1048576",
    }
)
TELEMETRY_TOPIC: Final = "coopgroup-telemetry"
INT32_MAX: Final = 2**31 - 1
# Kafka's strings end at 32,767 bytes, and a member id is a client id with a suffix.
_WIRE_BYTES_MAX: Final = 32_000


class Verdict(enum.Enum):
    """How coopgroup treats a key; the values are the words of the documentation."""

    SAME = "same"
    DIFFERENT = "different"
    ONLY = "only"
    FETCHING_ONLY = "fetching only"
    NO_EFFECT = "no effect"
    REFUSED = "refused"
    OURS = "ours"


@frozen
class Whole:
    """A whole number in a range."""

    low: int
    high: int = INT32_MAX

    @property
    def expected(self) -> str:
        """Return the range, as the end of the sentence "expected …"."""
        return f"a whole number from {self.low} to {self.high}"

    def has(self, number: int) -> bool:
        """Return whether a number is in the range."""
        return self.low <= number <= self.high


@frozen
class Choice:
    """One of several words, in any case.

    Attributes:
        words: the words, each with its meaning.
        expected: the allowed words, as the end of the sentence "expected …".
    """

    words: Mapping[str, str]
    expected: str


@frozen
class Text:
    """A string; the longer ones would never be sent."""

    bytes_max: int = INT32_MAX


@frozen
class Topic:
    """The name of a topic."""


@frozen
class Callback:
    """A callable."""


Kind: TypeAlias = Whole | Choice | Text | Topic | Callback


@frozen
class Key:
    """A row of the table.

    Attributes:
        kind: type and range; None if librdkafka checks the value.
        meaning: the note of the documentation, after the default.
        instead: for a refused key the end of its refusal, with the key to use instead. It is empty
            if librdkafka or confluent_kafka refuses the key itself.
        secret: whether the value may be a secret, which no message shows.
        withheld: whether librdkafka does not get the key.
        groups: whether the key has an effect in a group of named resources, too.
        only_with: the value of `group.protocol` that has the key; empty if both have it.
        otherwise: with `only_with`, the end of the refusal with the other value.
    """

    name: str
    verdict: Verdict
    kind: Kind | None = None
    meaning: str = ""
    default: Any = field(default=None, kw_only=True)
    instead: str = field(default="", kw_only=True)
    secret: bool = field(default=False, kw_only=True)
    withheld: bool = field(default=False, kw_only=True)
    groups: bool = field(default=False, kw_only=True)
    only_with: str = field(default="", kw_only=True)
    otherwise: str = field(default="", kw_only=True)


def _one_of(*words: str, expected: str = "") -> Choice:
    return Choice(dict(zip(words, words, strict=True)), expected or f"one of {', '.join(words)}")


def _same(*names: str, secret: bool = False, groups: bool = False) -> list[Key]:
    return [Key(name, Verdict.SAME, secret=secret, groups=groups) for name in names]


def _fetching_only(meaning: str, *names: str, secret: bool = False) -> list[Key]:
    return [Key(name, Verdict.FETCHING_ONLY, None, meaning, secret=secret) for name in names]


def _no_effect(meaning: str, *names: str) -> list[Key]:
    return [Key(name, Verdict.NO_EFFECT, None, meaning) for name in names]


def _only(name: str, expected: str, *words: str, secret: bool = False) -> Key:
    """Return a key that has these values only, the default first."""
    kind = _one_of(*words, expected=expected)
    return Key(name, Verdict.ONLY, kind, default=words[0], secret=secret)


def _refused(remedy: str, *names: str, secret: bool = False) -> list[Key]:
    reason = f"no such key: {remedy}"
    return [Key(name, Verdict.REFUSED, instead=reason, secret=secret) for name in names]


_SAME: Final = Verdict.SAME
_OURS: Final = Verdict.OURS
_SENT: Final = Text(_WIRE_BYTES_MAX)
_MS_TO_DAY: Final = Whole(1, DAY_MS)
_YES: Final = ("true", "t", "1", "yes")
_NO: Final = ("false", "f", "0", "no")
_SWITCH: Final = Choice(
    {**dict.fromkeys(_YES, "true"), **dict.fromkeys(_NO, "false")}, "true or false"
)
_TRUE_OR_FALSE: Final = _one_of("true", "false")
_RESETS: Final = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), "earliest"),
    **dict.fromkeys(("largest", "latest", "end"), "latest"),
    "error": "error",
}
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_BROKER_ASSIGNS: Final = (
    "no such key with group.protocol=consumer: the broker assigns, and group.remote.assignor is "
    "uniform or range"
)
_NO_LEADER: Final = (
    "no such key with group.protocol=consumer: the broker assigns, so no leader would read it"
)
_OF_THE_BROKER: Final = (
    "no such key with group.protocol=consumer: the broker keeps it, as {} of the group"
)
_PEM: Final = "give PEM files or strings (ssl.certificate.*, ssl.key.*, ssl.ca.*)"
_NOT_IN_CONFLUENT_KAFKA: Final = "not in confluent_kafka either"
_BOOTSTRAPS: Final = "lookups always try the bootstrap brokers"
_FEW: Final = "the group has few requests in flight"
_DEPRECATED: Final = "deprecated in librdkafka, without effect"

_OWN: Final = (
    Key(
        "coopgroup.policy",
        _OURS,
        None,
        "decides when partitions move: a [policy](policies.md), its name, `module:Class`, or "
        '`{"name": …}` with options. The argument `policy=` takes precedence. Give all members the '
        "same",
        default="simple",
        secret=True,
        groups=True,
        only_with=CLASSIC,
        otherwise=_BROKER_ASSIGNS,
    ),
    Key(
        "coopgroup.assignor",
        _OURS,
        None,
        "decides where partitions go: an [assignor](assignors.md), in the same forms. The argument "
        "`assignor=` takes precedence",
        default="sticky",
        secret=True,
        groups=True,
        only_with=CLASSIC,
        otherwise=_BROKER_ASSIGNS,
    ),
    Key(
        "coopgroup.protocols",
        _OURS,
        Text(),
        "the protocols that this member offers to its group, in order of preference, such as "
        "`coopgroup,cooperative-sticky`. Besides our own it supports those of Kafka's clients: "
        "`cooperative-sticky`, `range`, `roundrobin`, `sticky`. The broker chooses a protocol that "
        "all members offer. For sharing a group with other clients, and [moving to ours and back]"
        "(migration.md). [Beside KIP-848](migration.md#beside-kip-848) it is not needed",
        default="coopgroup",
        only_with=CLASSIC,
        otherwise="no such key with group.protocol=consumer: its members have one protocol",
    ),
    Key(
        "coopgroup.telemetry.file",
        _OURS,
        Text(),
        "a file for [telemetry](telemetry.md) as JSON lines, appended; no file if not given",
        groups=True,
    ),
    Key(
        "coopgroup.telemetry.topic",
        _OURS,
        Topic(),
        "a topic that members add their [telemetry](telemetry.md#the-topic) to; no topic if not "
        "given. `coopgroup setup` creates `coopgroup-telemetry`",
        groups=True,
    ),
    Key(
        "coopgroup.telemetry.listener",
        _OURS,
        Callback(),
        "a callable that gets each record of [telemetry](telemetry.md) as it is written, for "
        "[metrics](metrics.md); not called if not given",
        groups=True,
    ),
    Key(
        "coopgroup.state.dir",
        _OURS,
        Text(),
        "a directory of this host that keeps member identities when their processes end ([how]"
        "(consumer.md#a-restart-without-a-rebalance)). It is created if it does not exist. If not "
        "given, no identity is kept. No effect together with `group.instance.id`; with "
        "`group.protocol=consumer` both are refused",
        groups=True,
    ),
    Key(
        "coopgroup.host",
        _OURS,
        _SENT,
        "the machine that runs this process: [standbys]"
        "(policies.md#warm-ups-restore-before-the-move) are on other hosts first. If not given, "
        "the host name. Set it in containers, for example to the name of the Kubernetes node, "
        "because each container has a host name of its own. Told only by members that take part "
        "in warm-ups",
        groups=True,
        only_with=CLASSIC,
        otherwise=_NO_LEADER,
    ),
    Key(
        "coopgroup.member",
        _OURS,
        None,
        'what the leader\'s assignor is told about this process, such as `{"places": 4}`: a JSON '
        "object of at most 1,000 bytes, or its text ([use](custom_assignor.md#places-and-tags))",
        groups=True,
        only_with=CLASSIC,
        otherwise=_NO_LEADER,
    ),
    Key(
        "coopgroup.window.heartbeat.interval.ms",
        _OURS,
        Whole(1, 3_600_000),
        "interval of heartbeats while lost partitions wait for their owner, and while this member "
        "stops something. The members then notice the owner's return quickly. Never longer than "
        "`heartbeat.interval.ms`. Its cost: each member that waits or stops sends 4 heartbeats a "
        "second. If 1,000 members wait for a lost member, one broker gets 4,000 heartbeats a "
        "second during the wait",
        default=250,
        groups=True,
        only_with=CLASSIC,
        otherwise=_OF_THE_BROKER.format("consumer.heartbeat.interval.ms"),
    ),
    Key(
        "coopgroup.bell.topic",
        _OURS,
        Topic(),
        "a topic that tells members of a round ahead of their heartbeats "
        "([the bell](operations.md#the-bell)). A member uses the topic of the default if the "
        "cluster has it. Empty: no bell",
        default=BELL_TOPIC,
        groups=True,
    ),
)

_OF_GROUPS: Final = (
    Key(
        "coopgroup.stop.timeout.ms",
        _OURS,
        _MS_TO_DAY,
        "maximum duration of a stop, and how long the coordinator waits for a member to rejoin. At "
        "least `session.timeout.ms`",
        default=300_000,
        groups=True,
    ),
)

_GROUP: Final = (
    Key("group.id", _SAME, _SENT, "required", groups=True),
    Key(
        "group.instance.id",
        _SAME,
        _SENT,
        "static membership (KIP-345): a member that closes keeps its place until its session ends",
        withheld=True,
        groups=True,
    ),
    Key(
        "client.rack",
        _SAME,
        _SENT,
        "fetching from the nearest replica (KIP-392); also sent to the leader (KIP-881)",
        groups=True,
    ),
    Key(
        "session.timeout.ms",
        Verdict.DIFFERENT,
        Whole(1, 3_600_000),
        "the broker gets the same value. It is also the lease: after this time without an answered "
        "heartbeat the member hands out nothing more",
        default=45_000,
        withheld=True,
        groups=True,
        only_with=CLASSIC,
        otherwise=_OF_THE_BROKER.format("consumer.session.timeout.ms"),
    ),
    Key(
        "heartbeat.interval.ms",
        _SAME,
        Whole(1, 3_600_000),
        "must be less than `session.timeout.ms`",
        default=3_000,
        withheld=True,
        groups=True,
        only_with=CLASSIC,
        otherwise=_OF_THE_BROKER.format("consumer.heartbeat.interval.ms"),
    ),
    Key(
        "max.poll.interval.ms",
        _SAME,
        _MS_TO_DAY,
        "a member whose application does not poll leaves the group. The next poll returns the "
        "event `_MAX_POLL_EXCEEDED`. The poll after it calls `on_lost`, and the member rejoins. "
        "Also the limit for a stop postponed by `revoke_later`",
        default=300_000,
        withheld=True,
    ),
    Key(
        "group.protocol",
        _SAME,
        _one_of(CLASSIC, CONSUMER),
        "`consumer` is KIP-848: the broker assigns ([which one is better](consumer-protocol.md))",
        default=CLASSIC,
        withheld=True,
    ),
    Key(
        "group.remote.assignor",
        _SAME,
        _SENT,
        "the broker's assignor, `uniform` or `range`; if not given, the broker's default",
        withheld=True,
        only_with=CONSUMER,
        otherwise="no such key: the leader assigns; pass assignor=… instead",
    ),
    Key(
        "group.protocol.type",
        Verdict.ONLY,
        _one_of("consumer", expected="consumer"),
        default="consumer",
        withheld=True,
    ),
    Key(
        "partition.assignment.strategy",
        Verdict.DIFFERENT,
        None,
        "`range`, `roundrobin`, `sticky`, `cooperative-sticky`, or a list. Chooses the assignor of "
        "the first name, unless `assignor=` or `coopgroup.assignor` is given. Because the group "
        "may be at work with other clients, the member offers these protocols beside ours, as with "
        "`coopgroup.protocols=coopgroup,range`; of a list with `cooperative-sticky` only this one. "
        "The log has `assignment_strategy_read`",
        withheld=True,
        only_with=CLASSIC,
        otherwise=_BROKER_ASSIGNS,
    ),
    Key(
        "coordinator.query.interval.ms",
        Verdict.NO_EFFECT,
        None,
        "the coordinator is looked up when it is unknown or has moved",
        withheld=True,
    ),
    Key(
        "topic.metadata.refresh.interval.ms",
        _SAME,
        Whole(-1, 3_600_000),
        "also the interval of the check for new topics and partitions; -1 for never",
        default=300_000,
    ),
)

_OFFSETS: Final = (
    Key("enable.auto.commit", _SAME, _SWITCH, default="true", withheld=True),
    Key(
        "auto.commit.interval.ms",
        _SAME,
        Whole(0, DAY_MS),
        "0 turns auto-commit off, as in librdkafka",
        default=5_000,
        withheld=True,
    ),
    Key(
        "enable.auto.offset.store",
        _SAME,
        _SWITCH,
        "stores the offsets of records that were handed out, never of records that were only "
        "fetched",
        default="true",
        withheld=True,
    ),
    Key(
        "auto.offset.reset",
        _SAME,
        Choice(_RESETS, "earliest, latest or error"),
        "also determines the lag of a partition without a commit",
        default="latest",
    ),
    Key(
        "on_commit",
        _SAME,
        Callback(),
        "called with the error and the partitions, from `poll`, `consume` and `close`",
        withheld=True,
    ),
)

_DESERIALIZERS: Final = (
    Key(
        "key.deserializer",
        _SAME,
        Callback(),
        "as in `DeserializingConsumer`, also for `consume`, asyncio and `process` ([deserializers]"
        "(deserializers.md))",
        secret=True,
        withheld=True,
    ),
    Key("value.deserializer", _SAME, Callback(), "likewise", secret=True, withheld=True),
    *_refused("pass what it builds, as key.deserializer", "key.deserializer.builder", secret=True),
    *_refused(
        "pass what it builds, as value.deserializer", "value.deserializer.builder", secret=True
    ),
)

_CALLBACKS: Final = (
    Key(
        "error_cb",
        _SAME,
        None,
        "called from `poll` and `consume`, which raise its exceptions. It gets the errors of the "
        "fetching connections and of the group's connections. The latter are `_TRANSPORT`, "
        "`_AUTHENTICATION` or `_UNSUPPORTED_FEATURE` with a text that begins with "
        "`GroupCoordinator:`, each at most every 30 s. Any other error that the group's "
        "connections [retry](telemetry.md#request_retried) comes after 10 s, with its usual cause. "
        "If the group refuses the member, it gets a fatal error",
    ),
    Key("stats_cb", _SAME, None, "its `cgrp` is empty: librdkafka is in no group"),
    *_same("throttle_cb"),
    Key("logger", _SAME, None, "in the configuration or as a keyword", secret=True, groups=True),
    *_same("log_level", groups=True),
    Key("debug", _SAME, None, "`cgrp` logs nothing: librdkafka is in no group", groups=True),
    Key(
        "default.topic.config",
        _SAME,
        None,
        "its keys apply if the configuration does not have them",
        secret=True,
    ),
)

_CONNECTIONS: Final = (
    *_same("bootstrap.servers", "metadata.broker.list"),
    Key(
        "client.id",
        Verdict.DIFFERENT,
        _SENT,
        "the host name if not given. So a restarted process keeps its name, and the "
        "[policies](policies.md) prefer a returning client of the same name",
    ),
    Key("broker.address.family", _SAME, _one_of("any", "v4", "v6"), default="any"),
    *_fetching_only("names are resolved at every connect", "broker.address.ttl"),
    _only("client.dns.lookup", "use_all_dns_ips, which both clients know", "use_all_dns_ips"),
    Key(
        "socket.timeout.ms",
        _SAME,
        Whole(10, 300_000),
        "for the group's connections",
        default=30_000,
    ),
    Key(
        "socket.connection.setup.timeout.ms",
        _SAME,
        Whole(10),
        "for the group's connections",
        default=10_000,
    ),
    Key(
        "socket.keepalive.enable",
        _SAME,
        _TRUE_OR_FALSE,
        "for the group's connections: a silent peer is given up after a third of "
        "`session.timeout.ms`",
        default="true",
    ),
    Key("socket.nagle.disable", _SAME, _TRUE_OR_FALSE, default="true"),
    Key("socket.send.buffer.bytes", _SAME, Whole(0), default=0),
    Key("socket.receive.buffer.bytes", _SAME, Whole(0), default=0),
    *_fetching_only(_DEPRECATED, "socket.blocking.max.ms"),
    *_fetching_only("a group RPC that times out always ends its connection", "socket.max.fails"),
    *_fetching_only("heartbeats keep the group's connections busy", "connections.max.idle.ms"),
    *_fetching_only(_FEW, "max.in.flight.requests.per.connection", "max.in.flight"),
    Key("receive.message.max.bytes", _SAME, Whole(1_000), default=100_000_000),
    Key(
        "reconnect.backoff.ms",
        _SAME,
        Whole(0),
        "for the group's connections",
        default=50,
    ),
    Key(
        "reconnect.backoff.max.ms",
        _SAME,
        Whole(0),
        "for the group's connections: a member that waits longer loses its session",
        default=1_000,
    ),
    *_fetching_only(_DEPRECATED, "reconnect.backoff.jitter.ms"),
    Key("metadata.max.age.ms", _SAME, Whole(1), default=900_000),
    *_fetching_only(
        _BOOTSTRAPS, "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"
    ),
    Key("api.version.request", _SAME, _TRUE_OR_FALSE, default="true"),
    *_fetching_only(
        "the connection setup timeout also limits the negotiation", "api.version.request.timeout.ms"
    ),
    *_fetching_only("versions are negotiated at every connect", "api.version.fallback.ms"),
    Key(
        "broker.version.fallback",
        _SAME,
        None,
        "if `api.version.request` is false",
        default="0.10.0",
    ),
    Key(
        "security.protocol",
        _SAME,
        _one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        default="plaintext",
    ),
    Key("enable.ssl.certificate.verification", _SAME, _TRUE_OR_FALSE, default="true"),
    Key("ssl.endpoint.identification.algorithm", _SAME, _one_of("none", "https"), default="https"),
    *_same("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
    *_same("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.key.password", secret=True),
    *_same("ssl.crl.location", "ssl.cipher.suites"),
    *_refused("use ssl.ca.location or ssl.ca.pem", "ssl.ca.certificate.stores"),
    *_refused("Python's TLS chooses the curves", "ssl.curves.list"),
    *_refused("Python's TLS chooses the signatures", "ssl.sigalgs.list"),
    Key(
        "ssl.keystore.location",
        _SAME,
        None,
        "a PKCS#12 file with certificate and key; needs the extra `keystore`",
    ),
    *_same("ssl.keystore.password", secret=True),
    *_refused(_PEM, "ssl.engine.location", "ssl.engine.id", "ssl.providers", secret=True),
    *_refused(_PEM, "ssl_key", "ssl_certificate", "ssl_ca", secret=True),
    *_refused(_PEM, "ssl_engine_callback_data", secret=True),
    *_refused("Python's TLS verifies certificates", "ssl.certificate.verify_cb", secret=True),
    *_same("sasl.mechanism", "sasl.mechanisms"),
    *_same("sasl.username", "sasl.password", secret=True),
    Key("sasl.kerberos.service.name", _SAME, None, default="kafka"),
    *_fetching_only(
        "for librdkafka's kinit, whose ticket cache both clients use",
        *("sasl.kerberos.principal", "sasl.kerberos.kinit.cmd", "sasl.kerberos.keytab"),
        secret=True,
    ),
    *_fetching_only(
        "for librdkafka's kinit, whose ticket cache both clients use",
        "sasl.kerberos.min.time.before.relogin",
    ),
    *_same("oauth_cb"),
    *_same("sasl.oauthbearer.config", secret=True),
    Key(
        "sasl.oauthbearer.method",
        Verdict.ONLY,
        _one_of("default", "oidc", expected="default, with tokens from oauth_cb, or oidc"),
        "with tokens from `oauth_cb`; or `oidc`, [from an endpoint](#tokens-by-oidc)",
        default="default",
    ),
    _only("enable.sasl.oauthbearer.unsecure.jwt", "false, with tokens from oauth_cb", "false"),
    *_same("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", secret=True),
    Key(
        "sasl.oauthbearer.client.credentials.client.id",
        _SAME,
        None,
        "another name of `sasl.oauthbearer.client.id`",
        secret=True,
    ),
    Key(
        "sasl.oauthbearer.client.credentials.client.secret",
        _SAME,
        None,
        "another name of `sasl.oauthbearer.client.secret`",
        secret=True,
    ),
    Key(
        "sasl.oauthbearer.scope",
        _SAME,
        None,
        "sent as it is given, as librdkafka does",
        secret=True,
    ),
    *_same("sasl.oauthbearer.extensions", "sasl.oauthbearer.token.endpoint.url", secret=True),
    Key("sasl.oauthbearer.sub.claim.name", _SAME, None, default="sub"),
    _only(
        "sasl.oauthbearer.grant.type",
        "client_credentials, or tokens from oauth_cb",
        "client_credentials",
    ),
    _only("sasl.oauthbearer.metadata.authentication.type", "none, or tokens from oauth_cb", "none"),
    *_refused(
        "fetch tokens in oauth_cb, which serves both clients",
        *(
            f"sasl.oauthbearer.assertion.{name}"
            for name in (
                *("algorithm", "file", "jwt.template.file"),
                *("private.key.file", "private.key.passphrase", "private.key.pem"),
                *("claim.aud", "claim.exp.seconds", "claim.iss", "claim.jti.include"),
                *("claim.nbf.seconds", "claim.sub"),
            )
        ),
        secret=True,
    ),
    Key("https.ca.location", _SAME, None, "for the endpoint of tokens"),
    Key("https.ca.pem", _SAME, None, "for the endpoint of tokens", secret=True),
)

_FETCHING: Final = (
    *_same("builtin.features", "message.max.bytes", "message.copy.max.bytes"),
    *_same("topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.fast.cnt"),
    *_same("topic.metadata.refresh.sparse", "topic.metadata.propagation.max.ms"),
    *_no_effect("a pattern subscribes to all matching topics", "topic.blacklist"),
    *_same("statistics.interval.ms", "enabled_events", "log.queue", "log.thread.name"),
    *_same("enable.random.seed", "log.connection.close", "internal.termination.signal"),
    *_no_effect(
        "the consumer waits for a subscribed topic that does not exist, and does not create it",
        "allow.auto.create.topics",
    ),
    *_same("queued.min.messages", "queued.max.messages.kbytes", "fetch.wait.max.ms"),
    Key(
        "fetch.queue.backoff.ms",
        Verdict.DIFFERENT,
        None,
        "1000 in librdkafka, where a consumer pauses for a second whenever its queue is full",
        default=10,
    ),
    *_same("fetch.message.max.bytes", "max.partition.fetch.bytes"),
    *_same("fetch.max.bytes", "fetch.min.bytes", "fetch.error.backoff.ms", "isolation.level"),
    *_same("enable.partition.eof", "check.crcs"),
    *_no_effect("only for share consumers, as in librdkafka", "max.poll.records"),
    Key(
        "share.acknowledgement.mode",
        Verdict.NO_EFFECT,
        None,
        "only for share consumers, as in librdkafka",
        secret=True,
    ),
    *_fetching_only(
        "the group backs off from 100 ms to 1 s", "retry.backoff.ms", "retry.backoff.max.ms"
    ),
    *_same("enable.metrics.push"),
    *_no_effect("no effect in confluent_kafka either", "consume.callback.max.messages"),
    *_same("plugin.library.paths"),
)

_OTHERS: Final = (
    *_refused("pass on_assign, on_revoke and on_lost to subscribe()", "rebalance_cb"),
    *_refused("it is called enable.auto.commit", "auto.commit.enable"),
    *_refused("it is called on_commit", "offset_commit_cb"),
    *_refused(
        "offsets are stored in the group",
        *("offset.store.method", "offset.store.path", "offset.store.sync.interval.ms"),
    ),
    *(
        Key(name, Verdict.REFUSED, None, _NOT_IN_CONFLUENT_KAFKA, secret=True)
        for name in (
            *("log_cb", "background_event_cb", "socket_cb", "connect_cb", "closesocket_cb"),
            *("open_cb", "resolve_cb", "opaque", "default_topic_conf"),
            *("oauthbearer_token_refresh_cb", "interceptors", "consume_cb"),
        )
    ),
)

SECTIONS: Final[Mapping[str, tuple[Key, ...]]] = MappingProxyType(
    {
        "own": _OWN,
        "groups": _OF_GROUPS,
        "group": _GROUP,
        "offsets": _OFFSETS,
        "deserializers": _DESERIALIZERS,
        "callbacks": _CALLBACKS,
        "connections": _CONNECTIONS,
        "fetching": _FETCHING,
        "others": _OTHERS,
    }
)
"""The table, by the sections of the documentation."""

KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {key.name: key for key in chain.from_iterable(SECTIONS.values())}
)
CONNECTION_KEYS: Final = frozenset(key.name for key in _CONNECTIONS)
CONSUMER_KEYS: Final = frozenset(KEYS) - {key.name for key in _OF_GROUPS}
GROUP_KEYS: Final = tuple(key.name for key in KEYS.values() if key.groups)
"""The keys with an effect in a group of named resources, besides those of connections."""
RECORD_KEYS: Final = CONSUMER_KEYS - CONNECTION_KEYS - {*GROUP_KEYS}
"""The keys of a consumer without an effect in a group of named resources."""

# A key of these families is refused if the table lacks it. It would be ignored silently otherwise.
CONNECTION_FAMILIES: Final = (
    *("api.version.", "broker.", "connections.", "enable.sasl.", "enable.ssl.", "https."),
    *("reconnect.", "sasl.", "security.", "socket.", "ssl.", "ssl_"),
)
