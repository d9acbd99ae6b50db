"""Validate options of policies and assignors.

Options come from code, from JSON and from scenario files. Only an integer counts as an integer:
neither `true` nor `"5"` nor 5.0 does. Options that allow fractions also allow integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from attrs import Attribute

# A delay is an int32 in the wire format, and sums of such counts fit into an int64.
_OPTION_MAX: Final = 2**31 - 1


# --- checks by name ------------------------------------------------------------------------------


def check_option(policy: str, option: str, value: object, *, least: int = 0) -> None:
    """Refuse a value that is not an integer in range.

    Args:
        policy: name of the policy.
        option: name of the option.
        value: the given value.
        least: smallest allowed value.

    Raises:
        ConfigurationError: the value is not an integer from `least` to 2147483647.
    """
    if type(value) is not int or not least <= value <= _OPTION_MAX:
        raise ConfigurationError(
            f"{option} of policy {policy}", value, f"an integer from {least} to {_OPTION_MAX}"
        )


# --- validators of attrs -------------------------------------------------------------------------


def count_or_none(_: object, attribute: Attribute[int | None], given: object) -> None:
    """Refuse a value that is neither None nor an integer of 32 bits from 0 up.

    Raises:
        ConfigurationError: the value is something else.
    """
    if given is not None and (type(given) is not int or not 0 <= given <= _OPTION_MAX):
        raise ConfigurationError(
            attribute.name, given, f"an integer from 0 to {_OPTION_MAX}, or none"
        )


def share(_: object, attribute: Attribute[float], given: object) -> None:
    """Refuse a value that is not a number from 0 to 1.

    Raises:
        ConfigurationError: the value is something else.
    """
    if type(given) not in (int, float) or not 0 <= given <= 1:  # type: ignore[operator]  # a number
        raise ConfigurationError(attribute.name, given, "a number from 0 to 1")
