"""User data of Kafka's sticky assignors."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.errors import EncodeError
from coopgroup.protocol import (
    StickyUserData,
    UserData,
    decode_cooperative_generation,
    decode_sticky_user_data,
    decode_user_data,
    encode_cooperative_generation,
    encode_sticky_user_data,
    has_signature,
    with_signature,
)

_VECTORS = Path(__file__).parents[4] / "protocol" / "vectors" / "java_user_data.json"
HELD = ResourceSet({"orders": [0, 3], "payments": [1]})


def java(name: str) -> bytes:
    """Return the bytes that an assignor of Kafka's Java client wrote."""
    rows = json.loads(_VECTORS.read_text())["vectors"]
    return next(bytes.fromhex(row["hex"]) for row in rows if row["name"] == name)


def test_decode_when_java_wrote_it_finds_what_was_held() -> None:
    assert decode_sticky_user_data(java("java-sticky")) == StickyUserData(
        previous=HELD, generation=42
    )


def test_decode_when_version_is_0_knows_no_generation() -> None:
    """Before version 1 the bytes ended after the array."""
    content = encode_sticky_user_data(StickyUserData(previous=HELD, generation=42))[:-4]
    assert decode_sticky_user_data(content) == StickyUserData(previous=HELD)


@pytest.mark.parametrize(
    "content", [None, b"", b"cwud\x00\x01\xff\xff\xff\xff", java("java-cooperative-sticky")]
)
def test_decode_when_it_is_something_else_finds_nothing(content: bytes | None) -> None:
    """Our own data, a bare generation (sarama PR 2608 panicked at it), or no data at all."""
    assert decode_sticky_user_data(content) == StickyUserData()


@given(st.binary(max_size=40))
def test_decode_never_raises(content: bytes) -> None:
    """A member with invalid user data only loses its stickiness."""
    assert decode_sticky_user_data(content).generation >= -1
    assert decode_cooperative_generation(content) >= -1


@pytest.mark.parametrize(
    ("content", "generation"),
    [
        (java("java-cooperative-sticky"), 42),
        (java("java-cooperative-sticky-new"), -1),
        # bytes that librdkafka and franz-go write for cooperative-sticky
        (java("java-sticky"), 42),
        (encode_sticky_user_data(StickyUserData(generation=7)), 7),
        (with_signature(encode_cooperative_generation(7)), 7),
        (with_signature(b""), -1),
        (None, -1),
        (b"", -1),
        (b"\x80\x00\x00\x00", -1),
    ],
)
def test_cooperative_generation_is_found_in_each_form(
    content: bytes | None, generation: int
) -> None:
    """Kafka's Java client would take the count of librdkafka's array for the generation."""
    assert decode_cooperative_generation(content) == generation


def test_cooperative_generation_is_written_as_java_does() -> None:
    assert encode_cooperative_generation(42) == java("java-cooperative-sticky")
    assert encode_cooperative_generation(-1) == java("java-cooperative-sticky-new")


def test_encode_when_generation_does_not_fit_is_refused() -> None:
    with pytest.raises(EncodeError, match="generation"):
        encode_sticky_user_data(StickyUserData(previous=EMPTY, generation=2**31))


def test_mark_is_passed_over_by_whoever_reads_what_stands_before_it() -> None:
    told = StickyUserData(previous=HELD, generation=42)
    marked = with_signature(encode_sticky_user_data(told))
    assert decode_sticky_user_data(marked) == told
    assert has_signature(marked)
    # Fixed: members of two releases know each other, also if the user data has more fields.
    assert with_signature(b"").hex() == "637775640001" + 60 * "f" + 16 * "0" + "ffff"
    assert decode_user_data(with_signature(b"")) == UserData()
    assert not any(map(has_signature, (None, b"", encode_sticky_user_data(told))))
