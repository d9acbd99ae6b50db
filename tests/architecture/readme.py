"""The README's Python examples, links and tables, and the tables of other pages.

A block marked `python broker` is a program that consumes the topic `orders` at `localhost:9092`
until it is interrupted. test_readme.py runs it on librdkafka's mock broker, the broker tests run it
twice on a real broker.
"""

from itertools import groupby
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.architecture.tree import ROOT

Table = list[list[str]]


def _tokens(page: Path) -> list[Token]:
    return MarkdownIt().parse(page.read_text())


def page_examples(page: Path, kind: str) -> list[str]:
    """Return the code blocks of a page whose info string is exactly `kind`, in order."""
    return [
        token.content for token in _tokens(page) if token.type == "fence" and token.info == kind
    ]


def page_fences(page: Path) -> list[str]:
    """Return the info strings of all code blocks of a page, in order."""
    return [token.info for token in _tokens(page) if token.type == "fence"]


def tables_between(page: Path, begin: str, end: str) -> list[Table]:
    """Return the tables between two texts of a page: cells of the header, then of each row."""
    block = page.read_text().partition(begin)[2].partition(end)[0]
    runs = groupby(block.splitlines(), key=lambda line: line.startswith("|"))
    return [_cells(list(lines)) for is_table, lines in runs if is_table]


def _cells(lines: list[str]) -> Table:
    header, _rule, *rows = lines
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)]


def readme_links() -> list[str]:
    """Return the targets of all links of README.md, in order."""
    return [
        str(child.attrs["href"])
        for token in _tokens(ROOT / "README.md")
        for child in token.children or ()
        if child.type == "link_open"
    ]
