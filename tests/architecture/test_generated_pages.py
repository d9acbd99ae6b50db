"""Generated parts of pages are the output of their scripts."""

import re

import pytest

from coopgroup.pipeline.schemas import TABLES
from docs import make
from docs.make_policies_page import MEASURES, PAGE, USE_CASES, UseCase
from docs.reference_tables import TABLES as EPISODES
from docs.reference_tables import columns
from docs.sections import DOCS, section_of
from docs.state_diagram import diagram

BYTES_MAX = 200_000


def rows_of(name: str) -> list[list[str]]:
    lines = section_of(PAGE.read_text(), name)[1].strip().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


@pytest.mark.parametrize("page", make.PAGES)
def test_page_has_what_the_code_says(page: str) -> None:
    """If this fails: make generated."""
    text = (DOCS / page).read_text()
    for name, content in make.PAGES[page].items():
        assert section_of(text, name)[1].strip() == content()


def test_state_diagram_is_fresh() -> None:
    """If this fails: make generated."""
    assert (DOCS / "member-states.mmd").read_text() == diagram()


@pytest.mark.parametrize("use_case", USE_CASES, ids=lambda one: one.name)
def test_use_case_has_figures_and_a_panel_for_each_policy(use_case: UseCase) -> None:
    """If this fails: python -m docs.make_policies_page."""
    (_, *policies), _, *rows = rows_of(use_case.name)
    assert tuple(policies) == use_case.policies
    assert [row[0] for row in rows] == [title for title, _ in MEASURES.values()]
    assert all(any(one.isdigit() for one in cell) for row in rows for cell in row[1:])
    path = DOCS / "images" / f"policies-{use_case.name}.svg"
    assert f"](images/{path.name})" in PAGE.read_text()
    assert path.stat().st_size < BYTES_MAX
    texts = re.findall("<text[^>]*>([^<]*)</text>", path.read_text())
    assert texts[: len(use_case.policies)] == list(use_case.policies)


def test_every_episode_has_a_table() -> None:
    text = (DOCS / "pipeline.md").read_text()
    for name in EPISODES:
        assert [*re.findall(rf"^\| `{name}` \| type", text, re.MULTILINE)]


def test_every_column_of_an_episode_has_its_text() -> None:
    for name, page in zip(EPISODES, columns().split("\n\n"), strict=True):
        described = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
        assert described == [name, *TABLES[name].schema.names]
