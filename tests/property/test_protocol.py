"""Embedded messages: round trips of any value, and arbitrary bytes."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coopgroup.core.model.traits import traits_text
from coopgroup.core.protocol.user_data import MAGIC
from coopgroup.errors import DecodeError
from coopgroup.protocol import (
    ASSIGNMENT_VERSION,
    KAFKA_ASSIGNMENT_NEWEST,
    SUBSCRIPTION_NEWEST,
    USER_DATA_VERSION,
    Assignment,
    KafkaAssignment,
    Subscription,
    UserData,
)
from tests.unit.core.protocol.reference import Row, load_vectors, reference_decode, reference_encode
from tests.unit.core.protocol.rows import DECODERS, Value, ascending, encode, value_of

KINDS = sorted(DECODERS)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
indices = st.lists(st.integers(0, 2**31 - 1), max_size=8, unique=True)
resources = st.dictionaries(names, indices, max_size=6)
hexes = st.none() | st.binary(max_size=20).map(bytes.hex)

SUBSCRIPTION_ROWS = st.fixed_dictionaries(
    {
        "version": st.integers(0, SUBSCRIPTION_NEWEST),
        "topics": st.lists(names, max_size=6, unique=True),
        "user_data_hex": hexes,
        "owned": resources,
        "generation": st.integers(-1, 2**31 - 1),
        "rack": st.none() | names,
    }
)
times = st.none() | st.integers(0, 2**31 - 1)
numbers = st.none() | st.integers(0, 2**63 - 1)
ASSIGNMENT_ROWS = st.fixed_dictionaries(
    {
        "version": st.just(ASSIGNMENT_VERSION),
        "assigned": resources,
        "revoked": st.none() | resources,
        "rejoin_in_ms": times,
        "loss_ends_in_ms": times,
        "warmups": resources,
        "topics_digest": numbers,
        "shared_digest": numbers,
    }
)
KAFKA_ASSIGNMENT_ROWS = st.fixed_dictionaries(
    {
        "version": st.integers(0, KAFKA_ASSIGNMENT_NEWEST),
        "assigned": resources,
        "user_data_hex": hexes,
    }
)
TRAITS = st.dictionaries(
    names,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda parts: st.lists(parts, max_size=2) | st.dictionaries(names, parts, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)
NO_CHOICES: Row = dict.fromkeys(("policy", "policy_digest", "assignor", "assignor_digest"))
CHOICES = st.just(NO_CHOICES) | st.fixed_dictionaries(
    {"policy": names, "policy_digest": numbers, "assignor": names, "assignor_digest": numbers}
)
_USER_DATA: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "version": st.just(USER_DATA_VERSION),
        "rejoin_in_ms": times,
        "loss_ends_in_ms": times,
        "consumption_rate": st.none() | st.integers(0, 2**52),
        "catalogue_version": numbers,
        "warm": st.none() | resources,
        "host": st.none() | names,
        "declined": resources,
        "hands_over": st.integers(0, 1),
        "traits": st.none() | TRAITS.filter(bool).map(traits_text),
        "declined_warmups": resources,
    }
)
USER_DATA_ROWS = st.builds(lambda row, choices: {**row, **choices}, _USER_DATA, CHOICES)
ROWS = st.one_of(
    st.tuples(st.just("subscription"), SUBSCRIPTION_ROWS),
    st.tuples(st.just("assignment"), ASSIGNMENT_ROWS),
    st.tuples(st.just("kafka_assignment"), KAFKA_ASSIGNMENT_ROWS),
    st.tuples(st.just("user_data"), USER_DATA_ROWS),
)
VECTORS = load_vectors()


@st.composite
def damaged_contents(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a golden vector with some of its bytes replaced, removed or added."""
    vector = draw(st.sampled_from(VECTORS))
    content = bytearray(vector.content)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        removed = draw(st.integers(0, 4))
        inserted = draw(st.binary(max_size=4) | st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff"]))
        content[start : start + removed] = inserted
    return vector.kind, bytes(content)


def decoded_or_refused(kind: str, content: bytes) -> Value | None:
    """Return the decoded value, or None after a named error with a plausible offset."""
    try:
        return DECODERS[kind](content)
    except DecodeError as error:
        refused = error
    assert 0 <= refused.offset <= len(content)
    assert str(refused) == f"{refused.message} at offset {refused.offset}"
    return None


def written_version(value: Value) -> int:
    """Return the version in which a decoded value can be written again."""
    match value:
        case Subscription():
            return min(value.version, SUBSCRIPTION_NEWEST)
        case KafkaAssignment():
            return min(value.version, KAFKA_ASSIGNMENT_NEWEST)
        case Assignment() | UserData():
            return 1


@given(ROWS)
def test_value_when_written_is_what_the_schema_says_and_reads_back(
    kind_and_row: tuple[str, Row],
) -> None:
    """Our codec and the slow reference agree, byte by byte and in both directions."""
    kind, row = kind_and_row
    value = value_of(kind, row)
    without_empty_names = _without_empty_names(row)
    content = encode(value, row["version"])
    assert content == reference_encode(kind, ascending(without_empty_names))
    _, used = reference_decode(kind, content)
    assert used == len(content)
    assert DECODERS[kind](content) == value_of(kind, _as_read(kind, without_empty_names))


@given(ROWS)
def test_bytes_when_in_another_order_say_the_same(kind_and_row: tuple[str, Row]) -> None:
    """Other clients sort differently or not at all, and write names without partitions."""
    kind, row = kind_and_row
    content = reference_encode(kind, row)
    assert DECODERS[kind](content) == value_of(kind, _as_read(kind, row))


@given(st.tuples(st.sampled_from(KINDS), st.binary(max_size=200)) | damaged_contents())
@example(("user_data", MAGIC))
@example(("subscription", b"\x00\x01" + b"\x00" * 8))
def test_bytes_when_arbitrary_or_damaged_are_read_or_refused(
    kind_and_content: tuple[str, bytes],
) -> None:
    """The result for any bytes of a peer is a value or a named error."""
    kind, content = kind_and_content
    value = decoded_or_refused(kind, content)
    if value is not None:
        again = DECODERS[kind](encode(value, written_version(value)))
        assert again is not None
        assert _without_version(again) == _without_version(value)


@given(
    st.sampled_from(["subscription", "kafka_assignment"]),
    st.data(),
    st.integers(4, 2**15 - 1),
    st.binary(max_size=30),
)
def test_bytes_when_of_a_newer_version_are_read_by_their_prefix(
    kind: str, draws: st.DataObject, version: int, appended: bytes
) -> None:
    """A version only appends fields, so the known fields stay readable."""
    rows = SUBSCRIPTION_ROWS if kind == "subscription" else KAFKA_ASSIGNMENT_ROWS
    row: Row = {**draws.draw(rows), "version": version}
    content = reference_encode(kind, row) + appended
    assert DECODERS[kind](content) == value_of(kind, row)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("assignment", ASSIGNMENT_ROWS),
        ("user_data", USER_DATA_ROWS),
        ("subscription", SUBSCRIPTION_ROWS.map(lambda row: {**row, "version": 3})),
    ],
)
@given(draws=st.data(), appended=st.binary(min_size=1, max_size=8))
def test_bytes_when_a_known_version_goes_on_are_refused(
    kind: str, rows: st.SearchStrategy[Row], draws: st.DataObject, appended: bytes
) -> None:
    assert decoded_or_refused(kind, reference_encode(kind, draws.draw(rows)) + appended) is None


def _without_version(value: Value) -> dict[str, Any]:
    fields = attrs.asdict(value, recurse=False)
    return {name: content for name, content in fields.items() if name != "version"}


def _without_empty_names(row: Row) -> Row:
    return {
        field: {name: items for name, items in value.items() if items}
        if isinstance(value, dict)
        else value
        for field, value in row.items()
    }


def _as_read(kind: str, row: Row) -> Row:
    """Return the row without the fields that its version lacks."""
    if kind != "subscription":
        return row
    version = row["version"]
    return {
        **row,
        "owned": row["owned"] if version >= 1 else {},
        "generation": row["generation"] if version >= 2 else -1,
        "rack": row["rack"] if version >= 3 else None,
    }
