"""Convert records to JSON objects and back, in one versioned schema.

The envelope of a record has its time, group, member and generation:

    {"schema": 1, "at_ms": 1730000000000, "group": "orders", "member": "m-1", "generation": 7,
     "client": "orders-1", "kind": "resources_stopped", "resources": {"orders": [3]}, ...}

`schema` increases if a reader of the old version would misread the new one. An added field does not
increase it: readers skip unknown fields and use defaults for missing ones.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, get_args

import attrs
from attrs import frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.telemetry import records
from coopgroup.core.telemetry.records import EndCause, Record, StopReason
from coopgroup.errors import ConfigurationError

SCHEMA_VERSION: Final = 1
# Arithmetic with a longer number of a hostile writer would fail long after it was read.
_INT_END: Final = 2**63
RESOURCES_MAX: Final = 2**20
"""Limit of the resources in one field of a record: a group shares up to a million."""


@frozen(kw_only=True)
class Envelope:
    """A record with its time and its writer.

    Attributes:
        at_ms: time on the writer's clock: ms since 1970 on Kafka, virtual ms in the simulator.
        member: member id of the writer; "" before it has one.
        generation: the writer's generation; -1 for none.
        client: name of the process, which stays the same when it restarts with another member id;
            that of a consumer is its `client.id`. "" if unknown.
    """

    at_ms: int
    group: str
    member: str
    generation: int
    record: Record
    client: str = ""


def _kind(record_class: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", record_class.__name__).lower()


_ITEM_OF_TUPLE: Final[Mapping[object, type]] = types.MappingProxyType(
    {tuple[str, ...]: str, tuple[int, ...]: int}
)
CLASS_OF_KIND: Final[Mapping[str, type]] = types.MappingProxyType(
    {_kind(record_class): record_class for record_class in get_args(Record)}
)
REPORT: Final = _kind(records.MemberReported)
"""The kind of record that says how a member is, and not what happened."""


def to_json(envelope: Envelope) -> dict[str, Any]:
    """Convert an envelope to an object for `json.dumps`, with keys in a fixed order."""
    record = envelope.record
    return {
        "schema": SCHEMA_VERSION,
        "at_ms": envelope.at_ms,
        "group": envelope.group,
        "member": envelope.member,
        "generation": envelope.generation,
        "client": envelope.client,
        "kind": _kind(type(record)),
        **{field.name: _plain(getattr(record, field.name)) for field in attrs.fields(type(record))},
    }


def from_json(row: Mapping[str, Any]) -> Envelope:
    """Read an object that `to_json` wrote.

    Args:
        row: the object; fields unknown to this version are skipped.

    Raises:
        ConfigurationError: a field is missing or has an invalid value.
    """
    if row.get("schema") != SCHEMA_VERSION:
        raise ConfigurationError("schema", row.get("schema"), f"{SCHEMA_VERSION}")
    record_class = CLASS_OF_KIND.get(str(row.get("kind")))
    if record_class is None:
        raise ConfigurationError("kind", row.get("kind"), f"one of {', '.join(CLASS_OF_KIND)}")
    hints = _hints(record_class)
    fields = {name: _typed(name, row[name], hints[name]) for name in hints if name in row}
    missing = [
        field.name
        for field in attrs.fields(record_class)
        if field.default is attrs.NOTHING and field.name not in fields
    ]
    if missing:
        raise ConfigurationError(missing[0], None, f"a value, as {row['kind']} needs it")
    return Envelope(
        at_ms=_typed("at_ms", row.get("at_ms"), int),
        group=_typed("group", row.get("group"), str),
        member=_typed("member", row.get("member"), str),
        generation=_typed("generation", row.get("generation"), int),
        client=_typed("client", row.get("client", ""), str),
        record=record_class(**fields),
    )


@functools.cache
def _hints(record_class: type) -> Mapping[str, Any]:
    """Return the types of the fields; to find them takes longer than to read a record."""
    return typing.get_type_hints(record_class, vars(records))


def _plain(value: object) -> object:
    if isinstance(value, ResourceSet):
        return value.to_dict()
    if isinstance(value, tuple):
        return list(value)
    return value


def _typed(name: str, value: Any, hint: Any) -> Any:  # noqa: ANN401  (any field of any record)
    if hint is ResourceSet and isinstance(value, dict):
        count = sum(len(indices) for indices in value.values())
        if count > RESOURCES_MAX:
            raise ConfigurationError(name, f"{count} resources", f"{RESOURCES_MAX} at most")
        return ResourceSet(value) if value else EMPTY
    if hint in (StopReason, EndCause) and value in list(hint):
        return hint(value)
    if hint in _ITEM_OF_TUPLE and isinstance(value, list):
        return tuple(_typed(name, item, _ITEM_OF_TUPLE[hint]) for item in value)
    if hint in (int, float) and type(value) is int and abs(value) >= _INT_END:
        raise ConfigurationError(name, "a longer number", "a whole number of 64 bits")
    if hint in (bool, int, str) and type(value) is hint:
        return value
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint == int | None:
        return None if value is None else _typed(name, value, int)
    raise ConfigurationError(name, value, f"a value of {hint}")
