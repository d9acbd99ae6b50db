"""User data: ours is versioned, foreign data is ignored."""

import math
from typing import Any

import pytest
from attrs import evolve

from coopgroup.core.model import NO_LOSS, ResourceSet
from coopgroup.core.protocol.user_data import MAGIC
from coopgroup.errors import EncodeError, InvalidValueError
from coopgroup.protocol import UserData, decode_user_data, encode_user_data
from tests.unit.core.protocol.contract import CodecContract


class TestUserData(CodecContract):
    kind = "user_data"


@pytest.mark.parametrize("cut", range(len(MAGIC)))
def test_decode_when_magic_is_incomplete_is_foreign(cut: int) -> None:
    assert decode_user_data(MAGIC[:cut]) is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("remaining_delay_ms", -1, "-1 is negative"),
        ("remaining_delay_ms", 2**31, "2147483648 does not fit into 4 bytes"),
        ("remaining_loss_ms", -2, "-2 is negative"),
        ("remaining_loss_ms", 2**31, "2147483648 does not fit into 4 bytes"),
        ("consumption_rate_per_s", -0.001, "-0.001 is no rate"),
        ("consumption_rate_per_s", math.nan, "nan is no rate"),
        ("consumption_rate_per_s", math.inf, "inf is no rate"),
        ("consumption_rate_per_s", 1e16, "10000000000000000000 does not fit into 8 bytes"),
        ("catalogue_version", -1, "-1 is negative"),
        ("catalogue_version", 2**63, "9223372036854775808 does not fit into 8 bytes"),
    ],
)
def test_encode_when_a_field_has_no_wire_form_is_refused(
    field: str,
    value: Any,  # noqa: ANN401  (a number)
    message: str,
) -> None:
    with pytest.raises(EncodeError) as refused:
        encode_user_data(UserData(**{field: value}))
    assert str(refused.value) == f"{field}: {message}"


DELAYED = UserData(remaining_delay_ms=900)
RATE = UserData(consumption_rate_per_s=2.5)
CATALOGUE = UserData(catalogue_version=7)


@pytest.mark.parametrize(
    ("version", "newer", "older"),
    [
        (2, evolve(DELAYED, remaining_loss_ms=NO_LOSS), DELAYED),
        (2, evolve(DELAYED, remaining_loss_ms=30_000), DELAYED),
        (3, evolve(DELAYED, consumption_rate_per_s=2.5), evolve(DELAYED, remaining_loss_ms=900)),
        (4, evolve(RATE, catalogue_version=7), RATE),
        (5, evolve(CATALOGUE, warm=ResourceSet({"orders": [1]})), CATALOGUE),
    ],
    ids=["no loss", "a loss", "only one wait: both times say so", "a catalogue", "warm resources"],
)
def test_leader_of_the_version_before_finds_all_that_it_knows(
    version: int, newer: UserData, older: UserData
) -> None:
    """It skips the fields that are new in a version."""
    content, before = encode_user_data(newer), encode_user_data(older)
    end = len(MAGIC) + 2
    assert content[:end] == MAGIC + version.to_bytes(2, "big")
    assert content[end:].startswith(before[end:])


def test_warm_connector_is_allowed_where_the_group_has_connectors() -> None:
    told = UserData(warm=ResourceSet({"c": [-1]}))
    content = encode_user_data(told, index_min=-1)
    assert decode_user_data(content, index_min=-1) == told
    with pytest.raises(EncodeError, match=r"^warm: index -1 is less than 0$"):
        encode_user_data(told)
    with pytest.raises(InvalidValueError):
        decode_user_data(content)
