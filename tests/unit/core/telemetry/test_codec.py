"""Telemetry: every record survives JSON, and an error names the wrong field of a row."""

import json
from typing import Any, get_args, get_type_hints

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.telemetry import Envelope, Record, ResourcesStopped, StopReason, from_json, to_json
from tests.support.strategies import indices_by_name

SOME = ResourceSet({"orders": [3, 1], "payments": [0]})
OF_A_TYPE: dict[object, st.SearchStrategy[Any]] = {
    ResourceSet: st.builds(ResourceSet, indices_by_name),
    int: st.integers(0, 2**63 - 1),
    int | None: st.none() | st.integers(0, 2**63 - 1),
    float | None: st.none() | st.floats(0, 1e9),
    tuple[int, ...]: st.lists(st.integers(0, 2**63 - 1)).map(tuple),
}
ROW: dict[str, Any] = {
    "schema": 1,
    "at_ms": 1_730_000_000_000,
    "group": "orders",
    "member": "m-1",
    "generation": 7,
    "client": "orders-1",
    "kind": "resources_stopped",
    "resources": {"orders": [1, 3], "payments": [0]},
    "reason": "lost",
    "duration_ms": 12,
}


def of_type(kind: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - as `get_type_hints` has it
    return OF_A_TYPE[kind] if kind in OF_A_TYPE else st.from_type(kind)


def envelope(record: Record) -> Envelope:
    head = {name: ROW[name] for name in ("at_ms", "group", "member", "generation", "client")}
    return Envelope(record=record, **head)


@pytest.mark.parametrize("kind", get_args(Record))
@settings(max_examples=10)
@given(data=st.data())
def test_record_survives_json(kind: type[Record], data: st.DataObject) -> None:
    types = get_type_hints(kind)
    record = kind(**{one.name: data.draw(of_type(types[one.name])) for one in attrs.fields(kind)})
    text = json.dumps(to_json(envelope(record)))
    assert from_json(json.loads(text)) == envelope(record)


def test_row_has_the_documented_form() -> None:
    stopped = ResourcesStopped(resources=SOME, reason=StopReason.LOST, duration_ms=12)
    row = to_json(envelope(stopped))
    assert row == ROW
    assert list(row) == list(ROW)


def test_row_when_a_field_is_unknown_or_left_out_is_read() -> None:
    row = {**ROW, "colour": "green"}
    del row["duration_ms"], row["client"]
    read = from_json(row)
    assert read.record == ResourcesStopped(resources=SOME, reason=StopReason.LOST)
    assert read.client == ""


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema": 2}, "schema"),
        ({"kind": "earthquake"}, "kind"),
        ({"at_ms": "now"}, "at_ms"),
        ({"group": None}, "group"),
        ({"generation": True}, "generation"),
        ({"at_ms": 2**63}, "at_ms"),
        ({"resources": [1]}, "resources"),
        ({"reason": "bored"}, "reason"),
        ({"duration_ms": 1.5}, "duration_ms"),
        ({"client": 3}, "client"),
        (
            {"kind": "member_reported", "state": "s", "interval_ms": 1, "rate_per_s": True},
            "rate_per_s",
        ),
        ({"kind": "process_ended", "cause": "bored"}, "cause"),
        ({"kind": "offsets_committed", "offsets": [1, "x"]}, "offsets"),
        ({"kind": "process_started", "topics": [3]}, "topics"),
    ],
)
def test_row_when_a_value_is_wrong_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_json({**ROW, **changes})
    assert caught.value.field == field


def test_row_when_a_needed_field_is_missing_is_refused() -> None:
    row = {name: value for name, value in ROW.items() if name != "resources"}
    with pytest.raises(ConfigurationError, match="resources: got None, expected a value"):
        from_json(row)
