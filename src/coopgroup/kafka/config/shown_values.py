"""The values of a configuration that an error or a `repr` may show.

Many people read logs, and errors are logged. A list of secret keys is never complete: librdkafka
adds keys, and a misspelt `sasl.passwrd` holds a password, too. So this file lists the keys whose
values are harmless, and every other value is replaced.

Rules of this file: make an error about a key with `refused`, never with `ConfigurationError` itself
(an architecture test checks this). Add a key to the list only if no user would put a password, a
key or a token into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from coopgroup.errors import ConfigurationError

__all__ = ["HIDDEN", "refused", "safe_reason", "shown", "shown_configuration", "shown_setting"]

HIDDEN: Final = "(not shown)"

_OF_CONNECTIONS: Final = """
    bootstrap.servers metadata.broker.list client.id broker.address.family broker.address.ttl
    client.dns.lookup socket.timeout.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.nagle.disable socket.send.buffer.bytes socket.receive.buffer.bytes socket.blocking.max.ms
    socket.max.fails connections.max.idle.ms max.in.flight.requests.per.connection max.in.flight
    receive.message.max.bytes reconnect.backoff.ms reconnect.backoff.max.ms
    reconnect.backoff.jitter.ms metadata.max.age.ms metadata.recovery.strategy
    metadata.recovery.rebootstrap.trigger.ms api.version.request api.version.request.timeout.ms
    api.version.fallback.ms broker.version.fallback
    security.protocol enable.ssl.certificate.verification ssl.endpoint.identification.algorithm
    ssl.ca.location ssl.certificate.location ssl.key.location ssl.crl.location
    ssl.keystore.location ssl.cipher.suites ssl.ca.certificate.stores ssl.curves.list
    ssl.sigalgs.list https.ca.location sasl.mechanism sasl.mechanisms sasl.kerberos.service.name
    sasl.kerberos.min.time.before.relogin sasl.oauthbearer.method sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.sub.claim.name
    enable.sasl.oauthbearer.unsecure.jwt
"""
_OF_THE_GROUP: Final = """
    group.id group.instance.id client.rack session.timeout.ms heartbeat.interval.ms
    max.poll.interval.ms group.protocol group.protocol.type group.remote.assignor
    coordinator.query.interval.ms partition.assignment.strategy enable.auto.commit
    auto.commit.enable auto.commit.interval.ms enable.auto.offset.store auto.offset.reset
    offset.store.method offset.store.path offset.store.sync.interval.ms
    topic.metadata.refresh.interval.ms
"""
_OF_CALLBACKS: Final = """
    on_commit error_cb stats_cb throttle_cb oauth_cb rebalance_cb offset_commit_cb log_level debug
"""
_OF_FETCHING: Final = """
    builtin.features message.max.bytes message.copy.max.bytes
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.sparse topic.metadata.propagation.max.ms topic.blacklist
    statistics.interval.ms enabled_events log.queue log.thread.name enable.random.seed
    log.connection.close internal.termination.signal allow.auto.create.topics queued.min.messages
    queued.max.messages.kbytes fetch.wait.max.ms fetch.queue.backoff.ms fetch.message.max.bytes
    max.partition.fetch.bytes fetch.max.bytes fetch.min.bytes fetch.error.backoff.ms
    isolation.level enable.partition.eof check.crcs max.poll.records retry.backoff.ms
    retry.backoff.max.ms enable.metrics.push consume.callback.max.messages plugin.library.paths
"""
_OURS: Final = """
    coopgroup.bell.topic coopgroup.callback.threads coopgroup.catalogue.refresh.ms coopgroup.host
    coopgroup.leader.timeout.ms coopgroup.lookup.timeout.ms coopgroup.protocols
    coopgroup.retry.backoff.ms coopgroup.retry.backoff.max.ms coopgroup.state.dir
    coopgroup.stop.timeout.ms coopgroup.telemetry.file coopgroup.telemetry.file.backups
    coopgroup.telemetry.file.max.bytes coopgroup.telemetry.listener
    coopgroup.telemetry.queue.records coopgroup.telemetry.report.interval.ms
    coopgroup.telemetry.topic
    coopgroup.window.heartbeat.interval.ms
"""
_HARMLESS: Final = frozenset(
    f"{_OF_CONNECTIONS} {_OF_THE_GROUP} {_OF_CALLBACKS} {_OF_FETCHING} {_OURS}".split()
)
_ADDRESSES: Final = ("bootstrap.servers", "metadata.broker.list")
# Real keys have no other characters: the rest may be a value in the wrong place.
_KEY: Final = re.compile(r"[\w.-]*")
# Shorter parts of a secret occur in a message by chance.
_PART: Final = 4


def shown(key: str, value: object) -> object:
    """Return a value as an error may show it: `HIDDEN` unless the key is known to be harmless."""
    if key not in _HARMLESS:
        return HIDDEN
    if isinstance(value, str):
        is_pem = "-----BEGIN" in value or "\n" in value
        has_user = key in _ADDRESSES and "@" in value  # user:password@host
        return HIDDEN if is_pem or has_user else value
    # The repr of a callback may show its object.
    plain = value is None or isinstance(value, int | float)
    return value if plain else f"({type(value).__name__})"


def shown_configuration(configuration: Mapping[str, Any]) -> str:
    """Return the `repr` of a configuration, without values that may be secret."""
    return repr({key: shown(key, value) for key, value in configuration.items()})


def shown_setting(setting: str) -> str:
    """Return an argument that should be KEY=VALUE but is not, as an error may show it."""
    return setting if setting in _HARMLESS else HIDDEN


def refused(key: str, value: object, expected: str) -> ConfigurationError:
    """Return the error about one key of a configuration."""
    name = _KEY.match(key)
    readable = "" if name is None else name.group()
    return ConfigurationError(
        readable if readable == key else f"{readable}…", shown(key, value), expected
    )


def safe_reason(reason: str, configuration: Mapping[str, Any]) -> str | None:
    """Return librdkafka's reason for a refusal; None if it repeats part of a secret."""
    parts = {reason[at : at + _PART] for at in range(len(reason) - _PART + 1)}
    for key, value in configuration.items():
        if shown(key, value) is not HIDDEN:
            continue
        text = str(value)
        if len(text) < _PART:
            repeats = text != "" and text in reason
        else:
            repeats = any(text[at : at + _PART] in parts for at in range(len(text) - _PART + 1))
        if repeats:
            return None
    return reason
