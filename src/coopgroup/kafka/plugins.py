"""The policy and the assignor of a member: objects, names, or names with options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from coopgroup.assignors.base import Assignor
from coopgroup.policies.base import Policy

__all__ = ["AssignorChoice", "PolicyChoice", "chosen_assignor", "chosen_policy"]

AssignorChoice: TypeAlias = Assignor | str | Mapping[str, Any]
"""An assignor, its name, or `{"name": …}` with its options."""

PolicyChoice: TypeAlias = Policy | str | Mapping[str, Any]
"""A policy, its name, or `{"name": …}` with its options."""


def chosen_assignor(given: AssignorChoice | None, usual: str | None = None) -> Assignor | None:
    """Return the assignor; None for the default.

    Args:
        given: the application's choice.
        usual: the name of the assignor that applies without a choice.

    Raises:
        ConfigurationError: there is no assignor of this name, or an option is wrong.
    """
    wanted: Any = usual if given is None else given
    if not isinstance(wanted, str | Mapping):
        assignor: Assignor | None = wanted
        return assignor
    from coopgroup.assignors.registry import choose_assignor  # noqa: PLC0415 - imports all of them

    return choose_assignor(wanted)


def chosen_policy(given: PolicyChoice | None) -> Policy | None:
    """Return the policy; None for the default.

    Raises:
        ConfigurationError: there is no policy of this name, or an option is wrong.
    """
    if not isinstance(given, str | Mapping):
        return given
    from coopgroup.policies.registry import choose_policy  # noqa: PLC0415 - imports all of them

    return choose_policy(given)
