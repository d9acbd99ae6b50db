"""Names of a package that are imported on first use.

A package that exports the names of many modules would import all of them with its first submodule.
A command line would then load everything before it shows its help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

__all__ = ["late_names"]


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
