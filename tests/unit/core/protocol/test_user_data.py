"""User data: ours has one version, foreign data is ignored."""

import math
from typing import Any

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.traits import TRAITS_RULE
from coopgroup.core.protocol.user_data import MAGIC
from coopgroup.errors import (
    EncodeError,
    InvalidValueError,
    TrailingBytesError,
    UnsupportedVersionError,
)
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
        ("rejoin_in_ms", -1, "-1 is negative"),
        ("rejoin_in_ms", 2**31, "2147483648 does not fit into 4 bytes"),
        ("loss_ends_in_ms", -1, "-1 is negative"),
        ("loss_ends_in_ms", 2**31, "2147483648 does not fit into 4 bytes"),
        ("consumption_rate_per_s", -0.001, "-0.001 is no rate"),
        ("consumption_rate_per_s", math.nan, "nan is no rate"),
        ("consumption_rate_per_s", math.inf, "inf is no rate"),
        ("consumption_rate_per_s", 1e16, "10000000000000000000 does not fit into 8 bytes"),
        ("catalogue_version", -1, "-1 is negative"),
        ("catalogue_version", 2**63, "9223372036854775808 does not fit into 8 bytes"),
        ("traits", {"a": math.nan}, f"expected {TRAITS_RULE}"),
    ],
)
def test_encode_when_a_field_has_no_wire_form_is_refused(
    field: str,
    value: Any,  # noqa: ANN401  (of any field)
    message: str,
) -> None:
    with pytest.raises(EncodeError) as refused:
        encode_user_data(UserData(**{field: value}))
    assert str(refused.value) == f"{field}: {message}"


@pytest.mark.parametrize("version", [-1, 0, 2])
def test_other_version_is_refused_even_if_the_rest_may_be_skipped(version: int) -> None:
    known = encode_user_data(UserData())
    start = len(MAGIC)
    content = MAGIC + version.to_bytes(2, "big", signed=True) + known[start + 2 :]
    for skips_rest in (False, True):
        with pytest.raises(UnsupportedVersionError) as refused:
            decode_user_data(content, skips_rest=skips_rest)
        assert refused.value.offset == start
        assert refused.value.message == f"user data version: got {version}, expected 1"


def test_decode_when_the_rest_is_skipped_reads_what_a_later_release_appended_to() -> None:
    told = UserData(rejoin_in_ms=5, warm=ResourceSet({"orders": [1]}))
    content = encode_user_data(told) + b"later"
    assert decode_user_data(content, skips_rest=True) == told
    with pytest.raises(TrailingBytesError):
        decode_user_data(content)


def test_warm_connector_is_allowed_where_the_group_has_connectors() -> None:
    told = UserData(warm=ResourceSet({"c": [-1]}))
    content = encode_user_data(told, index_min=-1)
    assert decode_user_data(content, index_min=-1) == told
    with pytest.raises(EncodeError, match=r"^warm: index -1 is less than 0$"):
        encode_user_data(told)
    with pytest.raises(InvalidValueError):
        decode_user_data(content)
