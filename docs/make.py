"""Writes the tables that the code contains into the pages: python -m docs.make.

A test fails while a page is not fresh. Measured and simulated figures have programs of their own.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from docs.callback_table import table as callbacks
from docs.key_tables import SECTIONS as KEYS
from docs.reference_tables import columns, metrics
from docs.rule_tables import ROUND, WORK, sections
from docs.sections import DOCS, write_section
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


if __name__ == "__main__":
    for page, made in PAGES.items():
        for name, content in made.items():
            write_section(DOCS / page, name, content())
    (DOCS / "member-states.mmd").write_text(diagram())
