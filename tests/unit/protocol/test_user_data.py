"""User data: ours is versioned, everything else is left alone."""

import pytest

from coopgroup.errors import EncodeError
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
    """Bytes that only begin like the magic are somebody else's."""
    assert decode_user_data(MAGIC[:cut]) is None


@pytest.mark.parametrize(
    ("delay_ms", "message"),
    [
        (-1, "remaining_delay_ms: -1 is negative"),
        (2**31, "remaining_delay_ms: 2147483648 does not fit into 4 bytes"),
    ],
)
def test_encode_when_delay_has_no_wire_form_is_refused(delay_ms: int, message: str) -> None:
    """-1 means none on the wire, so it must not come from a value."""
    with pytest.raises(EncodeError) as refused:
        encode_user_data(UserData(remaining_delay_ms=delay_ms))
    assert str(refused.value) == message
