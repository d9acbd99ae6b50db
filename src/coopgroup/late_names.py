"""Names of a package, and modules, that are imported on first use.

A package that exports the names of many modules would import all of them with its first submodule.
A consumer would then load every assignor and policy before it joins, and most consumers never lead.
NumPy takes longer to import than all of our modules, and a member needs it only for a round.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

__all__ = ["late_module", "late_names"]


def late_names(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: name of the package.
        homes: names by the module that defines them.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> object:
        """Import a name on first use."""
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        """List all names, imported or not."""
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names


class _LateModule:
    """Stands for a module in the scopes of other modules, and leaves them at its first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._places: list[tuple[dict[str, Any], str]] = []

    def __getattr__(self, name: str) -> object:
        module = import_module(self._name)
        for scope, alias in self._places:
            scope[alias] = module
        return getattr(module, name)

    def stand_in(self, scope: dict[str, Any], alias: str) -> None:
        self._places.append((scope, alias))
        scope[alias] = self


_late_modules: Final[dict[str, _LateModule]] = {}


def late_module(name: str, scope: dict[str, Any], alias: str) -> None:
    """Import a module into a scope at its first use there, or in another such scope.

    From then on the scope has the module itself, so its use costs no more than after an import.

    Args:
        name: full name of the module.
        scope: `globals()` of the module that uses it.
        alias: its name there.
    """
    if name in sys.modules:
        scope[alias] = import_module(name)
        return
    _late_modules.setdefault(name, _LateModule(name)).stand_in(scope, alias)
