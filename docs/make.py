"""Writes what is made from code alone into the pages: python -m docs.make.

A test fails while a section is not fresh. Measured and simulated figures have programs of their
own.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from docs.callback_table import table as callbacks
from docs.key_tables import SECTIONS as KEYS
from docs.reference_tables import columns, metrics
from docs.rule_tables import ROUND, WORK, sections
from docs.sections import DOCS, with_section
from docs.state_diagram import diagram

PAGES: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "configuration.md": KEYS["configuration"],
    "consumer.md": {"callbacks": callbacks},
    "groups.md": {"work": partial(sections, WORK), **KEYS["groups"]},
    "metrics.md": {"metrics": metrics},
    "pipeline.md": {"columns": columns},
    "rules.md": {"rules": partial(sections, ROUND)},
}
"""What makes each section of each page."""


def made(page: str, text: str) -> str:
    """Return the text of a page with fresh sections."""
    for name, content in PAGES[page].items():
        text = with_section(text, name, content())
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(made(page, path.read_text()))
    (DOCS / "member-states.mmd").write_text(diagram())
