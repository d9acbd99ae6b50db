"""The configuration of a group of named resources, read and checked once.

Rules of this file: a group accepts each key that a consumer accepts, so that one dictionary serves
both. Keys about connections, the group and logs have the same meaning. Keys about records are
checked, and have no effect. That includes the protocols that a consumer offers: a group of named
resources has its own protocol. Any other key is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from attrs import frozen

from coopgroup.groups.catalogue import INDEX_MIN
from coopgroup.groups.work import WorkLimits
from coopgroup.kafka.config.keys import (
    CLASSIC,
    CONSUMER,
    CONSUMER_KEYS,
    KEYS,
    RECORD_KEYS,
    SECTIONS,
    Verdict,
)
from coopgroup.kafka.config.settings import ConsumerSettings, read_settings
from coopgroup.kafka.config.shown_values import refused
from coopgroup.kafka.config.values import check_keys, check_value, choice, whole

PROTOCOL_TYPE: Final = "coopgroup"
PROTOCOL_NAME: Final = "resources"
_OWN: Final = frozenset(key.name for key in SECTIONS["groups"])
# Without the keys that librdkafka would refuse: it does not see all keys of a group.
_KNOWN: Final = _OWN.union(
    name
    for name in CONSUMER_KEYS
    if KEYS[name].instead or KEYS[name].verdict is not Verdict.REFUSED
)


@frozen(kw_only=True)
class GroupSettings:
    """The settings of a group.

    Attributes:
        shared: those that a consumer has, too. The maximum poll interval limits a stop.
        limits: how long callbacks may take, and when they are tried again.
    """

    shared: ConsumerSettings
    limits: WorkLimits

    @classmethod
    def read(cls, configuration: Mapping[str, Any], *, eager: bool = False) -> GroupSettings:
        """Read the configuration of a group.

        Raises:
            ConfigurationError: a key is unknown, or has an invalid value.
        """
        check_keys(configuration, _KNOWN, _refuse_unknown)
        for key in sorted(RECORD_KEYS & configuration.keys()):
            check_value(configuration, key)
        stop_ms = whole(configuration, "coopgroup.stop.timeout.ms")
        session_ms = whole(configuration, "session.timeout.ms")
        if stop_ms < session_ms:
            raise refused(
                "coopgroup.stop.timeout.ms", stop_ms, f"at least session.timeout.ms ({session_ms})"
            )
        left_out = _OWN | RECORD_KEYS
        shared = {key: value for key, value in configuration.items() if key not in left_out}
        if choice(configuration, "group.protocol") == CONSUMER:
            expected = f"{CLASSIC}: a group of named resources needs a leader"
            raise refused("group.protocol", CONSUMER, expected)
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
            limits=WorkLimits(stop_s=stop_ms / 1000),
        )


def _refuse_unknown(_: str) -> str:
    return f"no such key: a group has the keys of a consumer, and {', '.join(sorted(_OWN))}"
