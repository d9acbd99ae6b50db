"""What options of several assignors may be: validators for their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from attrs import Attribute

__all__ = ["count", "count_or_none", "share", "yes_or_no"]


def yes_or_no(_: object, attribute: Attribute[bool], given: object) -> None:
    """Refuse what is neither true nor false.

    Raises:
        ConfigurationError: it is something else.
    """
    if not isinstance(given, bool):
        raise ConfigurationError(attribute.name, given, "true or false")


def count(_: object, attribute: Attribute[int], given: object) -> None:
    """Refuse what is no integer from 1 up.

    Raises:
        ConfigurationError: it is something else.
    """
    if type(given) is not int or given < 1:  # True is no number here
        raise ConfigurationError(attribute.name, given, "an integer from 1 up")


def count_or_none(_: object, attribute: Attribute[int | None], given: object) -> None:
    """Refuse what is neither an integer from 0 up nor none.

    Raises:
        ConfigurationError: it is something else.
    """
    if given is not None and (type(given) is not int or given < 0):
        raise ConfigurationError(attribute.name, given, "an integer from 0 up, or none")


def share(_: object, attribute: Attribute[float], given: object) -> None:
    """Refuse what is no number from 0 to 1.

    Raises:
        ConfigurationError: it is something else.
    """
    if type(given) not in (int, float) or not 0 <= given <= 1:  # type: ignore[operator]  # a number
        raise ConfigurationError(attribute.name, given, "a number from 0 to 1")
