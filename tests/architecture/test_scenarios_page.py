"""docs/scenarios.md and simulations/README.md agree with the code and with the files."""

import re
from pathlib import Path

import attrs
import click
import pytest

from coopgroup.cli import compare, simulate
from coopgroup.simulator import scenario as values
from coopgroup.simulator.comparison import MEASURES
from coopgroup.simulator.scenario.file import parse_scenario, read_scenario
from coopgroup.simulator.scenario.tables import EVENT_KINDS, KEYS
from tests.architecture.tree import ROOT

PAGE = (ROOT / "docs" / "scenarios.md").read_text()
FILES = sorted((ROOT / "simulations").glob("*.toml"))
FIRST_CELL = re.compile(r"^\| `([^`|]+)`", re.MULTILINE)


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading."""
    return PAGE.split(f"{title}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]


@pytest.mark.parametrize(
    ("title", "value"),
    [
        ("### `[group]`", values.Group),
        ("### `[[members]]`", values.MemberSet),
        ("### `[[costs]]`", values.Cost),
        ("### `[network]`", values.Network),
        ("### `[bell]`", values.Bell),
    ],
)
def test_page_lists_every_key_of_a_table(title: str, value: type) -> None:
    """In the order of the class."""
    assert FIRST_CELL.findall(section(title)) == [one.name for one in attrs.fields(value)]


def test_page_lists_every_key_of_what_is_shared_and_of_the_run() -> None:
    """A topic's name is the name of its table; the run's tables have their own headings."""
    for kind, keys in KEYS.items():
        assert tuple(FIRST_CELL.findall(section(f"### `[{kind}.NAME]`"))) == keys
    assert FIRST_CELL.findall(section("### The run")) == [
        "description",
        "duration_ms",
        "settle_ms",
    ]


def test_page_lists_every_kind_of_event_with_its_keys() -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", section("### `[[events]]`"), re.MULTILINE)
    described = {kind: set(re.findall(r"`(\w+)`", keys)) for kind, keys in rows}
    assert described == {kind: set(keys) - {"at_ms"} for kind, keys in EVENT_KINDS.items()}


def test_page_lists_every_measure() -> None:
    """By its name in JSON."""
    named = re.findall(r"^\| [^|]+ \| `(\w+)` \|", section("## Measures"), re.MULTILINE)
    assert tuple(named) == MEASURES


@pytest.mark.parametrize("command", [simulate.command, compare.command], ids=str)
def test_page_lists_every_option(command: click.Command) -> None:
    listed = FIRST_CELL.findall(section(f"## `coopgroup {command.name} FILE`"))
    options = [one.opts[0] for one in command.params if isinstance(one, click.Option)]
    assert {option.split()[0] for option in listed} == set(options)


def test_example_on_the_page_is_a_scenario() -> None:
    """Readers can copy it."""
    example = PAGE.split("```toml\n")[1].split("```")[0]
    assert parse_scenario(example, file="example.toml").events


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_a_scenario_that_says_what_it_is(path: Path) -> None:
    """Its description gives the course of events and the purpose, and the list includes it."""
    scenario = read_scenario(path)
    assert scenario.description
    assert path.read_text().startswith("# ")
    assert f"| `{path.name}` |" in (ROOT / "simulations" / "README.md").read_text()


def test_list_names_only_files_that_there_are() -> None:
    """One row each."""
    listed = re.findall(
        r"^\| `(\w+\.toml)`", (ROOT / "simulations" / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == [path.name for path in FILES]
