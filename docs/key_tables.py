"""The tables of configuration keys."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from coopgroup.kafka.config.keys import RECORD_KEYS, Choice, Key, Verdict
from coopgroup.kafka.config.keys import SECTIONS as KEYS

CODE = re.compile(r"[a-z]+(?:[._][a-z]+)+(?:\.\*)?|\b[a-z]+(?:\(\)|=…)")


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
    for key in KEYS[section]:
        names.setdefault((key.verdict.value, note(key)), []).append(f"`{key.name}`")
    order = sorted(names, key=lambda one: not one[1])
    rows = [f"| {', '.join(names[one])} | {one[0]} | {one[1]} |" for one in order]
    return "\n".join(["| key | | note |", "|---|---|---|", *rows]).replace("|  |", "| |")


def shared_keys() -> str:
    """Return the keys that a group of named resources shares with consumers, as a list."""
    sections = ("group", "own", "callbacks")
    return listed(key for name in sections for key in KEYS[name] if key.groups)


def record_keys() -> str:
    """Return the keys of a consumer without an effect in a group of named resources, as a list."""
    keys = (key for keys in KEYS.values() for key in keys)
    return listed(
        key for key in keys if key.name in RECORD_KEYS and key.verdict is not Verdict.REFUSED
    )


def listed(keys: Iterable[Key]) -> str:
    """Return the names of keys."""
    return ", ".join(f"`{key.name}`" for key in keys)


SECTIONS: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "configuration": {name: partial(table, name) for name in KEYS if name != "groups"},
    "groups": {"groups": partial(table, "groups"), "shared": shared_keys, "records": record_keys},
}
"""What makes each section, by page."""
