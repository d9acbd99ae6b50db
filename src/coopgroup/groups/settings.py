"""The configuration of a group of named resources, read and checked once.

Rules of this file: connection keys are those of confluent_kafka and mean the same; what is about
the group has the names that a consumer has for it; the rest is coopgroup's own. Any other key is
refused: nothing here fetches records, so a consumer's key would have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import frozen

from coopgroup.groups.catalogue import INDEX_MIN
from coopgroup.groups.work import WorkLimits
from coopgroup.kafka.connection_keys import CONNECTION_SETTINGS
from coopgroup.kafka.librdkafka_values import whole
from coopgroup.kafka.settings import read_settings
from coopgroup.kafka.shown_values import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopgroup.kafka.connection_settings import ConnectionSettings
    from coopgroup.kafka.telemetry_file import FileLimits
    from coopgroup.member import MemberConfig
    from coopgroup.telemetry import Envelope

__all__ = ["GROUP_KEYS", "OWN_KEYS", "PROTOCOL_NAME", "PROTOCOL_TYPE", "GroupSettings"]

PROTOCOL_TYPE: Final = "coopgroup"
PROTOCOL_NAME: Final = "resources"
GROUP_KEYS: Final = (
    "group.id",
    "group.instance.id",
    "client.rack",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "coopgroup.leader.timeout.ms",
    "coopgroup.lookup.timeout.ms",
    "coopgroup.state.dir",
    "coopgroup.telemetry.file",
    "coopgroup.telemetry.file.backups",
    "coopgroup.telemetry.file.max.bytes",
    "coopgroup.telemetry.listener",
    "coopgroup.telemetry.queue.records",
    "coopgroup.window.heartbeat.interval.ms",
)
OWN_KEYS: Final = {
    "coopgroup.callback.threads": 32,
    "coopgroup.catalogue.refresh.ms": 5_000,
    "coopgroup.retry.backoff.ms": 500,
    "coopgroup.retry.backoff.max.ms": 60_000,
    "coopgroup.stop.timeout.ms": 300_000,
}
"""What only groups of named resources have, with defaults."""
_STOP_MS_MAX: Final = 86_400_000


@frozen(kw_only=True)
class GroupSettings:
    """What a configuration says.

    Attributes:
        member: settings of the group member.
        connection: how the group RPCs reach the brokers.
        max_poll_interval_ms: how long a stop may take, and a member may be in rejoining.
        leader_timeout_ms: a leader whose assignor takes longer answers that nothing moves.
        lookup_timeout_ms: how long a leader that is behind waits for its catalogue.
        state_dir: directory in which the member is kept beyond its process, None for nowhere.
        telemetry_file: where telemetry is appended as JSON lines, None for nowhere.
        telemetry_limits: of the size of that file, and of the records that wait for it.
        telemetry_listener: gets each record of telemetry with who wrote it, None for nobody.
        refresh_ms: pace of looks at the catalogue.
        threads_max: how many callbacks run at once.
        limits: how long callbacks may take, and when they are tried again.
    """

    member: MemberConfig
    connection: ConnectionSettings
    max_poll_interval_ms: int
    leader_timeout_ms: int
    lookup_timeout_ms: int
    state_dir: str | None
    telemetry_file: str | None
    telemetry_limits: FileLimits
    telemetry_listener: Callable[[Envelope], object] | None
    refresh_ms: int
    threads_max: int
    limits: WorkLimits

    @classmethod
    def read(cls, configuration: Mapping[str, Any], *, eager: bool = False) -> GroupSettings:
        """Read the configuration of a group.

        Args:
            configuration: the user's.
            eager: whether the member gives everything up before each round.

        Raises:
            ConfigurationError: a key is unknown, or has a value that it cannot have.
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
        return cls(
            member=attrs.evolve(
                read.member,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL_NAME,
                index_min=INDEX_MIN,
                eager=eager,
            ),
            connection=read.connection,
            max_poll_interval_ms=stop_ms,
            leader_timeout_ms=read.leader_timeout_ms,
            lookup_timeout_ms=read.lookup_timeout_ms,
            state_dir=read.state_dir,
            telemetry_file=read.telemetry_file,
            telemetry_limits=read.telemetry_limits,
            telemetry_listener=read.telemetry_listener,
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
