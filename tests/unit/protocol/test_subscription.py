"""Subscription: all versions, the tolerance that peers need, and what is left out."""

import struct

import pytest

from coopgroup.errors import DecodeError, EncodeError, InvalidValueError, TrailingBytesError
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.protocol import Subscription, decode_subscription, encode_subscription
from tests.unit.protocol.contract import CodecContract
from tests.unit.protocol.reference import reference_encode

FULL = Subscription(
    topics=("orders", "payments"),
    user_data=b"\x01",
    owned=ResourceSet({"orders": [0, 2]}),
    generation=7,
    rack="rack-a",
)


class TestSubscription(CodecContract):
    """The contract, for subscriptions."""

    kind = "subscription"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Subscription(topics=FULL.topics, user_data=b"\x01", version=0)),
        (1, Subscription(topics=FULL.topics, user_data=b"\x01", owned=FULL.owned, version=1)),
        (
            2,
            Subscription(
                topics=FULL.topics,
                user_data=b"\x01",
                owned=FULL.owned,
                generation=7,
                version=2,
            ),
        ),
        (3, FULL),
    ],
)
def test_encode_when_version_lacks_fields_leaves_them_out(
    version: int, expected: Subscription
) -> None:
    """An older version carries what it can (Kafka's schema calls these fields ignorable)."""
    assert decode_subscription(encode_subscription(FULL, version)) == expected


@pytest.mark.parametrize("version", [-1, 4, 2**15])
def test_encode_when_version_is_unknown_is_refused(version: int) -> None:
    """Only what all readers know is written."""
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
    """What cannot be read back is not written."""
    with pytest.raises(EncodeError) as refused:
        encode_subscription(subscription)
    assert message in str(refused.value)


def test_topics_when_unsorted_and_repeated_are_sorted_once() -> None:
    """The value has one form, whatever order the user wrote."""
    assert Subscription(topics=("b", "a", "b")).topics == ("a", "b")


def test_connector_when_allowed_survives_the_round_trip() -> None:
    """A connector itself has index -1: groups that share connectors allow it on both sides."""
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
    """The fast paths agree with the slow reference at full size, few names or many."""
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


def test_decode_when_a_million_repeats_are_sent_points_at_the_first() -> None:
    """Finding what is wrong stays bounded however much is wrong."""
    count = 1_000_000
    content = (
        bytes.fromhex("0001 00000000 ffffffff 00000001 000161")
        + struct.pack(">i", count)
        + bytes(4 * count)
    )
    with pytest.raises(DecodeError) as refused:
        decode_subscription(content)
    assert (type(refused.value), str(refused.value)) == (
        InvalidValueError,
        "owned: index 0 of 'a' is repeated at offset 25",
    )


def test_decode_when_the_rest_is_skipped_reads_what_a_later_release_appended_to() -> None:
    """A member that says more than a leader knows must not count as one that says nothing."""
    subscription = Subscription(topics=("a",), owned=ResourceSet({"a": [0]}), generation=3)
    content = encode_subscription(subscription) + b"later"
    assert decode_subscription(content, skips_rest=True) == subscription
    with pytest.raises(TrailingBytesError):
        decode_subscription(content)
