"""Names of attributes on OpenTelemetry: those of its conventions for messaging, where it has them.

Other names begin with `coopgroup.`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Final

from coopgroup.metrics.feed import CommonLabels

NAMES: Final[Mapping[str, str]] = types.MappingProxyType(
    {
        "group": "messaging.consumer.group.name",
        "client_id": "messaging.client.id",
        "instance_id": "coopgroup.instance_id",
        "topic": "messaging.destination.name",
        "partition": "messaging.destination.partition.id",
        "cause": "coopgroup.cause",
        "reason": "coopgroup.reason",
        "outcome": "coopgroup.outcome",
    }
)
"""The attribute of each label."""


def of_member(labels: CommonLabels) -> dict[str, str]:
    """Return the attributes of a member; those without a value are left out."""
    names = ("group", "client_id", "instance_id")
    found = {NAMES[name]: value for name, value in zip(names, labels, strict=True) if value}
    return {"messaging.system": "kafka", **found}
