"""User data: ours is versioned, foreign data is ignored."""

import math

import pytest

from coopgroup.errors import EncodeError
from coopgroup.model import NO_LOSS
from coopgroup.protocol import UserData, decode_user_data, encode_user_data
from coopgroup.protocol.user_data import MAGIC
from tests.unit.protocol.contract import CodecContract


class TestUserData(CodecContract):
    """The contract, for user data."""

    kind = "user_data"


def test_decode_when_absent_is_none() -> None:
    """A subscription without user data knows of no delay."""
    assert decode_user_data(None) is None


@pytest.mark.parametrize("cut", range(len(MAGIC)))
def test_decode_when_magic_is_incomplete_is_foreign(cut: int) -> None:
    """Bytes with only the begin of the magic are foreign."""
    assert decode_user_data(MAGIC[:cut]) is None


@pytest.mark.parametrize(
    ("user_data", "message"),
    [
        (UserData(remaining_delay_ms=-1), "remaining_delay_ms: -1 is negative"),
        (
            UserData(remaining_delay_ms=2**31),
            "remaining_delay_ms: 2147483648 does not fit into 4 bytes",
        ),
        (UserData(remaining_loss_ms=-2), "remaining_loss_ms: -2 is negative"),
        (
            UserData(remaining_loss_ms=2**31),
            "remaining_loss_ms: 2147483648 does not fit into 4 bytes",
        ),
        (
            UserData(consumption_rate_per_s=-0.001),
            "consumption_rate_per_s: -0.001 is no rate",
        ),
        (
            UserData(consumption_rate_per_s=math.nan),
            "consumption_rate_per_s: nan is no rate",
        ),
        (
            UserData(consumption_rate_per_s=math.inf),
            "consumption_rate_per_s: inf is no rate",
        ),
        (
            UserData(consumption_rate_per_s=1e16),
            "consumption_rate_per_s: 10000000000000000000 does not fit into 8 bytes",
        ),
        (UserData(catalogue_version=-1), "catalogue_version: -1 is negative"),
        (
            UserData(catalogue_version=2**63),
            "catalogue_version: 9223372036854775808 does not fit into 8 bytes",
        ),
    ],
)
def test_encode_when_a_time_has_no_wire_form_is_refused(user_data: UserData, message: str) -> None:
    """A delay of -1 means none on the wire, so a value must not contain it."""
    with pytest.raises(EncodeError) as refused:
        encode_user_data(user_data)
    assert str(refused.value) == message


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
