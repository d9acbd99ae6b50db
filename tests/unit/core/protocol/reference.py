"""A second, slow codec that uses only the schemas in `protocol/`, and the golden vectors.

It shares no code with `coopgroup.protocol`. Values are the JSON rows of `coopgroup protocol`: field
names in snake case, bytes as hex under a name that ends in `_hex`, arrays of resources as objects.
"""

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[4] / "protocol"
MAGIC = {"user_data": bytes.fromhex("63777564")}
OURS = {"assignment", "user_data"}
"""Messages in which a number of -1 says that there is none."""
SCHEMAS = {
    "subscription": "Subscription",
    "assignment": "Assignment",
    "kafka_assignment": "KafkaAssignment",
    "user_data": "UserData",
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Vector:
    """One golden vector.

    Attributes:
        kind: key of SCHEMAS.
        name: unique within its kind.
        value: decoded content of the bytes; None for foreign user data.
        canonical: whether our encoder writes exactly these bytes for that value.
    """

    kind: str
    name: str
    value: Row | None
    content: bytes
    canonical: bool

    @property
    def version(self) -> int:
        assert self.value is not None
        return int(self.value["version"])

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"


@dataclass(frozen=True)
class Length:
    """Offset of a length or count, its `struct` format, and whether -1 means null."""

    offset: int
    form: str
    nullable: bool


@dataclass(frozen=True)
class Malformed:
    """One golden error: bytes, the error class that refuses them, and the offset in its message."""

    kind: str
    name: str
    content: bytes
    error: str
    offset: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"


def load_schema(kind: str) -> Row:
    schema: Row = json.loads((FOLDER / f"{SCHEMAS[kind]}.json").read_text())
    return schema


def load_vectors(pattern: str = "*.json") -> list[Vector]:
    return [
        Vector(
            row["kind"],
            row["name"],
            row["value"],
            bytes.fromhex(row["hex"]),
            row.get("canonical", True),
        )
        for path in sorted((FOLDER / "vectors").glob(pattern))
        if path.name != "malformed.json"
        for row in json.loads(path.read_text())["vectors"]
    ]


def load_malformed() -> list[Malformed]:
    rows = json.loads((FOLDER / "vectors" / "malformed.json").read_text())["vectors"]
    return [
        Malformed(row["kind"], row["name"], bytes.fromhex(row["hex"]), row["error"], row["offset"])
        for row in rows
    ]


def reference_encode(kind: str, row: Row) -> bytes:
    """Write a row as its schema says, resources in the order of the row."""
    version = row["version"]
    parts = [MAGIC.get(kind, b""), struct.pack(">h", version)]
    for field in load_schema(kind)["fields"]:
        if _in(field["versions"], version):
            parts += [_encoded(field, row[_row_name(field)], version)]
    return b"".join(parts)


def reference_decode(
    kind: str, content: bytes, lengths: list[Length] | None = None
) -> tuple[Row, int]:
    """Read a row as its schema says.

    Args:
        kind: key of SCHEMAS.
        content: valid bytes; trailing bytes are ignored.
        lengths: receives every length and count that was read.

    Returns:
        The row, and the number of bytes read.
    """
    met = [] if lengths is None else lengths
    offset = len(MAGIC.get(kind, b""))
    (version,) = struct.unpack_from(">h", content, offset)
    offset += 2
    row: Row = {"version": version}
    for field in load_schema(kind)["fields"]:
        ends_early = offset == len(content) and _may_be_absent(kind, version, field["name"])
        if _in(field["versions"], version) and not ends_early:
            row[_row_name(field)], offset = _decoded(field, content, offset, met)
            if row[_row_name(field)] == -1 and kind in OURS:
                row[_row_name(field)] = None
        else:
            lacks_nothing = "fields" in field and "nullableVersions" not in field
            row[_row_name(field)] = {} if lacks_nothing else None
    return row, offset


def _may_be_absent(kind: str, version: int, field: str) -> bool:
    """Return whether a message may end before a field, as that of some clients or releases does."""
    return (kind, version, field) in {
        ("subscription", 1, "Owned"),
        ("user_data", 1, "DeclinedWarmups"),
        ("user_data", 1, "Policy"),
        ("user_data", 1, "PolicyDigest"),
        ("user_data", 1, "Assignor"),
        ("user_data", 1, "AssignorDigest"),
    }


def _row_name(field: Row) -> str:
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower()
    return f"{snake}_hex" if field["type"] == "bytes" else snake


def _in(versions: str, version: int) -> bool:
    first, _, last = versions.rstrip("+").partition("-")
    return version >= int(first) and (versions.endswith("+") or version <= int(last or first))


def _encoded(field: Row, value: Any, version: int) -> bytes:  # noqa: ANN401 - any field of any row
    kind = field["type"]
    if kind in {"int32", "int64"}:
        number = int(field["default"]) if value is None else value
        return struct.pack(">i" if kind == "int32" else ">q", number)
    if value is None:
        assert _in(field["nullableVersions"], version)
        return struct.pack(">h" if kind == "string" else ">i", -1)
    match kind:
        case "string":
            raw: bytes = value.encode()
            return struct.pack(">h", len(raw)) + raw
        case "bytes":
            raw = bytes.fromhex(value)
            return struct.pack(">i", len(raw)) + raw
        case "[]string" | "[]int32":
            items = [_encoded({"type": kind[2:]}, item, version) for item in value]
        case _:
            name, numbers = field["fields"]
            items = [
                _encoded(name, key, version) + _encoded(numbers, indices, version)
                for key, indices in value.items()
            ]
    return struct.pack(">i", len(items)) + b"".join(items)


def _decoded(field: Row, content: bytes, offset: int, lengths: list[Length]) -> tuple[Any, int]:
    kind = field["type"]
    if kind == "int64":
        return struct.unpack_from(">q", content, offset)[0], offset + 8
    form = ">h" if kind == "string" else ">i"
    (number,) = struct.unpack_from(form, content, offset)
    if kind == "int32":
        return number, offset + 4
    lengths.append(Length(offset, form, "nullableVersions" in field))
    offset += struct.calcsize(form)
    if number < 0:
        return None, offset
    if kind in {"string", "bytes"}:
        raw = content[offset : offset + number]
        return raw.decode() if kind == "string" else raw.hex(), offset + number
    items: list[Any] = []
    for _ in range(number):
        item: Any
        if "fields" in field:
            name, offset = _decoded(field["fields"][0], content, offset, lengths)
            indices, offset = _decoded(field["fields"][1], content, offset, lengths)
            item = (name, indices)
        else:
            item, offset = _decoded({"type": kind[2:]}, content, offset, lengths)
        items.append(item)
    return (dict(items) if "fields" in field else items), offset
