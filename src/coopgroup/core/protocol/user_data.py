"""Codec of our user data in a subscription.

Four bytes of magic, an int16 version, then fields. The magic distinguishes it from other user data:
Kafka's CooperativeStickyAssignor writes an int32 generation, StickyAssignor a list of previous
partitions, other clients nothing or something else.
"""

from __future__ import annotations

import math
from typing import Final

from coopgroup.core.model import EMPTY
from coopgroup.core.model.choices import MemberChoices
from coopgroup.core.model.traits import Traits, checked_traits, traits_of_text, traits_text
from coopgroup.core.protocol.reader import INT16, INT32, INT64, NULL, ByteReader
from coopgroup.core.protocol.resource_array import (
    packed_nullable_resources,
    packed_resources,
    read_nullable_resources,
    read_resources,
)
from coopgroup.core.protocol.values import USER_DATA_VERSION, UserData
from coopgroup.core.protocol.writer import (
    packed_nullable_int32,
    packed_nullable_int64,
    packed_nullable_string,
)
from coopgroup.errors import EncodeError, InvalidValueError

# As StickyAssignor's first field (a count) or as a generation these bytes are 1,668,773,220.
MAGIC: Final = b"cwud"
_RATE: Final = "consumption_rate_per_s"
_DECLINED_WARMUPS: Final = "declined_warmups"
_RATE_UNITS_PER_S: Final = 1_000
_NO_CHOICES: Final = 2 * (INT16.pack(NULL) + INT64.pack(NULL))


def encode_user_data(user_data: UserData, *, index_min: int = 0) -> bytes:
    """Write user data.

    Args:
        user_data: the user data.
        index_min: smallest allowed index of a warm resource: 0 for partitions, -1 in groups of
            connectors.

    Raises:
        EncodeError: a time or a version is negative or does not fit its type, the rate or the
            traits are invalid, or a warm resource, a declined one or the host has no wire form.
    """
    return b"".join(
        [
            MAGIC,
            INT16.pack(USER_DATA_VERSION),
            packed_nullable_int32(user_data.rejoin_in_ms, "rejoin_in_ms"),
            packed_nullable_int32(user_data.loss_ends_in_ms, "loss_ends_in_ms"),
            packed_nullable_int64(_rate_units(user_data.consumption_rate_per_s), _RATE),
            packed_nullable_int64(user_data.catalogue_version, "catalogue_version"),
            packed_nullable_resources(user_data.warm, "warm", index_min=index_min),
            packed_nullable_string(user_data.host, "host"),
            packed_resources(user_data.declined, "declined", index_min=index_min),
            INT32.pack(user_data.hands_over),
            packed_nullable_string(_traits_text(user_data.traits), "traits"),
            packed_resources(user_data.declined_warmups, _DECLINED_WARMUPS, index_min=index_min),
            _packed_choices(user_data.choices),
        ]
    )


def decode_user_data(
    content: bytes | None, *, index_min: int = 0, skips_rest: bool = False
) -> UserData | None:
    """Read user data; None for absent user data and for that of other clients.

    A newer version is refused, as it need not have these fields. User data may end before the
    declined warm-ups, or before the policy: earlier members had no such fields.

    Args:
        content: `Subscription.user_data`.
        index_min: smallest allowed index of a warm resource: 0 for partitions, -1 in groups of
            connectors.
        skips_rest: whether to skip bytes after the last known field, as leaders do. A later release
            may append fields.

    Raises:
        DecodeError: the bytes have our magic and cannot be read; offsets count from their start.
            The subscription around them is still readable.
    """
    if content is None or not content.startswith(MAGIC):
        return None
    reader = ByteReader(content)
    reader.offset = len(MAGIC)
    reader.read_version("user data version", USER_DATA_VERSION)
    rejoin_in_ms = reader.read_nullable_int32("rejoin_in_ms")
    loss_ends_in_ms = reader.read_nullable_int32("loss_ends_in_ms")
    rate_units = reader.read_nullable_int64(_RATE)
    user_data = UserData(
        rejoin_in_ms=rejoin_in_ms,
        loss_ends_in_ms=loss_ends_in_ms,
        consumption_rate_per_s=None if rate_units is None else rate_units / _RATE_UNITS_PER_S,
        catalogue_version=reader.read_nullable_int64("catalogue_version"),
        warm=read_nullable_resources(reader, "warm", index_min=index_min),
        host=reader.read_nullable_string("host"),
        declined=read_resources(reader, "declined", index_min=index_min),
        hands_over=reader.read_int32("hands_over") == 1,
        traits=_read_traits(reader),
        declined_warmups=read_resources(reader, _DECLINED_WARMUPS, index_min=index_min)
        if reader.left
        else EMPTY,
        choices=_read_choices(reader) if reader.left else None,
    )
    if not skips_rest:
        reader.require_end()
    return user_data


def _traits_text(traits: Traits) -> str | None:
    if not traits:
        return None
    try:
        return traits_text(checked_traits(traits))
    except ValueError as error:
        raise EncodeError(f"traits: expected {error}") from None


def _read_traits(reader: ByteReader) -> Traits:
    offset = reader.offset
    text = reader.read_nullable_string("traits")
    if text is None:
        return {}
    try:
        return traits_of_text(text)
    except ValueError as error:
        raise InvalidValueError(f"traits: expected {error}", offset) from None


def _packed_choices(choices: MemberChoices | None) -> bytes:
    if choices is None:
        return _NO_CHOICES
    return b"".join(
        [
            packed_nullable_string(choices.policy, "policy"),
            packed_nullable_int64(choices.policy_digest, "policy_digest"),
            packed_nullable_string(choices.assignor, "assignor"),
            packed_nullable_int64(choices.assignor_digest, "assignor_digest"),
        ]
    )


def _read_choices(reader: ByteReader) -> MemberChoices | None:
    policy = reader.read_nullable_string("policy")
    policy_digest = reader.read_nullable_int64("policy_digest")
    assignor = reader.read_nullable_string("assignor")
    assignor_digest = reader.read_nullable_int64("assignor_digest")
    if policy is None or assignor is None:
        return None
    return MemberChoices(
        policy=policy,
        assignor=assignor,
        policy_digest=policy_digest,
        assignor_digest=assignor_digest,
    )


def _rate_units(rate_per_s: float | None) -> int | None:
    if rate_per_s is None:
        return None
    if not math.isfinite(rate_per_s) or rate_per_s < 0:
        raise EncodeError(f"{_RATE}: {rate_per_s!r} is no rate")
    return round(rate_per_s * _RATE_UNITS_PER_S)
