"""Writes the tables of configuration keys into the pages: python docs/make_key_tables.py."""

import re
from collections.abc import Iterable
from pathlib import Path

from coopgroup.kafka.config.keys import RECORD_KEYS, SECTIONS, Choice, Key, Verdict

DOCS = Path(__file__).parent
BEGIN = "<!-- keys: {name}, made by make_key_tables.py -->"
END = "<!-- end of keys -->"
CODE = re.compile(r"[a-z]+(?:[._][a-z]+)+(?:\.\*)?|\b[a-z]+(?:\(\)|=…)")
PAGES = {
    "configuration": [name for name in SECTIONS if name != "groups"],
    "groups": ["groups"],
}


def note(key: Key) -> str:
    """Return the default of a key and its meaning, or what to use instead."""
    if key.verdict is Verdict.REFUSED:
        return key.meaning or in_code(key.instead.removeprefix("no such key: "))
    if key.verdict is Verdict.ONLY and not key.meaning:
        assert isinstance(key.kind, Choice)
        return in_code(key.kind.expected)
    default = "" if key.default is None else str(key.default)
    if default and not default.isdigit():
        default = f"`{default}`"
    return "; ".join(part for part in (default, key.meaning) if part)


def in_code(text: str) -> str:
    """Mark the names of keys and functions in a refusal as code."""
    return CODE.sub(r"`\g<0>`", text)


def table(section: str) -> str:
    """Return the table of a section in Markdown.

    Keys with equal notes share a row. Keys without a note come last.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for key in SECTIONS[section]:
        names.setdefault((key.verdict.value, note(key)), []).append(f"`{key.name}`")
    order = sorted(names, key=lambda one: not one[1])
    rows = [f"| {', '.join(names[one])} | {one[0]} | {one[1]} |" for one in order]
    return "\n".join(["| key | | note |", "|---|---|---|", *rows]).replace("|  |", "| |")


def shared_keys() -> str:
    """Return the keys that a group of named resources shares with consumers, as a list."""
    sections = ("group", "own", "callbacks")
    return listed(key for name in sections for key in SECTIONS[name] if key.groups)


def record_keys() -> str:
    """Return the keys of a consumer without an effect in a group of named resources, as a list."""
    keys = (key for keys in SECTIONS.values() for key in keys)
    return listed(
        key for key in keys if key.name in RECORD_KEYS and key.verdict is not Verdict.REFUSED
    )


def listed(keys: Iterable[Key]) -> str:
    """Return the names of keys."""
    return ", ".join(f"`{key.name}`" for key in keys)


def made(page: str, text: str) -> str:
    """Return the text of a page with fresh tables."""
    parts = {name: table(name) for name in PAGES[page]}
    if page == "groups":
        parts["shared"] = shared_keys()
        parts["records"] = record_keys()
    for name, part in parts.items():
        before, begin, rest = text.partition(BEGIN.format(name=name))
        text = f"{before}{begin}\n{part}\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / f"{page}.md"
        path.write_text(made(page, path.read_text()))
