"""`Warmup`: the options of warm-ups, the same for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs
from attrs import field, frozen

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from attrs import Attribute

__all__ = ["Warmup", "read_warmup", "warmup_of"]

_OPTION_MAX: Final = 2**31 - 1
_WAYS: Final = ("move", "cancel")


def _count(_: Warmup, attribute: Attribute[int], value: int) -> None:
    least = 0 if attribute.name == "standbys" else 1
    if type(value) is not int or not least <= value <= _OPTION_MAX:
        raise ConfigurationError(
            f"{attribute.name} of warmup", value, f"an integer from {least} to {_OPTION_MAX}"
        )


def _way(_: Warmup, attribute: Attribute[str], value: str) -> None:
    if value not in _WAYS:
        raise ConfigurationError(f"{attribute.name} of warmup", value, f"one of {', '.join(_WAYS)}")


@frozen(kw_only=True)
class Warmup:
    """Move a resource only when its new owner is warm, and keep standbys.

    Attributes:
        max_concurrent: how many cold warm-ups run in the group at the same time. Kafka Streams runs
            2, because each of its rebalances hurts. Our rounds cost retained resources nothing, so
            only the load of restoring counts: 8 by default.
        per_member: how many cold warm-ups one member runs at the same time. With 2, the default,
            a member always restores, and its first resources still move early.
        timeout_ms: how long a warm-up may run, in ms. 10 minutes by default, the probing interval
            of Kafka Streams. Choose several times the longest restore.
        standbys: how many members stay warm for each resource beside its owner.
        on_timeout: "move" moves the resource to the cold member after the time-out. This is the
            default: the group always reaches its balance, and no move is worse than without
            warm-ups. "cancel" leaves the resource with its owner, which works, and tries another
            resource if the balance is the same; the group can stay uneven until its members change.
            A standby that times out is always cancelled.

    Raises:
        ConfigurationError: a count is not an integer in range, or `on_timeout` is another word.
    """

    max_concurrent: int = field(default=8, validator=_count)
    per_member: int = field(default=2, validator=_count)
    timeout_ms: int = field(default=600_000, validator=_count)
    standbys: int = field(default=0, validator=_count)
    on_timeout: str = field(default="move", validator=_way)


def read_warmup(value: object) -> Warmup | None:
    """Return the option of a policy, which files and the command line give as an object.

    Raises:
        ConfigurationError: the value is not an object with known keys.
    """
    if value is None or isinstance(value, Warmup):
        return value
    if not isinstance(value, Mapping):
        raise ConfigurationError("warmup", value, "an object with options, or null")
    known = sorted(attribute.name for attribute in attrs.fields(Warmup))
    for name in sorted(map(str, value)):
        if name not in known:
            raise ConfigurationError("option of warmup", name, f"one of {', '.join(known)}")
    options: dict[str, object] = dict(value)
    return Warmup(**options)  # type: ignore[arg-type] # the validators check the types


def warmup_of(policy: object) -> Warmup | None:
    """Return the option of a policy: its attribute `warmup`, if it has one."""
    option = getattr(policy, "warmup", None)
    return option if isinstance(option, Warmup) else None
