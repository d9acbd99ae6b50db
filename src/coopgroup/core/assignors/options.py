"""Validators for options that several assignors share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from attrs import Attribute

_MAX: Final = 2**31 - 1  # sums with it fit into an int64


def count_or_none(_: object, attribute: Attribute[int | None], given: object) -> None:
    """Refuse a value that is neither None nor an integer of 32 bits from 0 up.

    Raises:
        ConfigurationError: the value is something else.
    """
    if given is not None and (type(given) is not int or not 0 <= given <= _MAX):
        raise ConfigurationError(attribute.name, given, f"an integer from 0 to {_MAX}, or none")


def share(_: object, attribute: Attribute[float], given: object) -> None:
    """Refuse a value that is not a number from 0 to 1.

    Raises:
        ConfigurationError: the value is something else.
    """
    if type(given) not in (int, float) or not 0 <= given <= 1:  # type: ignore[operator]  # a number
        raise ConfigurationError(attribute.name, given, "a number from 0 to 1")
