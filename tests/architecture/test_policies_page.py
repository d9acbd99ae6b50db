"""The page about policies equals its script's output: a table and a picture per use case."""

import re

import pytest

from docs.make_policies_page import (
    BEGIN,
    DOCS,
    END,
    MEASURES,
    PAGE,
    RESTORE_S,
    RESTORE_TIMES,
    USE_CASES,
    UseCase,
    with_section,
)

BYTES_MAX = 200_000
NAMES = [use_case.name for use_case in USE_CASES]


def rows_of(name: str) -> list[list[str]]:
    section = PAGE.read_text().partition(BEGIN.format(name=name))[2]
    lines = section.partition(END.format(name=name))[0].strip().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


@pytest.mark.parametrize("use_case", USE_CASES, ids=NAMES)
def test_table_has_a_figure_for_each_measure_and_policy(use_case: UseCase) -> None:
    """If this fails: python docs/make_policies_page.py."""
    (_, *policies), _, *rows = rows_of(use_case.name)
    assert tuple(policies) == use_case.policies
    assert [row[0] for row in rows] == [title for title, _ in MEASURES.values()]
    assert all(any(one.isdigit() for one in cell) for row in rows for cell in row[1:])


@pytest.mark.parametrize("use_case", USE_CASES, ids=NAMES)
def test_picture_is_shown_and_has_a_panel_for_each_policy(use_case: UseCase) -> None:
    """If this fails: python docs/make_policies_page.py."""
    path = DOCS / "images" / f"policies-{use_case.name}.svg"
    assert f"](images/{path.name})" in PAGE.read_text()
    drawn = path.read_text()
    assert len(drawn) < BYTES_MAX
    texts = re.findall("<text[^>]*>([^<]*)</text>", drawn)
    assert texts[: len(use_case.policies)] == list(use_case.policies)


def test_table_of_restore_times_has_a_row_for_each_time() -> None:
    """If this fails: python docs/make_policies_page.py."""
    _, _, *rows = rows_of(RESTORE_TIMES)
    assert [row[0] for row in rows] == [str(seconds) for seconds in RESTORE_S]
    assert all(any(one.isdigit() for one in cell) for row in rows for cell in row)


def test_with_section_when_run_twice_replaces_only_what_is_between_the_marks() -> None:
    """People write the rest of the page."""
    page = f"before\n{BEGIN.format(name='a')}\n{END.format(name='a')}\nafter\n"
    once = with_section(page, "a", "table")
    assert once == f"before\n{BEGIN.format(name='a')}\n\ntable\n\n{END.format(name='a')}\nafter\n"
    assert with_section(once, "a", "table") == once
    with pytest.raises(ValueError, match="no section b"):
        with_section(page, "b", "table")
