"""The README's Python examples.

A block marked `python` runs as it stands. A block marked `python broker` is a program that consumes
the topic `orders` at `localhost:9092` until it is interrupted; the broker tests run it.
"""

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.architecture.tree import ROOT


def _tokens() -> list[Token]:
    return MarkdownIt().parse((ROOT / "README.md").read_text())


def readme_examples(kind: str) -> list[str]:
    """The code blocks of README.md whose info string is exactly `kind`, in order."""
    return [token.content for token in _tokens() if token.type == "fence" and token.info == kind]


def readme_fences() -> list[str]:
    """The info strings of all code blocks of README.md, in order."""
    return [token.info for token in _tokens() if token.type == "fence"]


def readme_links() -> list[str]:
    """The targets of all links of README.md, in order."""
    return [
        str(child.attrs["href"])
        for token in _tokens()
        for child in token.children or ()
        if child.type == "link_open"
    ]
