"""Validate options of policies.

Options come from code, from JSON and from scenario files. Only an integer counts as an integer:
neither `true` nor `"5"` nor 5.0 does.
"""

from __future__ import annotations

from typing import Final

from coopgroup.errors import ConfigurationError

_OPTION_MAX: Final = 2**31 - 1  # a delay is an int32 in the wire format


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
