"""Values of librdkafka's keys: text, numbers and switches as librdkafka spells them.

Rule of this file: a wrong value is a `ConfigurationError` that names the key and the allowed
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from coopgroup.kafka.shown_values import refused

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
    """Return one of the allowed values in lower case; the user's spelling may have any case.

    Raises:
        ConfigurationError: the value is not allowed.
    """
    value = text(configuration.get(key, default)).lower()
    if value not in allowed:
        raise refused(key, configuration[key], "one of " + ", ".join(allowed))
    return value


def switch(configuration: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Return a switch.

    Raises:
        ConfigurationError: the value is neither true nor false.
    """
    return choice(configuration, key, ("true", "false"), text(default)) == "true"


def whole(configuration: Mapping[str, Any], key: str, default: int, minimum: int) -> int:
    """Return a whole number of at most 31 bits.

    Raises:
        ConfigurationError: the value is not a number, less than the minimum, or too large.
    """
    value = configuration.get(key, default)
    try:
        number = int(text(value))
    except ValueError:
        number = -1
    if not minimum <= number <= INT32_MAX:
        raise refused(key, value, f"a whole number from {minimum} to {INT32_MAX}")
    return number
