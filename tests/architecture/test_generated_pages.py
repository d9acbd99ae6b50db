"""Generated parts of pages are the output of their scripts."""

import re

import pytest

from coopgroup.pipeline.schemas import TABLES
from docs import (
    make_callback_table,
    make_key_tables,
    make_reference_tables,
    make_rule_tables,
    make_state_diagram,
)
from docs.make_policies_page import (
    BEGIN,
    DOCS,
    END,
    MEASURES,
    PAGE,
    USE_CASES,
    UseCase,
)

BYTES_MAX = 200_000


def rows_of(name: str) -> list[list[str]]:
    section = PAGE.read_text().partition(BEGIN.format(name=name))[2]
    lines = section.partition(END.format(name=name))[0].strip().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_state_diagram_is_fresh() -> None:
    """If this fails: python docs/make_state_diagram.py."""
    assert make_state_diagram.DIAGRAM.read_text() == make_state_diagram.diagram()


def test_table_of_callbacks_is_fresh() -> None:
    """If this fails: python docs/make_callback_table.py."""
    text = make_callback_table.PAGE.read_text()
    assert make_callback_table.made(text) == text


@pytest.mark.parametrize("page", make_rule_tables.PAGES)
def test_tables_of_rules_are_fresh(page: str) -> None:
    """If this fails: python docs/make_rule_tables.py."""
    text = (DOCS / f"{page}.md").read_text()
    assert make_rule_tables.made(page, text) == text


@pytest.mark.parametrize("page", make_key_tables.PAGES)
def test_tables_of_keys_are_fresh(page: str) -> None:
    """If this fails: python docs/make_key_tables.py."""
    text = (DOCS / f"{page}.md").read_text()
    assert make_key_tables.made(page, text) == text


@pytest.mark.parametrize("use_case", USE_CASES, ids=lambda one: one.name)
def test_use_case_has_figures_and_a_panel_for_each_policy(use_case: UseCase) -> None:
    """If this fails: python docs/make_policies_page.py."""
    (_, *policies), _, *rows = rows_of(use_case.name)
    assert tuple(policies) == use_case.policies
    assert [row[0] for row in rows] == [title for title, _ in MEASURES.values()]
    assert all(any(one.isdigit() for one in cell) for row in rows for cell in row[1:])
    path = DOCS / "images" / f"policies-{use_case.name}.svg"
    assert f"](images/{path.name})" in PAGE.read_text()
    assert path.stat().st_size < BYTES_MAX
    texts = re.findall("<text[^>]*>([^<]*)</text>", path.read_text())
    assert texts[: len(use_case.policies)] == list(use_case.policies)


@pytest.mark.parametrize("page", make_reference_tables.PAGES)
def test_tables_of_columns_and_of_metrics_are_fresh(page: str) -> None:
    """If this fails: python docs/make_reference_tables.py."""
    text = (DOCS / f"{page}.md").read_text()
    assert make_reference_tables.made(page, text) == text


def test_every_episode_has_a_table() -> None:
    text = (DOCS / "pipeline.md").read_text()
    for name in make_reference_tables.TABLES:
        assert [*re.findall(rf"^\| `{name}` \| type", text, re.MULTILINE)]


def test_every_column_of_an_episode_has_its_text() -> None:
    pages = make_reference_tables.columns().split("\n\n")
    for name, page in zip(make_reference_tables.TABLES, pages, strict=True):
        described = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
        assert described == [name, *TABLES[name].schema.names]
