"""Pages of docs/ name exactly what the code has, and their examples run unchanged."""

import ast
import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import attrs
import click
import pytest
from confluent_kafka import Consumer

from coopgroup import CooperativeConsumer
from coopgroup.assignors import (
    Assignor,
    DrainTimeAssignor,
    LagAwareAssignor,
    StickyAssignor,
    WeightedAssignor,
    assignor_names,
)
from coopgroup.cli import compare, simulate, sweep
from coopgroup.cli.app import run
from coopgroup.cli.pipeline import advise
from coopgroup.core.assignors.drain import LOOKS_MAX
from coopgroup.core.assignors.move_budget import MoveBudget
from coopgroup.core.assignors.quota_flow import ARCS_MAX
from coopgroup.core.model import ResourceSet
from coopgroup.core.telemetry import codec, records
from coopgroup.metrics.names import METRICS
from coopgroup.pipeline.sweep.grid import GROUP_AXES, OPTION_AXES, parse_sweep, read_sweep
from coopgroup.policies import (
    DeferredPolicy,
    IncrementalPolicy,
    Policy,
    SimplePolicy,
    Warmup,
    policy_names,
)
from coopgroup.report.charts import AXIS_WORDS
from coopgroup.simulator import scenario as values
from coopgroup.simulator.comparison import MEASURES
from coopgroup.simulator.scenario.file import EVENT_KINDS, KEYS, parse_scenario, read_scenario
from coopgroup.telemetry import EndCause, Envelope, StopReason, to_json
from tests.architecture.readme import page_examples
from tests.architecture.tree import ROOT, python_files
from tests.support.programs import output_of

SCENARIOS = sorted((ROOT / "simulations").glob("*.toml"))


def _page(name: str) -> Path:
    return ROOT / "docs" / f"{name}.md"


def _text(name: str) -> str:
    return _page(name).read_text()


def _rows(pattern: str, text: str) -> list[Any]:
    return re.findall(pattern, text, re.MULTILINE)


def _first_cells(page: str, title: str) -> list[str]:
    """Return the first cells of the tables under a heading, up to the next heading."""
    section = re.split(r"\n###? ", _text(page).split(f"{title}\n", 1)[1], maxsplit=1)[0]
    return _rows(r"^\| `([^`|]+)`", section)


def _defined_in(name: str, kind: str = "python") -> dict[str, Any]:
    """Run the blocks of a page in order, and return their definitions."""
    names: dict[str, Any] = {"__name__": name}
    for block in page_examples(_page(name), kind):
        exec(compile(block, name, "exec"), names)  # noqa: S102 - our own pages
    return names


# --- commands and files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "title", "command"),
    [
        ("sweeps", "## The command", sweep.command),
        ("advice", "## Options", advise.command),
        ("simulator", "## `coopgroup simulate FILE`", simulate.command),
        ("simulator", "## `coopgroup compare FILE`", compare.command),
    ],
)
def test_page_lists_every_option_of_a_command(
    page: str, title: str, command: click.Command
) -> None:
    options = {name for one in command.params for name in one.opts if name.startswith("--")}
    assert {cell.split()[0] for cell in _first_cells(page, title)} == options


@pytest.mark.parametrize(
    ("page", "title", "keys"),
    [
        *(
            ("simulator", f"### `{title}`", [one.name for one in attrs.fields(value)])
            for title, value in {
                "[group]": values.Group,
                "[[members]]": values.MemberSet,
                "[[costs]]": values.Cost,
                "[network]": values.Network,
                "[bell]": values.Bell,
            }.items()
        ),
        *(("simulator", f"### `[{kind}.NAME]`", list(keys)) for kind, keys in KEYS.items()),
        ("simulator", "### The run", ["description", "duration_ms", "settle_ms"]),
        ("sweeps", "## A sweep file", ["description", "scenarios", "seeds"]),
        (
            "sweeps",
            "### `[grid]`",
            ["policies", "assignors", "sizes", *OPTION_AXES, *GROUP_AXES],
        ),
    ],
)
def test_page_lists_every_key_of_a_table_in_order(page: str, title: str, keys: list[str]) -> None:
    assert _first_cells(page, title) == keys


def test_page_lists_every_kind_of_event_and_every_measure() -> None:
    section = _text("simulator").split("### `[[events]]`\n")[1].split("\n## ")[0]
    rows = _rows(r"^\| `(\w+)` \|([^|]*)\|", section.split("\n### ")[0])
    described = {kind: set(re.findall(r"`(\w+)`", keys)) for kind, keys in rows}
    assert described == {kind: set(keys) - {"at_ms"} for kind, keys in EVENT_KINDS.items()}
    measures = _text("simulator").split("## Measures\n")[1].split("\n## ")[0]
    assert tuple(_rows(r"^\| [^|]+ \| `(\w+)` \|", measures)) == MEASURES


def test_every_number_of_a_grid_has_words() -> None:
    """Charts would omit a number without words."""
    assert set(AXIS_WORDS) == {*OPTION_AXES, *GROUP_AXES, "size"}


def test_examples_of_files_can_be_read() -> None:
    assert parse_scenario(page_examples(_page("simulator"), "toml")[0], file="x.toml").events
    kept = ROOT / "simulations" / "sweeps" / "time_outs.toml"
    example = parse_sweep(page_examples(_page("sweeps"), "toml")[0], file=str(kept))
    assert example == parse_sweep(kept.read_text(), file=str(kept))
    assert [one for one in kept.parent.glob("*.toml") if not read_sweep(one).description] == []


def test_list_of_scenarios_has_a_row_for_each_file() -> None:
    """A file gives the course of events and the purpose."""
    for path in SCENARIOS:
        assert read_scenario(path).description
        assert path.read_text().startswith("# ")
    listed = _rows(r"^\| `(\w+\.toml)` \|", (ROOT / "simulations" / "README.md").read_text())
    assert sorted(listed) == [path.name for path in SCENARIOS]


# --- consumers and groups -------------------------------------------------------------------------


def test_page_goes_through_every_method_of_the_consumer() -> None:
    """Methods of confluent_kafka.Consumer and of coopgroup; differences are explained."""
    row = r"^\| (`\w+`(?:, `\w+`)*) \| (same|different|refused|ours) \| (.*)\|$"
    verdicts = {
        name: (verdict, bool(note.strip()))
        for names, verdict, note in _rows(row, _text("consumer"))
        for name in re.findall(r"`(\w+)`", names)
    }
    specials = {"__enter__", "__exit__"}
    theirs = {name for name in dir(Consumer) if not name.startswith("_")} | specials
    ours = {name for name in vars(CooperativeConsumer) if not name.startswith("_")}
    assert set(verdicts) == theirs | ours | {"__iter__"}
    of_ours = {name for name, (verdict, _) in verdicts.items() if verdict == "ours"}
    assert of_ours == (ours - theirs) | {"__iter__"}
    assert [name for name, (word, said) in verdicts.items() if word != "same" and not said] == []


# --- assignors and policies -----------------------------------------------------------------------


def test_page_lists_every_assignor_and_its_options_with_defaults() -> None:
    """Defaults are in the notation of JSON."""
    assert [name for name in assignor_names() if f"| `{name}` |" not in _text("assignors")] == []
    sections = {text.split("\n")[0]: text for text in _text("assignors").split("\n## ")}
    for assignor in (LagAwareAssignor, DrainTimeAssignor, WeightedAssignor):
        table = sections[assignor.name].partition("| option |")[2].partition("\n\n")[0]
        rows = dict(_rows(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", table))
        defaults = {
            field.name: json.dumps(field.default).replace("null", "none").strip('"')
            for field in attrs.fields(assignor)
        }
        assert {name: value.strip('"') for name, value in rows.items()} == defaults


def test_page_lists_every_option_of_a_policy_with_its_default() -> None:
    """A default that another option decides is written in words."""
    listed = dict(_rows(r"^\| `(\w+)` \| ([^|]+) \|", _text("policies")))
    ration = IncrementalPolicy().ration
    known = {
        field.name: field.default
        for value in (SimplePolicy, DeferredPolicy, IncrementalPolicy, Warmup)
        for field in attrs.fields(value)
    } | {"max_moves_per_round": ration.moves_max, "move_interval_ms": ration.interval_ms}
    assert sorted(set(known) - set(listed)) == []
    numbers = {name: str(value) for name, value in known.items() if isinstance(value, int)}
    assert {name: listed[name] for name in numbers} == numbers


def test_page_on_assignors_states_the_bounds_of_the_code() -> None:
    looks = MoveBudget(gain_min=0.0, moves_left=None).looks_left
    for words in (
        f"up to {ARCS_MAX:,} pairs",
        f"after {looks:,} looks",
        f"after {LOOKS_MAX:,} loo",
    ):
        assert words in _text("assignors")


def test_six_answers_on_the_page_are_those_of_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Letters are the owners; the last numbers are the lag of each member."""
    (group,) = page_examples(_page("assignors"), "json group")
    (shown,) = page_examples(_page("assignors"), "text owners")
    lags = json.loads(group)["lags"]["orders"]
    (tmp_path / "group.json").write_text(json.dumps(json.loads(group)))
    rows = [line.split() for line in shown.splitlines()[3:]]
    assert len(rows) == 6
    for name, *cells in rows:
        assert run(["plan", str(tmp_path / "group.json"), "--assignor", name]) == 0
        target = json.loads(capsys.readouterr().out)["target"]
        places = {one: member for member in target for one in target[member]["orders"]}
        owners = [places[one] for one in range(len(lags))]
        sums = [sum(lags[one] for one in target[member]["orders"]) for member in "abc"]
        assert cells == [*owners, *(f"{one:,}" for one in sums)], name


def test_examples_of_assignors_and_policies_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assertions of the pages hold, and their own classes satisfy the Protocols."""
    names = _defined_in("assignors")
    assert names["evened_out"] == LagAwareAssignor(scope="group", moves_max=50)
    assert names["by_speed"] == DrainTimeAssignor(moves_max=50)
    for registry, known in {
        "core.assignors.registry._ASSIGNORS": {"sticky": StickyAssignor},
        "core.policies.built_in._POLICIES": {"simple": SimplePolicy},
    }.items():
        monkeypatch.setattr(f"coopgroup.{registry}._factories", known)
    assert isinstance(_defined_in("custom_assignor")["ColocatedAssignor"](), Assignor)
    assert isinstance(_defined_in("custom_policy")["SettledPolicy"](), Policy)
    assert (assignor_names(), policy_names()) == (("colocated", "sticky"), ("settled", "simple"))


# --- metrics and telemetry ------------------------------------------------------------------------


def test_page_lists_every_cause_of_a_round() -> None:
    causes = _rows(r"^\| `(\w+)` \| [^|]+ \|$", _text("metrics").split("The causes of rounds")[1])
    assert tuple(causes) == METRICS["coopgroup_rebalances_total"].values


FIELD = r"^\| `(\w+)` \| ([\w ]+) \| .+ \|$"
WORDS: dict[object, str] = {
    ResourceSet: "resources",
    EndCause: "string",
    StopReason: "string",
    bool: "boolean",
    int: "integer",
    int | None: "integer or null",
    float: "number",
    str: "string",
    tuple[int, ...]: "integers",
    tuple[str, ...]: "strings",
}


def _fields_of(record_class: type) -> dict[str, str]:
    """Return name and type word of each field, in the order of the class."""
    hints = typing.get_type_hints(record_class, vars(records) | vars(types))
    return {one.name: WORDS[hints[one.name]] for one in attrs.fields(record_class)}


def test_page_describes_every_field_of_telemetry_in_the_order_of_a_line() -> None:
    head, kinds = _text("telemetry").split("## A line")[1].split("## Kinds")
    pieces = re.split(r"(?m)^### `(\w+)`$", kinds.split("## Further log events")[0])[1:]
    described = {
        kind: dict(_rows(FIELD, text)) for kind, text in zip(pieces[::2], pieces[1::2], strict=True)
    }
    assert described == {kind: _fields_of(one) for kind, one in codec.CLASS_OF_KIND.items()}
    record = records.ResourcesStarted(resources=ResourceSet())
    envelope = Envelope(at_ms=1, group="g", member="m", generation=1, record=record)
    assert list(dict(_rows(FIELD, head))) == list(to_json(envelope))[:7]
    assert f"| `schema` | integer | {codec.SCHEMA_VERSION}. " in head
    assert "`, `".join(StopReason).replace("`, `changed", "` or `changed") in kinds


def _told_of_troubles(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the events of each `Trouble` in a source, with their fields."""
    nodes = list(ast.walk(ast.parse(text)))
    events: dict[str, tuple[str, str]] = {}
    for node in nodes:
        match node:
            case ast.Assign(
                targets=[ast.Attribute(attr=name)],
                value=ast.Call(
                    func=ast.Name(id="Trouble"),
                    args=[_, ast.Constant(value=began), ast.Constant(value=ended)],
                ),
            ):
                events[name] = str(began), str(ended)
            case _:
                pass
    for node in nodes:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr=name), attr="fail" | "succeed" as end),
                keywords=keywords,
            ) if name in events:
                fields = [str(one.arg) for one in keywords if one.arg != "at_once"]
                yield events[name][end == "succeed"], fields
            case _:
                pass


def test_page_lists_the_further_events_that_the_sources_log() -> None:
    called = (
        r"(?:sink|self|starts|leader)\.(?:warn|_warn_later)\("
        r'\s*"(\w+)"((?:, \w+=[^,()]*(?:\([^()]*\))?[^,()]*)*)\)'
    )
    logged = {
        event: re.findall(r", (?!is_over)(\w+)=", arguments)
        for path in python_files("src/coopgroup/groups", "src/coopgroup/kafka")
        for event, arguments in re.findall(called, path.read_text())
    }
    for path in python_files("src/coopgroup/groups", "src/coopgroup/kafka"):
        logged |= dict(_told_of_troubles(path.read_text()))
    listed = _rows(r"^\| `(\w+)` \| ([^|]+) \| ", _text("telemetry").split("## Further log e")[1])
    assert logged == {event: re.findall(r"`(\w+)`", fields) for event, fields in listed}


def test_examples_of_logs_print_what_the_page_shows() -> None:
    to_output = "import sys; sys.stderr = sys.stdout\n"
    page = _page("telemetry")
    [program], [shown] = page_examples(page, "python logs"), page_examples(page, "text logs")
    assert output_of(to_output + program).splitlines() == shown.splitlines()
    [before], [shown] = (
        page_examples(page, "python structlog"),
        page_examples(page, "text structlog"),
    )
    assert output_of(before + program).splitlines() == shown.splitlines()


def test_example_of_a_listener_passes_records_on() -> None:
    names = _defined_in("telemetry", "python listener")
    names["statsd"] = statsd = Mock()
    resources = ResourceSet({"t": [1]})
    for record in (
        records.ResourcesStarted(resources=resources),
        records.ResourcesStopped(resources=resources, reason=StopReason.LOST, duration_ms=40),
        records.MembershipLost(resources=resources, cause="lease expired"),
    ):
        names["listener"](Envelope(at_ms=1, group="g", member="m", generation=1, record=record))
    assert statsd.mock_calls == [
        call.timing("coopgroup.stop", 40),
        call.incr("coopgroup.lost"),
    ]


# --- known bugs -----------------------------------------------------------------------------------


def test_page_of_known_bugs_names_a_test_in_each_row() -> None:
    """Renaming a test must change its row."""
    page = _text("development/known_bugs")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "our test" not in line]
    named = [re.findall(r"\| `(test_\w+)` \|$", row) for row in rows]
    assert [row for row, found in zip(rows, named, strict=True) if not found] == []
    tests = {
        name
        for path in python_files("tests")
        for name in _rows(r"^def (test_\w+)\(", path.read_text())
    }
    assert [name for [name] in named if name not in tests] == []
