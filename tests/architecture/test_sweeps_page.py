"""docs/sweeps.md and docs/advice.md agree with the code."""

import re
from pathlib import Path

import click
import pytest

from coopgroup.cli import sweep
from coopgroup.cli.pipeline import advise as pipeline_advise
from coopgroup.pipeline.sweep.grid import GROUP_AXES, OPTION_AXES, parse_sweep
from coopgroup.report.charts import AXIS_WORDS
from tests.architecture.tree import ROOT

SWEEPS = (ROOT / "docs" / "sweeps.md").read_text()
ADVICE = (ROOT / "docs" / "advice.md").read_text()
FIRST_CELL = re.compile(r"^\| `([^`|]+)`", re.MULTILINE)


def section(page: str, title: str) -> str:
    """Return the text under a heading, up to the next heading."""
    return page.split(f"{title}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]


def options(command: click.Command) -> set[str]:
    """Return the long options of a command."""
    return {name for one in command.params for name in one.opts if name.startswith("--")}


def test_page_lists_every_key_of_a_sweep() -> None:
    """Keys of the file and of its grid."""
    assert FIRST_CELL.findall(section(SWEEPS, "## A sweep file")) == [
        "description",
        "scenarios",
        "seeds",
    ]
    listed = FIRST_CELL.findall(section(SWEEPS, "### `[grid]`"))
    assert listed == ["policies", "assignors", "sizes", *OPTION_AXES, *GROUP_AXES]


def test_every_number_of_a_grid_has_words_on_the_page() -> None:
    """Charts would omit a number without words."""
    assert set(AXIS_WORDS) == {*OPTION_AXES, *GROUP_AXES, "size"}


@pytest.mark.parametrize(
    ("page", "heading", "command"),
    [
        (SWEEPS, "## The command", sweep.command),
        (ADVICE, "## Options", pipeline_advise.command),
    ],
    ids=["sweep", "advise"],
)
def test_page_lists_every_option(page: str, heading: str, command: click.Command) -> None:
    """By its long name."""
    described = {cell.split()[0] for cell in FIRST_CELL.findall(section(page, heading))}
    assert described == options(command)


def test_example_of_the_page_can_be_read(tmp_path: Path) -> None:
    text = re.search(r"```toml\n(.*?)```", SWEEPS, re.DOTALL)
    assert text is not None
    kept = ROOT / "simulations" / "sweeps" / "time_outs.toml"
    example = parse_sweep(text[1], file=str(kept))
    assert example == parse_sweep(kept.read_text(), file=str(kept))
