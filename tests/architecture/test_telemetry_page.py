"""docs/telemetry.md agrees with the records and with the log events of the sources."""

import re
import types
import typing
from pathlib import Path
from typing import Any

import attrs

from coopgroup.model import ResourceSet
from coopgroup.telemetry import EndCause, Envelope, StopReason, codec, records, to_json

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "telemetry.md").read_text()
KIND = re.compile(r"^### `(\w+)`$", re.MULTILINE)
FIELD = re.compile(r"^\| `(\w+)` \| (\w+) \| .+ \|$", re.MULTILINE)
WORDS: dict[object, str] = {
    ResourceSet: "resources",
    EndCause: "string",
    StopReason: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    tuple[int, ...]: "integers",
    tuple[str, ...]: "strings",
}


def fields_of(record_class: type) -> dict[str, str]:
    """Return name and type word of each field, in the order of the class."""
    hints = typing.get_type_hints(record_class, vars(records) | vars(types))
    return {one.name: WORDS[hints[one.name]] for one in attrs.fields(record_class)}


def test_example_of_metrics_counts_what_it_is_told() -> None:
    """The test runs the block of the page; a listener receives envelopes."""
    block = PAGE.split("```python metrics\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102  (our own page)
    gained, lost = ResourceSet({"t": [0, 1, 2]}), ResourceSet({"t": [1]})
    for record in (
        records.ResourcesStarted(resources=gained),
        records.ResourcesStopped(resources=lost, reason=StopReason.LOST, duration_ms=40),
        records.MembershipLost(resources=gained, cause="lease expired"),
        records.RoundRefused(violations=()),
    ):
        names["metrics"](Envelope(at_ms=1, group="g", member="m", generation=1, record=record))
    assert names["metrics"].text().splitlines() == [
        "coopgroup_memberships_lost_total 1",
        "coopgroup_partitions_gained_total 3",
        "coopgroup_partitions_held 2",
        "coopgroup_stop_ms_total 40",
    ]


def test_page_describes_every_field_of_every_kind() -> None:
    """In the order in which they are written."""
    kinds_part = PAGE.split("## Kinds")[1].split("## Further log events")[0]
    pieces = KIND.split(kinds_part)[1:]
    described = {
        kind: dict(FIELD.findall(text))
        for kind, text in zip(pieces[::2], pieces[1::2], strict=True)
    }
    assert described == {
        kind: fields_of(record_class) for kind, record_class in codec.CLASS_OF_KIND.items()
    }


def test_page_describes_the_envelope() -> None:
    """Its fields come first in every line."""
    record = records.ResourcesStarted(resources=ResourceSet())
    envelope = Envelope(at_ms=1, group="g", member="m", generation=1, record=record)
    head = PAGE.split("## A line")[1].split("## Kinds")[0]
    assert list(dict(FIELD.findall(head))) == list(to_json(envelope))[:7]
    assert f"| `schema` | integer | {codec.SCHEMA_VERSION}. " in head


def test_page_names_every_reason() -> None:
    """The reasons for which a member stops a resource."""
    assert "`, `".join(StopReason).replace("`, `closed", "` or `closed") in PAGE


def test_page_lists_the_further_events_that_the_sources_log() -> None:
    called = re.compile(
        r"(?:sink|self|starts|leader)\.(?:warn|_warn_later)\("
        r'\s*"(\w+)"((?:, \w+=[^,()]*(?:\([^()]*\))?[^,()]*)*)\)'
    )
    logged = {
        event: re.findall(r", (\w+)=", arguments)
        for package in ("groups", "kafka")
        for path in sorted((ROOT / "src" / "coopgroup" / package).rglob("*.py"))
        for event, arguments in called.findall(path.read_text())
    }
    listed = {
        event: re.findall(r"`(\w+)`", fields)
        for event, fields in re.findall(
            r"^\| `(\w+)` \| ([^|]+) \| ", PAGE.split("## Further log events")[1], re.MULTILINE
        )
    }
    assert logged == listed
