"""Member traits: what a process tells its group about itself, as a small JSON object.

An assignor reads it, for example places and tags. Each join sends it to the leader, so it is
bounded. It is checked where it is given and where it is received, because members may lie.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Traits: TypeAlias = Mapping[str, Any]

TRAITS_BYTES_MAX: Final = 1_000
TRAITS_RULE: Final = (
    f"a JSON object of at most {TRAITS_BYTES_MAX} bytes and 8 levels, with finite numbers"
)
_LEVELS_MAX: Final = 8


def checked_traits(value: object) -> dict[str, Any]:
    """Return a copy of member traits in the types of JSON, with ascending keys.

    Raises:
        ValueError: it is not as `TRAITS_RULE` says.
    """
    text = ""
    try:
        if isinstance(value, dict) and _is_json(value, _LEVELS_MAX):
            text = traits_text(value)
        fits = 0 < len(text.encode()) <= TRAITS_BYTES_MAX
    except ValueError:  # a lone surrogate, or an integer of thousands of digits
        fits = False
    if not fits:
        raise ValueError(TRAITS_RULE)
    found: dict[str, Any] = json.loads(text)
    return found


def traits_text(traits: Traits) -> str:
    """Return member traits as JSON text: the shortest, with ascending keys."""
    return json.dumps(traits, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def traits_of_text(text: str) -> dict[str, Any]:
    """Read member traits from JSON text.

    Raises:
        ValueError: it is not as `TRAITS_RULE` says.
    """
    try:
        # Longer text may nest so deeply that it exhausts the stack.
        value = json.loads(text) if len(text) <= TRAITS_BYTES_MAX else None
    except (ValueError, RecursionError):
        value = None
    return checked_traits(value)


def _is_json(value: object, levels: int) -> bool:
    match value:
        case dict():
            parts = value.values()
            return (
                levels > 0
                and all(type(key) is str for key in value)
                and all(_is_json(part, levels - 1) for part in parts)
            )
        case list() | tuple():
            return levels > 0 and all(_is_json(part, levels - 1) for part in value)
        case float():
            return math.isfinite(value)
        case _:
            return value is None or type(value) in (str, int, bool)
