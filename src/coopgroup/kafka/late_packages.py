"""Import parts of kafka-python without its packages' `__init__`, which import all of it.

We need kafka-python's connections and a few messages. The `__init__` of `kafka` also imports its
consumer, producer and admin client, and `kafka.protocol.admin` all messages for administrators.
That is most of the time that `import kafka` takes.

A late package stands for such a package. Its submodules are imported as usual. Its `__init__` runs
when a program asks for any other name, such as `kafka.KafkaConsumer`. So a program that uses
kafka-python by itself notices no difference.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Final

# Packages with the names that kafka-python's connections import from them, and the submodules that
# define these names. A parent precedes its packages.
LATE_PACKAGES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "kafka": {},
        "kafka.net": {},
        "kafka.protocol.admin": {"ListGroupsRequest": "groups"},
        "kafka.protocol.consumer": {"OffsetFetchRequest": "group"},
    }
)


class _LatePackage(ModuleType):
    """A package whose `__init__` runs at the first use of a name that is not in `homes`."""

    def __init__(self, spec: ModuleSpec, homes: Mapping[str, str]) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self.__loader__ = spec.loader
        self.__package__ = spec.name
        self.__path__ = spec.submodule_search_locations or []
        self.__file__ = spec.origin
        self._late_homes = homes
        # Reentrant, because the `__init__` imports modules that look for names in their package.
        self._late_lock = threading.RLock()
        self._late_ran = False

    def __getattr__(self, name: str) -> object:
        if name in self._late_homes:
            return getattr(self._submodule(self._late_homes[name]), name)
        if name.startswith("_") or not self._is_submodule(name):
            self._run_init(name)
        elif name not in self.__dict__:
            self._submodule(name)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def _submodule(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.__name__}.{name}")

    def _is_submodule(self, name: str) -> bool:
        return importlib.util.find_spec(f"{self.__name__}.{name}") is not None

    def _run_init(self, name: str) -> None:
        # The import system asks a module for special names that most modules lack.
        if name.startswith("__") and name not in {"__all__", "__version__"}:
            return
        with self._late_lock:
            if self._late_ran:
                return
            self._late_ran = True
            spec = self.__spec__
            if spec is not None and spec.loader is not None:
                try:
                    spec.loader.exec_module(self)
                except BaseException:
                    self._late_ran = False
                    raise


def postpone(packages: Mapping[str, Mapping[str, str]]) -> None:
    """Make packages late, unless the program has imported them already.

    Args:
        packages: names of packages, each with names that a submodule of it defines.
    """
    for name, homes in packages.items():
        if name in sys.modules:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            continue  # the import that needs the package reports that it is missing
        package = _LatePackage(spec, homes)
        sys.modules[name] = package
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, package)
        # kafka-python's `__init__` does this: without a handler, Python prints its warnings.
        logging.getLogger(name).addHandler(logging.NullHandler())
