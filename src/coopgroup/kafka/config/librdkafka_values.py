"""Values of librdkafka's keys: text, numbers and switches as librdkafka spells them.

Rule of this file: a wrong value is a `ConfigurationError` that names the key and the allowed
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coopgroup.kafka.config.shown_values import refused

__all__ = ["choice", "switch", "text", "whole"]

INT32_MAX: Final = 2**31 - 1


def text(value: object) -> str:
    """Return a value as librdkafka spells it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def choice(
    configuration: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str
) -> str:
    """Return one of the allowed values in lower case; the user's spelling may have any case."""
    value = text(configuration.get(key, default)).lower()
    if value not in allowed:
        raise refused(key, configuration[key], "one of " + ", ".join(allowed))
    return value


def switch(configuration: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return a switch."""
    return choice(configuration, key, ("true", "false"), text(default)) == "true"


def whole(
    configuration: Mapping[str, Any],
    key: str,
    default: int,
    minimum: int,
    maximum: int = INT32_MAX,
) -> int:
    """Return a whole number."""
    value = configuration.get(key, default)
    try:
        number = int(text(value))
    except ValueError:
        number = minimum - 1
    if not minimum <= number <= maximum:
        raise refused(key, value, f"a whole number from {minimum} to {maximum}")
    return number
