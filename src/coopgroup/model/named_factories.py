"""`NamedFactories`: choose an assignor or a policy by name, and register new ones.

Here is the one place that answers an unknown name or a wrong option: one line that lists the valid
ones. The registries expose the methods of their `NamedFactories` as functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from coopgroup.errors import ConfigurationError

__all__ = ["NamedFactories"]

T = TypeVar("T")

_NAMED_KINDS: Final = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class NamedFactories(Generic[T]):
    """Factories of one kind of object by name.

    Args:
        kind: name of the kind in messages, such as "assignor".
        factories: built-in factories. A factory, usually a class, takes its options as keyword
            arguments.
    """

    __slots__ = ("_factories", "_kind")

    def __init__(self, kind: str, factories: Mapping[str, Callable[..., T]]) -> None:
        self._kind = kind
        self._factories = dict(factories)

    def names(self) -> tuple[str, ...]:
        """All registered names, ascending."""
        return tuple(sorted(self._factories))

    def register(self, name: str, factory: Callable[..., T]) -> None:
        """Register a factory under a new name.

        Raises:
            ConfigurationError: the name is empty or already registered.
        """
        if not name:
            raise ConfigurationError(f"{self._kind} name", name, "a name")
        if self._factories.get(name, factory) is not factory:
            raise ConfigurationError(f"{self._kind} name", name, "a name that is not yet taken")
        self._factories[name] = factory

    def create(self, name: str, options: Mapping[str, object] | None = None) -> T:
        """Create the object with this name.

        Raises:
            ConfigurationError: the name or an option is unknown, an option is missing, or the
                factory refuses a value.
        """
        factory = self._factories.get(name)
        if factory is None:
            raise ConfigurationError(self._kind, name, f"one of {', '.join(self.names())}")
        chosen = dict(options or {})
        self._check_options(name, factory, chosen)
        return factory(**chosen)

    def _check_options(
        self, name: str, factory: Callable[..., Any], options: Mapping[str, object]
    ) -> None:
        parameters = inspect.signature(factory).parameters.values()
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            return
        named = [parameter for parameter in parameters if parameter.kind in _NAMED_KINDS]
        known = sorted(parameter.name for parameter in named)
        for option in sorted(options):
            if option not in known:
                expected = f"one of {', '.join(known)}" if known else "no options at all"
                raise ConfigurationError(f"option of {self._kind} {name}", option, expected)
        for parameter in named:
            if parameter.default is inspect.Parameter.empty and parameter.name not in options:
                field = f"{parameter.name} of {self._kind} {name}"
                raise ConfigurationError(field, None, "a value")
