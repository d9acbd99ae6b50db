"""`MemberChoices`: policy and assignor of a member, as names and digests of options.

Only the leader's policy and assignor count. If another member has a different policy, nothing shows
this until that member leads. So each member tells its own, and the leader compares.

A digest must be the same in all processes and releases. So it is a checksum of JSON text, and
options with their default values are left out: an option that a release adds changes nothing.
"""

from __future__ import annotations

import enum
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs
from attrs import frozen

_PACKAGE: Final = __name__.partition(".")[0]
_NAME_MAX: Final = 100


@frozen(kw_only=True)
class MemberChoices:
    """Policy and assignor of a member.

    Attributes:
        policy: name of the policy; for a class of the application, the name of that class.
        assignor: name of the assignor, in the same way.
        policy_digest: CRC-32 of the policy's options; None if they are unknown.
        assignor_digest: CRC-32 of the assignor's options; None if they are unknown.
    """

    policy: str
    assignor: str
    policy_digest: int | None = None
    assignor_digest: int | None = None


_NO_OPTIONS: Final = zlib.crc32(b"{}")
_USUAL: Final = MemberChoices(
    policy="simple",
    assignor="sticky",
    policy_digest=_NO_OPTIONS,
    assignor_digest=_NO_OPTIONS,
)


class Named(Protocol):
    """A policy or an assignor."""

    @property
    def name(self) -> str:
        """Name in configuration, command line and logs."""
        ...


def choices_of(policy: Named | None, assignor: Named | None) -> MemberChoices:
    """Return what a member tells about its policy and its assignor.

    None stands for the defaults, which a member loads only when it may lead.
    The options of an attrs class are the arguments of its constructor. Arguments that comparisons
    leave out (`eq=False`) are no options. Any other class has a name, and no digest.
    """
    return MemberChoices(
        policy=_USUAL.policy if policy is None else _name(policy),
        assignor=_USUAL.assignor if assignor is None else _name(assignor),
        policy_digest=_USUAL.policy_digest if policy is None else _digest(policy),
        assignor_digest=_USUAL.assignor_digest if assignor is None else _digest(assignor),
    )


def _is_ours(plugin: object) -> bool:
    return type(plugin).__module__.partition(".")[0] == _PACKAGE


def _name(plugin: Named) -> str:
    return plugin.name if _is_ours(plugin) else type(plugin).__qualname__[:_NAME_MAX]


def _digest(plugin: object) -> int | None:
    if not attrs.has(type(plugin)):
        return None
    try:
        return zlib.crc32(json.dumps(_options(plugin), sort_keys=True).encode())
    except Exception:  # noqa: BLE001 -- the attributes of a user's class may do anything
        return None


def _options(value: Any) -> dict[str, object]:  # noqa: ANN401 -- of any attrs class
    given = {
        field.name: (_plain(getattr(value, field.name)), _plain(field.default))
        for field in attrs.fields(type(value))
        if field.init and field.eq
    }
    return {name: option for name, (option, default) in given.items() if option != default}


def _plain(value: object) -> object:
    """Return a value in the types of JSON; another object is only the name of its class."""
    kind = type(value)
    plain: object
    match value:
        case enum.Enum():
            plain = value.name
        case None | bool() | int() | str():
            plain = value
        case float():  # 0 and 0.0 are the same option
            plain = int(value) if value.is_integer() else value
        case Mapping():
            plain = {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            plain = [_plain(one) for one in value]
        case set() | frozenset():
            plain = sorted(json.dumps(_plain(one), sort_keys=True) for one in value)
        case _ if attrs.has(kind):
            plain = [kind.__qualname__, _options(value)]
        case _:
            plain = getattr(value, "__qualname__", kind.__qualname__)
    return plain
