"""User data: ours is versioned, foreign data is ignored."""

import math
from typing import Any

import pytest

from coopgroup.errors import EncodeError, InvalidValueError
from coopgroup.model import NO_LOSS, ResourceSet
from coopgroup.protocol import UserData, decode_user_data, encode_user_data
from coopgroup.protocol.user_data import MAGIC
from tests.unit.protocol.contract import CodecContract


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


@pytest.mark.parametrize("loss_ms", [NO_LOSS, 30_000])
def test_version_1_when_it_reads_what_version_2_says_finds_the_delay(loss_ms: int) -> None:
    """A leader that knows only version 1 skips the new fields and uses the delay."""
    newer = encode_user_data(UserData(remaining_delay_ms=900, remaining_loss_ms=loss_ms))
    older = encode_user_data(UserData(remaining_delay_ms=900))
    version = slice(len(MAGIC), len(MAGIC) + 2)
    assert (newer[version], older[version]) == (b"\0\2", b"\0\1")
    assert newer[version.stop :].startswith(older[version.stop :])


@pytest.mark.parametrize("loss_ms", [None, NO_LOSS, 30_000])
def test_version_2_when_it_reads_what_version_3_says_finds_both_times(loss_ms: int | None) -> None:
    """A leader that knows no rates skips them. If only one wait runs, both times say so."""
    newer = encode_user_data(
        UserData(remaining_delay_ms=900, remaining_loss_ms=loss_ms, consumption_rate_per_s=2.5)
    )
    older = encode_user_data(
        UserData(remaining_delay_ms=900, remaining_loss_ms=900 if loss_ms is None else loss_ms)
    )
    version = slice(len(MAGIC), len(MAGIC) + 2)
    assert (newer[version], older[version]) == (b"\0\3", b"\0\2")
    assert newer[version.stop :].startswith(older[version.stop :])


def test_version_3_when_it_reads_what_version_4_says_finds_all_before_it() -> None:
    """A leader that knows no catalogues skips the version of the catalogue."""
    newer = encode_user_data(UserData(consumption_rate_per_s=2.5, catalogue_version=7))
    older = encode_user_data(UserData(consumption_rate_per_s=2.5))
    assert newer[len(MAGIC) + 2 :].startswith(older[len(MAGIC) + 2 :])


def test_version_4_when_it_reads_what_version_5_says_finds_all_before_it() -> None:
    """A leader that knows no warm-ups skips the warm resources."""
    newer = encode_user_data(UserData(catalogue_version=7, warm=ResourceSet({"orders": [1]})))
    older = encode_user_data(UserData(catalogue_version=7))
    assert newer[len(MAGIC) + 2 :].startswith(older[len(MAGIC) + 2 :])


def test_warm_connector_is_allowed_where_the_group_has_connectors() -> None:
    told = UserData(warm=ResourceSet({"c": [-1]}))
    content = encode_user_data(told, index_min=-1)
    assert decode_user_data(content, index_min=-1) == told
    with pytest.raises(EncodeError, match=r"^warm: index -1 is less than 0$"):
        encode_user_data(told)
    with pytest.raises(InvalidValueError):
        decode_user_data(content)
