"""The configuration of a group of named resources, read and checked once.

Rules of this file: connection keys are those of confluent_kafka, with the same meaning. Keys about
the group have the same names as for a consumer. The remaining keys are coopgroup's own. Any other
key is refused: a group fetches no records, so a consumer's key would have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from attrs import frozen

from coopgroup.groups.catalogue import INDEX_MIN
from coopgroup.groups.work import WorkLimits
from coopgroup.kafka.config.connection_keys import CONNECTION_SETTINGS
from coopgroup.kafka.config.librdkafka_values import whole
from coopgroup.kafka.config.settings import SHARED_KEYS, ConsumerSettings, read_settings
from coopgroup.kafka.config.shown_values import refused

__all__ = ["GROUP_KEYS", "OWN_KEYS", "PROTOCOL_NAME", "PROTOCOL_TYPE", "GroupSettings"]

PROTOCOL_TYPE: Final = "coopgroup"
PROTOCOL_NAME: Final = "resources"
GROUP_KEYS: Final = (
    "group.id",
    "group.instance.id",
    "client.rack",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    *SHARED_KEYS,
)
OWN_KEYS: Final = {
    "coopgroup.callback.threads": 32,
    "coopgroup.catalogue.refresh.ms": 5_000,
    "coopgroup.retry.backoff.ms": 500,
    "coopgroup.retry.backoff.max.ms": 60_000,
    "coopgroup.stop.timeout.ms": 300_000,
}
"""Settings of groups of named resources only, with their defaults."""
_STOP_MS_MAX: Final = 86_400_000


@frozen(kw_only=True)
class GroupSettings:
    """The settings of a group.

    Attributes:
        shared: those that a consumer has, too. The maximum poll interval limits a stop, and the
            look-up time-out how long a leader with an outdated catalogue waits.
        limits: how long callbacks may take, and when they are tried again.
    """

    shared: ConsumerSettings
    refresh_ms: int
    threads_max: int
    limits: WorkLimits

    @classmethod
    def read(cls, configuration: Mapping[str, Any], *, eager: bool = False) -> GroupSettings:
        """Read the configuration of a group.

        Raises:
            ConfigurationError: a key is unknown, or has an invalid value.
        """
        _refuse_others(configuration)
        own = {key: whole(configuration, key, default, 1) for key, default in OWN_KEYS.items()}
        stop_ms = own["coopgroup.stop.timeout.ms"]
        session_ms = whole(configuration, "session.timeout.ms", 45_000, 1)
        if stop_ms < session_ms:
            raise refused(
                "coopgroup.stop.timeout.ms", stop_ms, f"at least session.timeout.ms ({session_ms})"
            )
        if stop_ms > _STOP_MS_MAX:
            raise refused("coopgroup.stop.timeout.ms", stop_ms, f"at most {_STOP_MS_MAX} (a day)")
        retry_ms = own["coopgroup.retry.backoff.ms"]
        if own["coopgroup.retry.backoff.max.ms"] < retry_ms:
            raise refused(
                "coopgroup.retry.backoff.max.ms",
                own["coopgroup.retry.backoff.max.ms"],
                f"at least coopgroup.retry.backoff.ms ({retry_ms})",
            )
        shared = {key: value for key, value in configuration.items() if key not in OWN_KEYS}
        read = read_settings({**shared, "max.poll.interval.ms": stop_ms})
        member = attrs.evolve(
            read.member,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            index_min=INDEX_MIN,
            eager=eager,
        )
        return cls(
            shared=attrs.evolve(read, member=member),
            refresh_ms=own["coopgroup.catalogue.refresh.ms"],
            threads_max=own["coopgroup.callback.threads"],
            limits=WorkLimits(
                stop_s=stop_ms / 1000,
                retry_s=own["coopgroup.retry.backoff.ms"] / 1000,
                retry_max_s=own["coopgroup.retry.backoff.max.ms"] / 1000,
            ),
        )


def _refuse_others(configuration: Mapping[str, Any]) -> None:
    known = {*GROUP_KEYS, *OWN_KEYS, *CONNECTION_SETTINGS}
    for key in sorted(configuration):
        if key not in known:
            expected = (
                "no such key: a group has those of connections, and "
                f"{', '.join(sorted([*GROUP_KEYS, *OWN_KEYS]))}"
            )
            raise refused(key, configuration[key], expected)
