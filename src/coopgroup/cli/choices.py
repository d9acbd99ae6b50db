"""Policies and assignors as the command line names them.

    NAME                            with the options that it has in the scenario, or none
    NAME:KEY=VALUE,KEY=VALUE        with these options
    NAME,NAME:KEY=VALUE,NAME        several; what has a `=` and no `:` belongs to the one before it

A value is a number, `true`, `false` or `null` as JSON writes them, and anything else is a string.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import Choice

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parse_choice", "parse_choices"]


def parse_choice(option: str, text: str, named: Callable[[str], Choice] | None = None) -> Choice:
    """Read one choice.

    Args:
        option: of the command line, for messages.
        text: what was given.
        named: what a name alone stands for; None for the name without options.

    Raises:
        ConfigurationError: the text is no choice.
    """
    name, colon, rest = text.partition(":")
    if not name or (colon and not rest):
        raise ConfigurationError(option, text, "NAME or NAME:KEY=VALUE,KEY=VALUE")
    if not colon:
        return Choice(name=name) if named is None else named(name)
    options: dict[str, object] = {}
    for pair in rest.split(","):
        key, equals, value = pair.partition("=")
        if not key or not equals or key in options:
            raise ConfigurationError(option, text, "NAME:KEY=VALUE,KEY=VALUE, each key once")
        options[key] = _value(value)
    return Choice(name=name, options=options)


def parse_choices(option: str, text: str, named: Callable[[str], Choice]) -> dict[str, Choice]:
    """Read several choices, each by the text that stands for it.

    Args:
        option: of the command line, for messages.
        text: what was given.
        named: what a name alone stands for.

    Raises:
        ConfigurationError: the text holds no choices, or one of them twice.
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


def _value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError:
        return text
    return text if isinstance(value, list | dict | str) else value
