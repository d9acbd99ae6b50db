"""Write sections of pages, between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""

from pathlib import Path

DOCS = Path(__file__).parent


def section_of(text: str, name: str) -> tuple[str, str, str]:
    """Return the text up to a section, the section without its marks, and the text after it.

    Raises:
        ValueError: the text does not have both marks, in order.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, first, rest = text.partition(begin)
    content, second, after = rest.partition(end)
    if not (first and second):
        raise ValueError(f"no marks {begin} and {end}")
    return before + begin, content, end + after


def with_section(text: str, name: str, content: str) -> str:
    """Return a text with another section; see `section_of`."""
    before, _, after = section_of(text, name)
    return f"{before}\n\n{content}\n\n{after}"


def write_section(page: Path, name: str, content: str) -> None:
    """Replace a section of a page.

    Raises:
        ValueError: the page does not have both marks, in order.
    """
    try:
        page.write_text(with_section(page.read_text(), name, content))
    except ValueError as error:
        raise ValueError(f"{page.name}: {error}") from None
