"""`frozen` and `define` of attrs, with `__eq__`, `__hash__` and `__repr__` written on first use.

attrs compiles the methods of a class when the class is defined. A consumer defines 160 classes
before its first record. It compares a few of them, and shows none. To compile these methods takes
longer than the rest of the definition.

A class behaves as a class of attrs. After its first use, a method is as fast as that of attrs.
Exceptions, and fields with an `eq`, `hash` or `order` of their own, need attrs itself.
"""

from __future__ import annotations

from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import Factory, field

if TYPE_CHECKING:
    from collections.abc import Callable

    from attrs import define, frozen

__all__ = ["Factory", "define", "field", "frozen"]


def _with_late_methods(decorate: Callable[..., Any], *, is_frozen: bool) -> Callable[..., Any]:
    def decorator(cls: Any = None, *, eq: bool = True, **options: Any) -> Any:  # noqa: ANN401  (a class)
        if cls is None:
            return lambda given: decorator(given, eq=eq, **options)
        own = vars(cls)
        made = decorate(cls, eq=False, repr=False, **options)
        if "__repr__" not in own:
            made.__repr__ = _repr
        if eq and "__eq__" not in own:
            _write_late(made, "__eq__", _eq_source)
            if "__hash__" not in own:
                made.__hash__ = None
                if is_frozen:
                    _write_late(made, "__hash__", _hash_source)
        return made

    return decorator


def _write_late(made: Any, name: str, source_of: Callable[[Any], str]) -> None:  # noqa: ANN401  (a class)
    def write_first(self: object, *others: object) -> object:
        scope: dict[str, Any] = {}
        exec(source_of(made), scope)  # noqa: S102 - attrs does the same
        method = scope[name]
        method.__qualname__ = f"{made.__qualname__}.{name}"
        setattr(made, name, method)
        return method(self, *others)

    setattr(made, name, write_first)


def _eq_source(made: Any) -> str:  # noqa: ANN401  (a class)
    pairs = [f"self.{one.name} == other.{one.name}" for one in made.__attrs_attrs__ if one.eq]
    return f"""def __eq__(self, other):
    if other.__class__ is not self.__class__:
        return NotImplemented
    return {" and ".join(pairs) or "True"}
"""


def _hash_source(made: Any) -> str:  # noqa: ANN401  (a class)
    values = [f"self.{one.name}, " for one in made.__attrs_attrs__ if one.eq]
    salt = hash((made.__module__, made.__qualname__))
    return f"def __hash__(self):\n    return hash(({salt}, {''.join(values)}))\n"


@recursive_repr("...")
def _repr(self: Any) -> str:  # noqa: ANN401  (of any class)
    shown = []
    for one in self.__attrs_attrs__:
        if one.repr:
            show = repr if one.repr is True else one.repr
            shown.append(f"{one.name}={show(getattr(self, one.name, attrs.NOTHING))}")
    return f"{self.__class__.__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


if not TYPE_CHECKING:
    define: Final = _with_late_methods(attrs.define, is_frozen=False)
    frozen: Final = _with_late_methods(attrs.frozen, is_frozen=True)
