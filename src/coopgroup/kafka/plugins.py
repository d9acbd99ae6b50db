"""The policy and the assignor of a member: objects, names, or names with options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.assignors.registry import choose_assignor
from coopgroup.core.policies.balance import BalanceRule
from coopgroup.core.policies.built_in import EagerPolicy, choose_policy
from coopgroup.core.policies.policy import Policy
from coopgroup.errors import ConfigurationError

_AN_ASSIGNOR: Final = (
    "an assignor: an object with name, needs_lags and assign(group, lags), or create_assignor(name)"
)
_A_POLICY: Final = (
    "a policy: an object with name, offer(group, context) and stage(group, target, context)"
)
_NOT_EAGER: Final = (
    "a policy for members that hold on to what they have: "
    "EagerPolicy is the baseline of coopgroup plan, simulate and compare"
)
_READS_LAGS: Final = "an assignor that reads lags beside it, which {} does not"

AssignorChoice: TypeAlias = Assignor | str | Mapping[str, Any]
"""An assignor, its name, or `{"name": …}` with its options."""

PolicyChoice: TypeAlias = Policy | str | Mapping[str, Any]
"""A policy, its name, or `{"name": …}` with its options."""


def chosen_assignor(given: AssignorChoice | None) -> Assignor | None:
    """Return the assignor; None for the default.

    Raises:
        ConfigurationError: there is no assignor of this name, or an option is wrong.
    """
    return choose_assignor(given) if isinstance(given, str | Mapping) else given


def chosen_policy(given: PolicyChoice | None) -> Policy | None:
    """Return the policy; None for the default.

    Raises:
        ConfigurationError: there is no policy of this name, or an option is wrong.
    """
    return choose_policy(given) if isinstance(given, str | Mapping) else given


def check_plugins(assignor: object, policy: object) -> None:
    """Refuse plugins that cannot lead a round, before their errors cost the group its rounds.

    None stands for the default assignor or policy, which load only when a member leads.

    Raises:
        ConfigurationError: not an assignor, not a policy, a policy for the simulator only, or a
            policy that balances lags with an assignor that ignores lags.
    """
    if assignor is not None:
        _check_plugin("assignor", assignor, Assignor, _AN_ASSIGNOR)
    if policy is None:
        return
    _check_plugin("policy", policy, Policy, _A_POLICY)
    if isinstance(policy, EagerPolicy):
        raise ConfigurationError("policy", policy, _NOT_EAGER)
    balance = getattr(policy, "balance", None)
    if isinstance(balance, BalanceRule) and not getattr(assignor, "needs_lags", False):
        given = "the default, StickyAssignor()," if assignor is None else assignor
        raise ConfigurationError(
            "lag_check_interval_ms", balance.interval_ms, _READS_LAGS.format(given)
        )


def _check_plugin(field: str, given: object, kind: type, expected: str) -> None:
    if isinstance(given, type):
        raise ConfigurationError(field, given, f"an object, not its class: {given.__name__}(…)")
    if not isinstance(given, kind):
        raise ConfigurationError(field, given, expected)
    name = getattr(given, "name", None)
    if not isinstance(name, str):
        raise ConfigurationError(f"{field}.name", name, "a string")
