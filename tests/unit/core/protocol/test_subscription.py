"""Subscription: all versions, the tolerance that peers need, and omitted fields."""

from itertools import product
from typing import Any

import attrs
import pytest

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.protocol import subscription as module
from coopgroup.core.protocol.reader import NAMES_MAX
from coopgroup.core.protocol.resource_array import packed_resources
from coopgroup.core.protocol.subscription import SUBSCRIPTION_BYTES_MAX, read_subscription
from coopgroup.errors import (
    DecodeError,
    EncodeError,
    InvalidCountError,
    InvalidValueError,
    TrailingBytesError,
)
from coopgroup.protocol import (
    Subscription,
    decode_subscription,
    encode_subscription,
)
from tests.unit.core.protocol.contract import CodecContract
from tests.unit.core.protocol.reference import reference_encode

FULL = Subscription(
    topics=("orders", "payments"),
    user_data=b"\x01",
    owned=ResourceSet({"orders": [0, 2]}),
    generation=7,
    rack="rack-a",
)


class TestSubscription(CodecContract):
    kind = "subscription"


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        (0, {"owned": EMPTY, "generation": -1, "rack": None}),
        (1, {"generation": -1, "rack": None}),
        (2, {"rack": None}),
        (3, {}),
    ],
)
def test_encode_when_version_lacks_fields_leaves_them_out(
    version: int, lacks: dict[str, Any]
) -> None:
    """An older version carries its own fields (Kafka's schema calls the others ignorable)."""
    expected = attrs.evolve(FULL, version=version, **lacks)
    assert decode_subscription(encode_subscription(FULL, version)) == expected


@pytest.mark.parametrize("version", [-1, 4, 2**15])
def test_encode_when_version_is_unknown_is_refused(version: int) -> None:
    with pytest.raises(EncodeError, match=f"^version: got {version}, expected 0 to 3$"):
        encode_subscription(FULL, version)


@pytest.mark.parametrize(
    ("subscription", "message"),
    [
        (Subscription(topics=("\ud800",)), r"topics: '\ud800' has no UTF-8 form"),
        (Subscription(topics=("a" * 2**15,)), "topics: 32768 bytes, expected 32767 at most"),
        (Subscription(topics=(), rack="\udfff"), r"rack: '\udfff' has no UTF-8 form"),
        (Subscription(topics=(), generation=2**31), "generation: 2147483648 does not fit"),
        (Subscription(topics=(), owned=ResourceSet({"a": [-1]})), "owned: index -1 is less than 0"),
        (Subscription(topics=(), owned=ResourceSet({"\ud800": [0]})), "has no UTF-8 form"),
    ],
)
def test_encode_when_value_has_no_wire_form_is_refused(
    subscription: Subscription, message: str
) -> None:
    with pytest.raises(EncodeError) as refused:
        encode_subscription(subscription)
    assert message in str(refused.value)


def test_connector_when_allowed_survives_the_round_trip() -> None:
    owned = ResourceSet({"connector": [-1, 0]})
    content = encode_subscription(Subscription(topics=(), owned=owned), index_min=-1)
    assert decode_subscription(content, index_min=-1).owned == owned
    with pytest.raises(InvalidValueError) as refused:
        decode_subscription(content)
    assert (refused.value.message, refused.value.offset) == (
        "owned: index -1 of 'connector' is less than 0",
        29,
    )


def test_v1_when_user_data_ends_it_owns_nothing() -> None:
    """Clients that say v1 and write v0 stay readable (franz-go issue 493)."""
    assert decode_subscription(bytes.fromhex("0001 00000001 000161 ffffffff")) == Subscription(
        topics=("a",), owned=EMPTY, version=1
    )


@pytest.mark.parametrize("per_topic", [1, 7, 1_000, 100_000])
def test_decode_when_100_000_are_owned_reads_what_the_schema_says(per_topic: int) -> None:
    owned = {
        f"topic-{number:06d}": list(range(number, number + per_topic))
        for number in range(100_000 // per_topic)
    }
    row = {
        "version": 3,
        "topics": list(owned),
        "user_data_hex": None,
        "owned": owned,
        "generation": 1,
        "rack": None,
    }
    content = reference_encode("subscription", row)
    subscription = Subscription(topics=tuple(owned), owned=ResourceSet(owned), generation=1)
    assert decode_subscription(content) == subscription
    assert encode_subscription(subscription) == content


def test_decode_when_the_rest_is_skipped_reads_what_a_later_release_appended_to() -> None:
    """Otherwise a member of a later release would count as one with an empty subscription."""
    subscription = Subscription(topics=("a",), owned=ResourceSet({"a": [0]}), generation=3)
    content = encode_subscription(subscription) + b"later"
    assert decode_subscription(content, skips_rest=True) == subscription
    with pytest.raises(TrailingBytesError):
        decode_subscription(content)


def _read(content: bytes, index_min: int = 0) -> tuple[Subscription, bytes | None]:
    return read_subscription(content, index_min=index_min, skips_rest=False)


def test_read_when_the_same_was_read_lately_gives_the_same_values() -> None:
    content = encode_subscription(FULL)
    later = encode_subscription(attrs.evolve(FULL, user_data=None, generation=8, rack=None))
    (first, wire), (second, wire_later) = _read(content), _read(later)
    assert first == FULL
    assert second == attrs.evolve(FULL, user_data=None, generation=8, rack=None)
    assert second.topics is first.topics
    assert second.owned is first.owned
    assert wire == wire_later == packed_resources(FULL.owned, "owned", index_min=0)


def test_read_when_racks_mislead_the_guess_reads_what_is_there(subtests: pytest.Subtests) -> None:
    """The end of the owned part is only guessed. A wrong guess must not change the value."""
    for rack, version in product(
        ["", "a", "a\x00\x01b", "\x00\x00", "z" * 100, "\u00e4"], [1, 2, 3]
    ):
        with subtests.test(rack=rack, version=version):
            subscription = attrs.evolve(FULL, rack=rack)
            content = encode_subscription(subscription, version)
            expected = decode_subscription(encode_subscription(subscription, version))
            assert expected.rack == (rack if version >= 3 else None)
            assert _read(content)[0] == _read(content)[0] == expected
            assert expected.owned == FULL.owned


@pytest.mark.parametrize("entries", [b"\x00\x01b\x00\x00\x00\x00", b""])
def test_read_when_an_array_is_not_as_we_write_it_has_no_wire_form(entries: bytes) -> None:
    """Other clients order names differently, or write a name without indices."""
    a = b"\x00\x01a\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x01"
    array = (2 if entries else 1).to_bytes(4, "big") + a + entries
    content = b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff" + array
    for _ in range(2):
        subscription, wire = _read(content)
        assert (subscription.owned, wire) == (ResourceSet({"a": [1, 2]}), None)


def test_read_when_a_connector_was_read_lately_still_refuses_it_among_partitions() -> None:
    """Another group of the same process may forbid connectors."""
    connector = Subscription(topics=("a",), owned=ResourceSet({"a": [-1]}))
    content = encode_subscription(connector, index_min=-1)
    assert _read(content, index_min=-1)[0] == connector
    with pytest.raises(InvalidValueError, match="is less than 0"):
        _read(content)


def test_decode_when_cut_short_after_it_was_read_still_fails() -> None:
    content = encode_subscription(FULL)
    decode_subscription(content)
    for end in range(len(content)):
        with pytest.raises(DecodeError):
            decode_subscription(content[:end])


def test_decode_when_many_lists_begin_alike_tells_them_apart() -> None:
    lists = [("a" * 80, f"b{number}") for number in range(20)]
    for topics in lists * 2:
        assert (
            decode_subscription(encode_subscription(Subscription(topics=topics))).topics == topics
        )


def test_decode_when_a_member_owns_a_million_partitions_reads_them() -> None:
    """A group shares up to a million; its first member may own all of them for a while."""
    alone = attrs.evolve(FULL, owned=ResourceSet({"orders": range(1_000_000)}))
    assert decode_subscription(encode_subscription(alone)) == alone


def test_decode_when_too_large_refuses_before_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = Subscription(topics=("a",), user_data=bytes(SUBSCRIPTION_BYTES_MAX))
    content = encode_subscription(huge)
    monkeypatch.setattr(module, "ByteReader", None)
    with pytest.raises(InvalidCountError, match=r"^subscription: \d+ bytes, expected 5242880 at"):
        decode_subscription(content)


@pytest.mark.parametrize("field", ["topics", "owned"])
def test_decode_when_there_are_too_many_names_refuses_before_it_reads_them(field: str) -> None:
    """The names themselves are damaged: reading them would raise another error."""
    array = (NAMES_MAX + 1).to_bytes(4, "big") + b"\xff" * 8 * NAMES_MAX
    before = b"" if field == "topics" else b"\0\0\0\0" + b"\xff" * 4
    with pytest.raises(InvalidCountError, match=rf"^{field}: 131073 names, expected 131072 at"):
        decode_subscription(b"\0\1" + before + array)
