"""`NamedFactories`: choose an assignor or a policy by name, and register new ones.

A name is one of coopgroup's own, a registered one, an entry point of an installed package, or
`module:Class`, searched in this order. Here is the one place that answers an unknown name or a
wrong option: one line that lists the valid ones. The registries expose the methods of their
`NamedFactories` as functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from coopgroup.errors import ConfigurationError, one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
        made: protocol of the objects; those of other packages are checked for its attributes.
    """

    __slots__ = ("_factories", "_kind", "_made")

    def __init__(
        self, kind: str, factories: Mapping[str, Callable[..., T]], made: type = object
    ) -> None:
        self._kind = kind
        self._factories = dict(factories)
        self._made = made

    def names(self) -> tuple[str, ...]:
        """All names, ascending: built-in and registered ones, and those of installed packages."""
        return tuple(sorted({*self._factories, *_offered_names(self._kind)}))

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
        """Create the object with this name; `module:Class` names a class of any module.

        Raises:
            ConfigurationError: the name or an option is unknown, an option is missing, the factory
                refuses a value, or the factory of another package fails.
        """
        chosen = dict(options or {})
        factory = self._factories.get(name)
        if factory is not None:
            self._check_options(name, factory, chosen)
            return factory(**chosen)
        return self._create_offered(name, chosen)

    def choose(self, given: T | str | Mapping[str, object]) -> T:
        """Return a given object, or create the one with this name, or `{"name": …}` with options.

        Raises:
            ConfigurationError: as for `create`, or there is no name.
        """
        if isinstance(given, str):
            return self.create(given)
        if not isinstance(given, Mapping):
            return given
        options = dict(given)
        name = options.pop("name", None)
        if not isinstance(name, str):
            expected = "a name, with the options beside it: {'name': …, 'option': …}"
            raise ConfigurationError(f"{self._kind}.name", name, expected)
        return self.create(name, options)

    def _create_offered(self, name: str, options: dict[str, object]) -> T:
        """Create an object of another package: its code may fail in any way."""
        if ":" in name:
            factory = _factory_in_module(self._kind, name)
        else:
            found = _offered_factory(self._kind, name)
            if found is None:
                expected = f"one of {', '.join(self.names())}, or module:Class"
                raise ConfigurationError(self._kind, name, expected)
            factory = found
        self._check_options(name, factory, options)
        try:
            made: T = factory(**options)
        except ConfigurationError:
            raise
        except Exception as error:
            expected = f"options that it takes ({one_line(error)})"
            raise ConfigurationError(f"{self._kind} {name}", options, expected) from error
        needed = (attribute for attribute in vars(self._made) if not attribute.startswith("_"))
        if lacking := [attribute for attribute in needed if not hasattr(made, attribute)]:
            expected = f"a class that makes a {self._kind}: its objects lack {', '.join(lacking)}"
            raise ConfigurationError(self._kind, name, expected)
        return made

    def _check_options(
        self, name: str, factory: Callable[..., Any], options: Mapping[str, object]
    ) -> None:
        try:
            parameters = inspect.signature(factory).parameters.values()
        except ValueError:  # compiled code may have no signature
            return
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


# --- factories of other packages ------------------------------------------------------------------
# Entry points by name, in the groups `coopgroup.policies` and `coopgroup.assignors`, and classes as
# `module:Class`. They are searched only for a name that coopgroup itself does not know. So a name
# of coopgroup's own always means coopgroup's own. Code of others may fail in any way; each failure
# becomes one line that names the package and the cause.


def _offered_names(kind: str) -> tuple[str, ...]:
    """Return the names that installed packages offer as entry points."""
    return tuple(sorted({one.name for one in _entry_points(kind)}))


def _offered_factory(kind: str, name: str) -> Callable[..., Any] | None:
    """Return the factory that an installed package offers; None if no package offers the name.

    Raises:
        ConfigurationError: several packages offer the name, or the factory cannot be imported.
    """
    found = [one for one in _entry_points(kind) if one.name == name]
    if not found:
        return None
    if len(found) > 1:
        packages = ", ".join(sorted(f"{_package(one)} ({one.value})" for one in found))
        raise ConfigurationError(kind, name, f"a name of one package; these offer it: {packages}")
    only = found[0]
    try:
        factory: Any = only.load()
    except Exception as error:
        source = f"the entry point {only.value} of the package {_package(only)}"
        raise ConfigurationError(kind, name, f"{source} to load: {one_line(error)}") from error
    return _callable(kind, name, factory)


def _factory_in_module(kind: str, text: str) -> Callable[..., Any]:
    """Return the factory that `module:Class` names.

    Raises:
        ConfigurationError: the module cannot be imported, or has no such factory.
    """
    module_name, _, path = text.partition(":")
    if not module_name or not path:
        raise ConfigurationError(kind, text, "module:Class")
    try:
        factory: Any = import_module(module_name)
    except Exception as error:
        expected = f"a module that can be imported: {one_line(error)}"
        raise ConfigurationError(kind, text, expected) from error
    for attribute in path.split("."):
        try:
            factory = getattr(factory, attribute)
        except AttributeError as error:
            raise ConfigurationError(kind, text, f"module:Class: {one_line(error)}") from None
    return _callable(kind, text, factory)


def _entry_points(kind: str) -> list[EntryPoint]:
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return list(entry_points(group=f"coopgroup.{plural}"))


def _package(one: EntryPoint) -> str:
    return "?" if one.dist is None else f"{one.dist.name} {one.dist.version}"


def _callable(kind: str, name: str, factory: Any) -> Callable[..., Any]:  # noqa: ANN401
    if not callable(factory):
        raise ConfigurationError(kind, name, f"a class, but it names {factory!r}")
    made: Callable[..., Any] = factory
    return made
