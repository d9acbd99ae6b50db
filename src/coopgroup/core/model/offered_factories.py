"""Factories of other packages: entry points by name, and classes as `module:Class`.

The groups of entry points are `coopgroup.policies` and `coopgroup.assignors`.

They are searched only for a name that coopgroup itself does not know. So nothing here takes time
when a consumer starts, and a name of coopgroup's own always means coopgroup's own. Code of others
may fail in any way; each failure becomes one line that names the package and the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["factory_in_module", "offered_factory", "offered_names"]


def offered_names(kind: str) -> tuple[str, ...]:
    """Return the names that installed packages offer as entry points."""
    return tuple(sorted({one.name for one in _entry_points(kind)}))


def offered_factory(kind: str, name: str) -> Callable[..., Any] | None:
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
        raise ConfigurationError(kind, name, f"{source} to load: {_reason(error)}") from error
    return _callable(kind, name, factory)


def factory_in_module(kind: str, text: str) -> Callable[..., Any]:
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
        expected = f"a module that can be imported: {_reason(error)}"
        raise ConfigurationError(kind, text, expected) from error
    for attribute in path.split("."):
        try:
            factory = getattr(factory, attribute)
        except AttributeError as error:
            raise ConfigurationError(kind, text, f"module:Class: {_reason(error)}") from None
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


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
