"""Assignors by name: how configuration, command line and scenario files choose one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coopgroup.assignors.lag_aware import LagAwareAssignor
from coopgroup.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from coopgroup.model.named_factories import NamedFactories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopgroup.assignors.base import Assignor

__all__ = ["assignor_names", "create_assignor", "register_assignor"]

_ASSIGNORS: Final = NamedFactories["Assignor"](
    "assignor",
    {
        CooperativeStickyAssignor.name: CooperativeStickyAssignor,
        LagAwareAssignor.name: LagAwareAssignor,
        StickyAssignor.name: StickyAssignor,
    },
)


def assignor_names() -> tuple[str, ...]:
    """Names of all assignors, ascending."""
    return _ASSIGNORS.names


def create_assignor(name: str, options: Mapping[str, object] | None = None) -> Assignor:
    """Make an assignor.

    Args:
        name: one of `assignor_names()`.
        options: its keyword arguments; None for none.

    Raises:
        ConfigurationError: an unknown name or option, or a wrong value.
    """
    return _ASSIGNORS.create(name, options)


def register_assignor(name: str, factory: Callable[..., Assignor]) -> None:
    """Let users choose an assignor of their own by name.

    Args:
        name: by which it is chosen.
        factory: takes the assignor's options as keyword arguments; its class, say.

    Raises:
        ConfigurationError: the name is taken.
    """
    _ASSIGNORS.register(name, factory)
