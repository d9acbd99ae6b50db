"""`NamedFactories`: how users name an assignor or a policy, and add their own.

One place decides what a wrong name and a wrong option are answered with: one line that lists what
there is. The registries offer the methods of their `NamedFactories` as functions of their own.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NamedFactories"]

T = TypeVar("T")

_NAMED_KINDS: Final = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class NamedFactories(Generic[T]):
    """Factories of one kind of thing by name.

    Args:
        kind: what they make, as messages call it: "assignor", say.
        factories: those that are there from the start. A factory takes its options as keyword
            arguments; a class does.
    """

    __slots__ = ("_factories", "_kind")

    def __init__(self, kind: str, factories: Mapping[str, Callable[..., T]]) -> None:
        """Start with the given factories."""
        self._kind = kind
        self._factories = dict(factories)

    def names(self) -> tuple[str, ...]:
        """All names to choose from, ascending."""
        return tuple(sorted(self._factories))

    def register(self, name: str, factory: Callable[..., T]) -> None:
        """Let users choose something of their own by name.

        Args:
            name: by which it is chosen.
            factory: takes its options as keyword arguments; its class, say.

        Raises:
            ConfigurationError: the name is empty, or belongs to another factory.
        """
        if not name:
            raise ConfigurationError(f"{self._kind} name", name, "a name")
        if self._factories.get(name, factory) is not factory:
            raise ConfigurationError(f"{self._kind} name", name, "a name that is not yet taken")
        self._factories[name] = factory

    def create(self, name: str, options: Mapping[str, object] | None = None) -> T:
        """Make what has that name.

        Args:
            name: one of those that there are.
            options: keyword arguments of its factory; None for none.

        Raises:
            ConfigurationError: there is no such name or option, an option is missing, or the
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
