"""Policies by name: how configuration, command line and scenario files choose one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coopgroup.model.named_factories import NamedFactories
from coopgroup.policies.simple import SimplePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopgroup.policies.base import Policy

__all__ = ["create_policy", "policy_names", "register_policy"]

_POLICIES: Final = NamedFactories["Policy"]("policy", {SimplePolicy.name: SimplePolicy})


def policy_names() -> tuple[str, ...]:
    """Names of all policies, ascending."""
    return _POLICIES.names


def create_policy(name: str, options: Mapping[str, object] | None = None) -> Policy:
    """Make a policy.

    Args:
        name: one of `policy_names()`.
        options: its keyword arguments; None for none.

    Raises:
        ConfigurationError: an unknown name or option, or a wrong value.
    """
    return _POLICIES.create(name, options)


def register_policy(name: str, factory: Callable[..., Policy]) -> None:
    """Let users choose a policy of their own by name.

    Args:
        name: by which it is chosen.
        factory: takes the policy's options as keyword arguments; its class, say.

    Raises:
        ConfigurationError: the name is taken.
    """
    _POLICIES.register(name, factory)
