"""Policies and assignors in the syntax of the command line.

    NAME                            with its options from the scenario, or without options
    NAME:KEY=VALUE,KEY=VALUE        with these options
    NAME,NAME:KEY=VALUE,NAME        several; a part with `=` and without `:` continues the last one

NAME may be `module:Class`. The two parts of such a name are identifiers, perhaps with dots.
A value is a number, `true`, `false` or `null` as in JSON. Anything else is a string. The key
`warmup.timeout_ms` is the option `timeout_ms` of the option `warmup`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import Choice

__all__ = ["parse_choice", "parse_choices", "row_of"]

_CLASS: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*(?=:|$)")


def parse_choice(option: str, text: str, named: Callable[[str], Choice] | None = None) -> Choice:
    """Read one choice; `named` returns the choice for a name alone.

    Raises:
        ConfigurationError: the text is not a choice.
    """
    of_class = _CLASS.match(text)
    begin = 0 if of_class is None else of_class.end()
    before, colon, rest = text[begin:].partition(":")
    name = text[:begin] + before
    if not name or (colon and not rest):
        raise ConfigurationError(option, text, "NAME or NAME:KEY=VALUE,KEY=VALUE")
    if not colon:
        return Choice(name=name) if named is None else named(name)
    options: dict[str, object] = {}
    for pair in rest.split(","):
        key, equals, value = pair.partition("=")
        if not key or not equals or not _put(options, key, _value(value)):
            raise ConfigurationError(option, text, "NAME:KEY=VALUE,KEY=VALUE, each key once")
    return Choice(name=name, options=options)


def parse_choices(option: str, text: str, named: Callable[[str], Choice]) -> dict[str, Choice]:
    """Read several choices, each with its text as key.

    Raises:
        ConfigurationError: the text has no choice, or the same choice twice.
    """
    texts: list[str] = []
    for piece in text.split(","):
        if texts and "=" in piece and ":" not in piece.partition("=")[0]:
            texts[-1] += f",{piece}"
        else:
            texts.append(piece)
    if len(set(texts)) < len(texts):
        raise ConfigurationError(option, text, "each policy once")
    return {one: parse_choice(option, one, named) for one in texts}


def row_of(choice: Choice) -> dict[str, object]:
    """Return a choice as one table: the name, and the options beside it."""
    return {"name": choice.name, **choice.options}


def _put(options: dict[str, object], key: str, value: object) -> bool:
    """Set an option; return False if it is set already."""
    *path, last = key.split(".")
    for name in path:
        inner = options.setdefault(name, {})
        if not isinstance(inner, dict):
            return False
        options = inner
    if last in options:
        return False
    options[last] = value
    return True


def _value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError:
        return text
    return text if isinstance(value, list | dict | str) else value
